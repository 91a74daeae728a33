"""Modules out of a live root and back: whole or not at all, beside processes that know nothing of us."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import real_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_trees import COMPILER, FILES, OTHER, check, contents, entry_of, make, module_name, neff, tree

from cachekit.archive import UnsafeArchiveError
from cachekit.compilers.neuron import native, place
from cachekit.compilers.neuron.entries import STATES, scan
from cachekit.compilers.neuron.modules import check_module, collect, restore
from cachekit.errors import IntegrityError
from cachekit.record import File, Module


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def taken(root, workspace, judge=check):
    return collect(scan(root).entries, workspace, judge)


def files_of(module, harvest):
    return [harvest.files[file.sha256] for file in module.files]


def one(tmp_path, workspace, seed=0):
    """A module as a record has it, and its files."""
    source = tmp_path / f"source-{seed}"
    make(source, seed=seed)
    harvest = taken(source, workspace).harvest
    return harvest.modules[0], files_of(harvest.modules[0], harvest)


def clean(root):
    """Nothing unfinished of ours lies in a root."""
    return not [path for path in root.rglob("*") if path.name.startswith(".cachekit-")]


# Out


@pytest.mark.feature("S4")
def test_finished_modules_are_taken_verbatim(root, workspace):
    folder = make(root)
    (folder / "wrapped_neff.hlo").write_bytes(b"beside")
    found = taken(root, workspace)
    (module,) = found.harvest.modules
    assert module.name == f"{COMPILER}/{module_name(0)}"
    assert {file.path: found.harvest.files[file.sha256].read_bytes() for file in module.files} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    for file in module.files:
        raw = found.harvest.files[file.sha256].read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (file.size, file.sha256)
    assert found.skipped == ()


@pytest.mark.feature("S4")
@pytest.mark.parametrize("state", [state for state in STATES if state != "success"])
def test_unfinished_modules_are_never_taken(root, workspace, state):
    make(root, state, 1)
    found = taken(root, workspace)
    assert found.harvest is None
    assert len(found.skipped) == 1
    assert found.skipped[0].reason


def test_a_lock_beside_a_finished_module_keeps_it_from_being_taken(root, workspace):
    (make(root) / "model.hlo_module.pb.lock").touch()
    found = taken(root, workspace)
    assert found.harvest is None
    assert "locked" in found.skipped[0].reason


@pytest.mark.feature("F6")
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda _: b""])
def test_a_damaged_neff_is_never_taken(root, workspace, damage):
    folder = make(root, seed=1)
    make(root, seed=2)
    (folder / "model.neff").write_bytes(damage((folder / "model.neff").read_bytes()))
    found = taken(root, workspace)
    assert [module.name for module in found.harvest.modules] == [f"{COMPILER}/{module_name(2)}"]
    assert "damaged" in found.skipped[0].reason
    # Nor does anything of it stay in the workspace.
    assert {path for path in workspace.rglob("*") if path.is_file()} == set(found.harvest.files.values())


def test_what_is_of_a_failure_or_of_others_is_not_taken_along(root, workspace):
    folder = make(root)
    (folder / "model.log").write_text("an old failure")
    (folder / ".nfs000").write_text("x")
    (folder / "sub").mkdir()
    (module,) = taken(root, workspace).harvest.modules
    assert {file.path for file in module.files} == set(FILES["success"])


def test_equal_files_are_copied_once(root, workspace):
    make(root, seed=1)
    make(root, seed=2)
    harvest = taken(root, workspace).harvest
    # Two NEFFs, two graphs; one list of flags, one empty marker.
    assert len(harvest.files) == 6
    assert sum(path.is_file() for path in workspace.rglob("*")) == 6


def test_a_workspace_may_be_used_twice(root, workspace):
    make(root)
    first, second = taken(root, workspace).harvest, taken(root, workspace).harvest
    assert set(first.files.values()).isdisjoint(second.files.values())


def test_linked_neffs_are_taken_as_bytes(root, workspace, tmp_path):
    folder = make(root)
    (folder / "model.neff").rename(tmp_path / "blob")
    (folder / "model.neff").symlink_to(tmp_path / "blob")
    harvest = taken(root, workspace).harvest
    assert len(harvest.modules) == 1
    assert not any(path.is_symlink() for path in harvest.files.values())
    assert (tmp_path / "blob").stat().st_nlink == 1


@pytest.mark.parametrize("file", FILES["success"])
def test_a_module_that_changes_while_it_is_read_is_left(root, workspace, file):
    """The NEFF's check is the moment in which another process writes."""
    folder = make(root)

    def judge(path):
        (folder / file).write_bytes(contents(file, 0) + b"more")
        return check(path)

    found = taken(root, workspace, judge)
    assert found.harvest is None
    assert "changed" in found.skipped[0].reason


