"""Modules back into a compiler cache dir: whole or not at all, beside processes that know nothing of us."""

import hashlib
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cachekit.compilers.neuron import place
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.modules import restore
from cachekit.errors import IntegrityError
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import File, Module
from tests.compilers.neuron.neuron_trees import (  # noqa: F401 - fixtures
    COMPILER,
    check,
    clean,
    files_of,
    make,
    module_name,
    neff,
    one,
    root,
    taken,
    tree,
    workspace,
)


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
        path.write_bytes(b"the compiler cache dir may be written")
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
    assert (result.outcome, result.reason) == ("replaced", "its digest does not match")
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


@pytest.mark.parametrize("state", ["locked", "failed", "neff-without-done"])
def test_a_locked_module_is_left_alone(tmp_path, root, workspace, state):
    module, files = one(tmp_path, workspace)
    folder = make(root, state)
    (folder / "model.hlo_module.pb.lock").touch()
    before = tree(root)
    result = restore(module, files, root, check=check)
    assert result.outcome == "left"
    assert "locked" in result.reason
    assert tree(root) == before


LOCKED, FINISHED = {"model.hlo_module.pb.lock": b""}, {"model.neff": neff(77), "model.done": b""}


@pytest.mark.parametrize("comes, outcome", [(LOCKED, "left"), (FINISHED, "present")])
def test_what_comes_at_the_last_moment_wins(  # noqa: PLR0917
    tmp_path, root, workspace, monkeypatch, comes, outcome
):
    """Between our last look and our step a compile takes the lock, or ends: then it was there first."""
    module, files = one(tmp_path, workspace)
    folder = make(root, "empty")
    real, times = place._exchange, []

    def late(one, two):
        if not times:
            for name, raw in comes.items():
                (folder / name).write_bytes(raw)
        times.append(one)
        return real(one, two)

    monkeypatch.setattr(place, "_exchange", late)
    assert restore(module, files, root).outcome == outcome
    assert len(times) == 2  # there and back
    assert {name: tree(folder)[name] for name in comes} == comes
    assert clean(root)


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
    harvest = taken(source, workspace, lambda *_: None).harvest
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
from cachekit.store.record import Module

module = msgspec.json.decode(sys.argv[1], type=Module)
seen = 0
real = modules.written

def slow(read, target):
    global seen
    seen += 1
    if seen == int(sys.argv[3]):
        print("ready", flush=True)
        sys.stdin.read()
    return real(read, target)

modules.written = slow
modules.restore(module, [Path(p) for p in sys.argv[4:]], Path(sys.argv[2]))
"""


@pytest.mark.feature("S2")
@pytest.mark.parametrize("state, when", [("nothing", 1), ("failed", 4)])
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


@pytest.mark.parametrize("name", ["model.neff", "model.log"])
def test_a_folder_of_a_files_name_is_left_alone(tmp_path, root, workspace, name):
    """It may hold anything, and would go with the module."""
    module, files = one(tmp_path, workspace)
    folder = make(root, "empty")
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    (folder / name / "thesis.txt").write_text("mine")
    result = restore(module, files, root)
    assert (result.outcome, (folder / name / "thesis.txt").read_text()) == ("left", "mine")
    assert name in result.reason


def test_a_dead_link_is_replaced(tmp_path, root, workspace):
    """optimum-neuron's, after somebody emptied the Hub's cache."""
    module, files = one(tmp_path, workspace)
    folder = make(root, "empty")
    (folder / "model.neff").symlink_to(tmp_path / "gone")
    assert restore(module, files, root, check=check).outcome == "replaced"
    assert scan(root).entries[0].state == "success"