@pytest.mark.parametrize("change", ["lock", "gone", "extra", "replaced"])
def test_a_module_that_somebody_works_on_is_left(root, workspace, change):
    folder = make(root)

    def judge(path):
        if change == "lock":
            (folder / "model.hlo_module.pb.lock").touch()
        elif change == "gone":
            (folder / "model.done").unlink()
        elif change == "extra":
            (folder / "extra").touch()
        else:
            (folder / "new").write_bytes(neff(5))
            (folder / "new").replace(folder / "model.neff")
        return check(path)

    found = taken(root, workspace, judge)
    assert found.harvest is None
    assert "changed" in found.skipped[0].reason


def test_a_module_that_is_gone_is_left(root, workspace):
    entry = entry_of(make(root))
    for path in entry.path.iterdir():
        path.unlink()
    entry.path.rmdir()
    assert "changed" in collect([entry], workspace, check).skipped[0].reason


def test_a_pipe_does_not_stop_us(root, workspace):
    folder = make(root)
    entry = entry_of(folder)
    (folder / "model.hlo_module.pb").unlink()
    os.mkfifo(folder / "model.hlo_module.pb")
    found = collect([entry], workspace, check)
    # A pipe is no regular file: it is none of the module's files any more.
    assert {file.path for file in found.harvest.modules[0].files} == set(FILES["success"]) - {"model.hlo_module.pb"}


def test_of_two_with_one_name_one_is_taken(root, workspace):
    make(root)
    make(root / "neuron-compile-cache")
    found = taken(root, workspace)
    assert len(found.harvest.modules) == 1
    assert [item.reason for item in found.skipped] == ["another of the same name was taken"]


def test_a_full_workspace_is_an_error_and_no_skip(root, workspace):
    make(root)
    entries = scan(root).entries
    workspace.rmdir()
    with pytest.raises(OSError):
        collect(entries, workspace, check)


def test_seconds_go_into_the_module(root, workspace):
    make(root)
    name = f"{COMPILER}/{module_name(0)}"
    assert collect(scan(root).entries, workspace, check, {name: 12.5}).harvest.modules[0].seconds == 12.5


def test_real_neffs_are_taken(root, workspace):
    from cachekit.compilers.neuron.neff import check as real_check

    neffs = sorted(real_dir("neff").glob("*.neff"))
    for seed, path in enumerate(neffs):
        (make(root, seed=seed) / "model.neff").write_bytes(path.read_bytes())
    broken = make(root, seed=99)
    (broken / "model.neff").write_bytes(neffs[0].read_bytes()[:-512])
    found = taken(root, workspace, real_check)
    assert len(found.harvest.modules) == len(neffs)
    assert [item.path for item in found.skipped] == [broken]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*STATES, "damaged", "locked-success"]), st.booleans()), max_size=10))
def test_out_and_back_is_the_same_and_only_what_is_whole(tmp_path_factory, made):
    base = tmp_path_factory.mktemp("case")
    root, workspace, back = base / "root", base / "work", base / "back"
    root.mkdir()
    workspace.mkdir()
    expected = {}
    for seed, (state, other) in enumerate(made):
        compiler = OTHER if other else COMPILER
        kind = "success" if state in {"damaged", "locked-success"} else state
        folder = make(root, kind, seed, compiler)
        if state == "damaged":
            (folder / "model.neff").write_bytes(neff(seed)[:-7])
        elif state == "locked-success":
            (folder / "model.hlo_module.pb.lock").touch()
        elif state == "success":
            expected |= {f"{compiler}/{folder.name}/{name}": raw for name, raw in tree(folder).items()}
    found = taken(root, workspace)
    for module in found.harvest.modules if found.harvest else ():
        assert restore(module, files_of(module, found.harvest), back, check=check).outcome == "restored"
    assert (tree(back) if back.exists() else {}) == expected
    assert clean(root)
    names = {path.split("/")[1] for path in expected}
    assert len(names) + len(found.skipped) == len(made)


# Back


@pytest.mark.feature("S2", "S4")
def test_a_module_is_restored_whole_with_its_marker_last(tmp_path, root, workspace, monkeypatch):
    module, files = one(tmp_path, workspace)
    order = []
    real_open = Path.open

    def spy(self, mode="r", *args, **kwargs):
        if mode == "xb":
            order.append(self.name)
        return real_open(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", spy)
    result = restore(module, files, root)
    assert (result.outcome, result.size) == ("restored", sum(file.size for file in module.files))
    assert order[-1] == "model.done"
    assert tree(root / module.name) == tree(tmp_path / "source-0" / module.name)
    assert clean(root)


def test_restored_files_are_the_roots_own(tmp_path, root, workspace):
    module, files = one(tmp_path, workspace)
    for path in files:
        path.chmod(0o444)
    restore(module, files, root)
    for path in (root / module.name).iterdir():
        assert path.stat().st_nlink == 1
        assert path.stat().st_mode & 0o200
        path.write_bytes(b"the live root may be written")
    assert [check(path) for path, file in zip(files, module.files, strict=True) if file.path == "model.neff"] == [None]


def test_a_finished_module_stays(tmp_path, root, workspace):
    module, files = one(tmp_path, workspace)
    folder = make(root)
    (folder / "model.neff").write_bytes(neff(77))
    before = {path: path.stat().st_ino for path in folder.iterdir()}
    assert restore(module, files, root, check=check).outcome == "present"
    assert {path: path.stat().st_ino for path in folder.iterdir()} == before
    assert tree(root)[f"{module.name}/model.neff"] == neff(77)


@pytest.mark.feature("S5")
def test_a_finished_module_that_is_damaged_is_replaced(tmp_path, root, workspace):
    module, files = one(tmp_path, workspace)
    folder = make(root)
    (folder / "model.neff").write_bytes(neff(0)[:-9])
    assert restore(module, files, root).outcome == "present"  # nobody looked
    result = restore(module, files, root, check=check)
    assert (result.outcome, result.reason) == ("replaced", "its digest does not fit")
    assert scan(root).entries[0].state == "success"
    assert tree(root)[f"{module.name}/model.neff"] == neff(0)
    assert clean(root)


@pytest.fixture(params=[True, False])
def exchange(request, monkeypatch):
    """A file system that can exchange two folders in one step, and one that cannot."""
    if not request.param:
        monkeypatch.setattr(place.ctypes, "CDLL", lambda *_, **__: object())


@pytest.mark.feature("S4")
@pytest.mark.parametrize("state", ["failed", "empty", "done-without-neff", "neff-without-done"])
def test_an_unfinished_module_is_replaced(tmp_path, root, workspace, state, exchange):
    module, files = one(tmp_path, workspace)
    make(root, state)
    result = restore(module, files, root, check=check)
    assert (result.outcome, result.reason) == ("replaced", state)
    assert tree(root) == tree(tmp_path / "source-0")
    assert clean(root)


@pytest.mark.parametrize("state", ["locked", "empty", "failed", "neff-without-done", "done-without-neff"])
def test_a_locked_module_is_left_alone(tmp_path, root, workspace, state):
    module, files = one(tmp_path, workspace)
    folder = make(root, state)
    (folder / "model.hlo_module.pb.lock").touch()
    before = tree(root)
    result = restore(module, files, root, check=check)
    assert result.outcome == "left"
    assert "locked" in result.reason
    assert tree(root) == before


def test_a_lock_that_comes_at_the_last_moment_wins(tmp_path, root, workspace, monkeypatch):
    """Between our last look and our step, a compile takes the lock: then it was there first."""
    module, files = one(tmp_path, workspace)
    folder = make(root, "empty")
    real, times = place._exchange, []

    def late(one, two):
        if not times:
            (folder / "model.hlo_module.pb.lock").touch()
        times.append(one)
        return real(one, two)

    monkeypatch.setattr(place, "_exchange", late)
    result = restore(module, files, root)
    assert result.outcome == "left"
    assert len(times) == 2  # there and back
    assert scan(root).entries[0].state == "locked"
    assert clean(root)


def test_a_module_that_is_finished_at_the_last_moment_stays(tmp_path, root, workspace, monkeypatch):
    module, files = one(tmp_path, workspace)
    folder = make(root, "empty")
    real, times = place._exchange, []

    def late(one, two):
        if not times:
            (folder / "model.neff").write_bytes(neff(77))
            (folder / "model.done").touch()
        times.append(one)
        return real(one, two)

    monkeypatch.setattr(place, "_exchange", late)
    assert restore(module, files, root).outcome == "present"
    assert tree(root)[f"{module.name}/model.neff"] == neff(77)


@pytest.mark.parametrize("what", ["file", "link", "foreign", "folder inside"])
def test_what_is_not_neurons_is_left_alone(tmp_path, root, workspace, what):
    module, files = one(tmp_path, workspace)
    target = root / module.name
    target.parent.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "file":
        target.write_text("mine")
    elif what == "link":
        target.symlink_to(elsewhere)
    else:
        target.mkdir()
        (target / "notes.txt").mkdir() if what == "folder inside" else (target / "notes.txt").write_text("mine")
    assert restore(module, files, root).outcome == "left"
    assert list(elsewhere.iterdir()) == []
    assert not (target / "model.neff").exists()
    assert clean(root)


def test_nothing_is_written_through_a_linked_compilers_folder(tmp_path, root, workspace):
    module, files = one(tmp_path, workspace)
    (tmp_path / "elsewhere").mkdir()
    (root / COMPILER).symlink_to(tmp_path / "elsewhere")
    assert restore(module, files, root).outcome == "left"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.feature("S5", "F6")
@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: b"X" + raw[1:]])
@pytest.mark.parametrize("file", ["model.neff", "compile_flags.json"])
def test_bytes_that_are_not_the_records_are_refused(tmp_path, root, workspace, change, file):
    module, files = one(tmp_path, workspace)
    index = [item.path for item in module.files].index(file)
    files[index].write_bytes(change(files[index].read_bytes()))
    with pytest.raises(IntegrityError):
        restore(module, files, root)
    assert not (root / module.name).exists()
    assert clean(root)


@pytest.mark.feature("F6")
def test_a_neff_that_is_damaged_but_as_recorded_is_refused(tmp_path, root, workspace):
    source = tmp_path / "source"
    folder = make(source)
    (folder / "model.neff").write_bytes(b"no NEFF at all")
    harvest = taken(source, workspace, lambda _: None).harvest
    with pytest.raises(IntegrityError):
        restore(harvest.modules[0], files_of(harvest.modules[0], harvest), root, check=check)
    assert not (root / harvest.modules[0].name).exists()


EMPTY = hashlib.sha256(b"").hexdigest()


def module(name, *names):
    return Module(name, tuple(File(path, 0, EMPTY) for path in names))


GOOD = f"{COMPILER}/{module_name(1)}"


@pytest.mark.feature("S7", "F6")
@pytest.mark.parametrize(
    "bad",
    [
        module(f"inductor-2.13.0/{module_name(1)}", "model.neff", "model.done"),
        module(f"torchneuron-2.27/{module_name(1)}", "model.neff", "model.done"),
        module(f"USER_neuroncc-2.7/{module_name(1)}", "model.neff", "model.done"),
        module(module_name(1), "model.neff", "model.done"),
        module(COMPILER, "model.neff", "model.done"),
        module(f"{COMPILER}/x", "model.neff", "model.done"),
        module(f"{COMPILER}/MODULE_..", "model.neff", "model.done"),
        module(f"{COMPILER}/../{module_name(1)}", "model.neff", "model.done"),
        module(f"{GOOD}/deeper", "model.neff", "model.done"),
        module(GOOD, "model.neff"),
        module(GOOD, "model.done"),
        module(GOOD, "model.neff", "model.done", "model.log"),
        module(GOOD, "model.neff", "model.done", "model.hlo_module.pb.lock"),
        module(GOOD, "model.neff", "model.done", "../evil"),
        module(GOOD, "model.neff", "model.done", "a/b"),
        module(GOOD, "model.neff", "model.done", "a\\b"),
        module(GOOD, "model.neff", "model.done", ".."),
        module(GOOD, "model.neff", "model.done", ".hidden"),
        module(GOOD, "model.neff", "model.done", "a\nb"),
        module(GOOD, "model.neff", "model.done", "\x1b[31m"),
        module(GOOD, "model.neff", "model.done", "x" * 300),
        module(GOOD, "model.neff", "model.done", "model.neff"),
        module(f"{GOOD}\n", "model.neff", "model.done"),
    ],
)
def test_a_module_that_we_would_not_make_is_refused(tmp_path, root, bad):
    (tmp_path / "empty").touch()
    with pytest.raises(UnsafeArchiveError):
        restore(bad, [tmp_path / "empty"] * len(bad.files), root)
    assert list(root.iterdir()) == []


def test_a_module_that_we_make_is_allowed():
    assert check_module(module(GOOD, "model.neff", "model.done")) == (COMPILER, module_name(1))
    with pytest.raises(UnsafeArchiveError):
        restore(module(GOOD, "model.neff", "model.done"), [], Path("/nowhere"))


def test_many_restore_the_same_at_once(tmp_path, root, workspace):
    module, files = one(tmp_path, workspace)
    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(restore(module, files, root, check=check).outcome))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["present"] * 7 + ["restored"]
    assert tree(root) == tree(tmp_path / "source-0")
    assert clean(root)


VICTIM = """
import os, sys
from pathlib import Path
import msgspec
from cachekit.compilers.neuron import modules
from cachekit.record import Module

module = msgspec.json.decode(sys.argv[1], type=Module)
seen = 0
real = modules._pour_checked

def slow(source, target, size):
    global seen
    seen += 1
    if seen == int(sys.argv[3]):
        print("ready", flush=True)
        sys.stdin.read()
    return real(source, target, size)

modules._pour_checked = slow
modules.restore(module, [Path(p) for p in sys.argv[4:]], Path(sys.argv[2]))
"""


@pytest.mark.feature("S2")
@pytest.mark.parametrize("state", ["nothing", "empty", "failed"])
@pytest.mark.parametrize("when", [1, 4])
def test_a_killed_restore_leaves_what_was_there(tmp_path, root, workspace, state, when):
    import msgspec

    module, files = one(tmp_path, workspace)
    if state != "nothing":
        make(root, state)
    before = tree(root)
    words = [sys.executable, "-c", VICTIM, msgspec.json.encode(module).decode(), root, str(when), *files]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline() == "ready\n"
        # Another process does not take for garbage what its owner still builds.
        assert place.sweep(root) == []
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    visible = {name: raw for name, raw in tree(root).items() if ".cachekit-" not in name}
    assert visible == before
    assert [entry.state for entry in scan(root).entries] == ([] if state == "nothing" else [state])
    assert not clean(root)
    assert len(place.sweep(root)) == 1
    assert clean(root)
    assert restore(module, files, root, check=check).outcome in {"restored", "replaced"}
    assert tree(root) == tree(tmp_path / "source-0")


# Native TorchNeuron


def grow(root, count=5, seed=0):
    for number in range(count):
        name = hashlib.md5(f"{seed} {number}".encode()).hexdigest()
        path = root / name[:2] / name[2:4] / f"{name}.neff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(neff(seed * 100 + number, 50))
    return native.contents(root)


def test_native_out_and_back_is_the_same(tmp_path, workspace):
    source = tmp_path / "source"
    names = grow(source)
    (source / "locks").mkdir()
    (source / "locks" / "x.lock").touch()
    (source / "ab.neff.tmp").touch()
    (source / ".hidden.neff").touch()
    (source / "link.neff").symlink_to("/etc/passwd")
    assert native.contents(source) == names
    harvest, skipped = native.harvest(source, frozenset(), "2.27.5334.0+abc", workspace, check=check)
    assert skipped == ()
    (module,) = harvest.modules
    assert module.name.startswith("torchneuron-2.27.5334.0+abc/")
    target = tmp_path / "target"
    written = native.restore(module, *harvest.files.values(), target, "2.27.5334.0+abc", check=check)
    assert tree(target) == {name: (source / name).read_bytes() for name in names}
    assert written == sum(map(len, tree(target).values()))
    assert native.restore(module, *harvest.files.values(), target, "2.27.5334.0+abc") == 0


def test_native_takes_only_what_is_new_and_whole(tmp_path, workspace):
    source = tmp_path / "source"
    before = grow(source, seed=1)
    new = grow(source, seed=2) - before
    broken = min(new)
    (source / broken).write_bytes(b"half")
    harvest, skipped = native.harvest(source, before, "2.27", workspace, check=check)
    native.restore(harvest.modules[0], *harvest.files.values(), tmp_path / "t", "2.27")
    assert native.contents(tmp_path / "t") == new - {broken}
    assert [item.module for item in skipped] == [broken]
    assert native.harvest(source, native.contents(source), "2.27", workspace) == (None, ())


def test_native_keeps_what_is_there(tmp_path, workspace):
    source, target = tmp_path / "source", tmp_path / "target"
    name = min(grow(source))
    harvest, _ = native.harvest(source, frozenset(), "2.27", workspace)
    (target / name).parent.mkdir(parents=True)
    (target / name).write_bytes(b"another process made it")
    native.restore(harvest.modules[0], *harvest.files.values(), target, "2.27")
    assert (target / name).read_bytes() == b"another process made it"
    assert native.contents(target) == native.contents(source)
    assert clean(target)


@pytest.mark.feature("K1", "F6")
def test_native_modules_of_another_compiler_are_refused(tmp_path, workspace):
    """The compiler's version is in no key of that cache: the folder is all that keeps two versions apart."""
    grow(tmp_path / "source")
    harvest, _ = native.harvest(tmp_path / "source", frozenset(), "2.27", workspace)
    with pytest.raises(UnsafeArchiveError):
        native.restore(harvest.modules[0], *harvest.files.values(), tmp_path / "t", "2.28")
    with pytest.raises(ValueError):
        native.directory("../2.27")
    assert native.directory("2.27") != native.directory("2.28")


@pytest.mark.feature("S7")
def test_native_archives_with_something_else_are_refused(tmp_path, workspace):
    from cachekit import archive

    source = tmp_path / "source"
    grow(source)
    (source / "run.sh").write_text("evil")
    packed = workspace / "a.tar"
    with packed.open("wb") as target:
        sha256, size = archive.pack(source, [*native.contents(source), "run.sh"], target)
    module = Module(f"torchneuron-2.27/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    with pytest.raises(UnsafeArchiveError):
        native.restore(module, packed, tmp_path / "t", "2.27")
    assert tree(tmp_path / "t") == {}
    other = Module(module.name, (File(f"{sha256}.tar", size, "0" * 64),))
    with pytest.raises(IntegrityError):
        native.restore(other, packed, tmp_path / "t", "2.27")


def test_native_never_writes_through_a_link(tmp_path, workspace):
    source, target, elsewhere = tmp_path / "source", tmp_path / "target", tmp_path / "elsewhere"
    name = min(grow(source, 1))
    harvest, _ = native.harvest(source, frozenset(), "2.27", workspace)
    target.mkdir()
    elsewhere.mkdir()
    (target / name.split("/")[0]).symlink_to(elsewhere)
    with pytest.raises(UnsafeArchiveError):
        native.restore(harvest.modules[0], *harvest.files.values(), target, "2.27")
    assert list(elsewhere.iterdir()) == []
