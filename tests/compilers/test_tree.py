"""A compiler whose cache is a tree: units of several files, what a run used and made, and the archive between."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cachekit.compilers import tree
from cachekit.compilers.port import Run
from cachekit.compilers.tree import UNCOUNTED, TreeCompiler, TreeWatch, check_archive, keeps_access_times
from cachekit.errors import MissError
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import File, Module


class Pairs(TreeCompiler):
    """Each unit has two files, `<name>-cache` and `<name>-note`; one that begins with `torn` is not whole."""

    def unit(self, path: str) -> str:
        name, _, kind = path.rpartition("-")
        return name if kind in {"cache", "note"} else ""

    def torn(self, path: Path) -> bool:
        return path.read_bytes().startswith(b"torn")


class Packed:
    """An archive's bytes."""

    def __init__(self, path: Path) -> None:
        self.location = path

    def through(self, sink) -> None:
        sink(0, memoryview(self.location.read_bytes()))


MACHINE = Fingerprint(compiler="pairs", directory="pairs-1", toolchain={}, target={}, soft={}, bf16=False)


def add(tree: Path, name: str, body: bytes = b"code") -> None:
    (tree / f"{name}-cache").write_bytes(body)
    (tree / f"{name}-note").write_bytes(b"note")


@pytest.fixture
def tree(tmp_path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def test_new_units_are_packed_whole_and_come_back_elsewhere(tree, tmp_path):
    compiler = Pairs()
    add(tree, "old")
    before = compiler.contents(tree)
    add(tree, "new")
    add(tree, "bad", b"torn")
    (tree / "new.tmp").write_bytes(b"on its way")
    (tree / "link-cache").symlink_to("new-cache")
    assert (before, compiler.contents(tree)) == ({"old"}, {"old", "new", "bad"})
    (tmp_path / "work").mkdir()
    harvest = compiler.harvest(tree, before, MACHINE, tmp_path / "work")
    (module,) = harvest.modules
    assert module.name.startswith("pairs-1/")
    there = tmp_path / "there"
    there.mkdir()
    assert compiler.restore(module, [Packed(harvest.files[module.files[0].sha256])], there).size == 8
    assert {path.name for path in there.iterdir()} == {"new-cache", "new-note"}
    assert compiler.harvest(there, frozenset({"new"}), MACHINE, tmp_path / "work") is None


def test_two_compiles_are_compared_unit_by_unit(tree, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for name in ("same", "differs", "gone"):
        add(tree, name)
    add(other, "same")
    add(other, "differs", b"another")
    add(other, "new")
    found = Pairs().compare(tree, other)
    assert (found.same, found.differ, found.gone, found.new) == (1, ("differs",), ("gone",), ("new",))


def test_a_run_is_told_by_what_it_read_and_what_is_new(tree):
    add(tree, "read")
    add(tree, "unread")
    watch = TreeWatch(Pairs(), Run(None, tree, "train", found=True), {})
    watch.begin(print)
    watch.event({"event": "at", "phase": "train"})
    (tree / "read-cache").read_bytes()
    add(tree, "made")
    seen = watch.observed()
    assert (seen.compiled, seen.surprises) == (1, ("train",))
    if keeps_access_times(tree):
        assert (seen.found, seen.exact, seen.used) == (1, True, {"read"})


def test_where_reads_leave_no_trace_nothing_is_said_to_be_found_and_a_note_says_why(tree, monkeypatch):
    monkeypatch.setattr("cachekit.compilers.tree.keeps_access_times", lambda _: False)
    add(tree, "read")
    watch = TreeWatch(Pairs(), Run(None, tree, "command", found=True), {})
    watch.begin(print)
    (tree / "read-cache").read_bytes()
    seen = watch.observed()
    assert (seen.found, seen.exact, seen.notes) == (0, False, (UNCOUNTED,))


def test_a_file_that_tells_nothing_uses_no_unit(tree, monkeypatch):
    monkeypatch.setattr(Pairs, "tells", lambda _, path: path.endswith("-cache"))
    add(tree, "one")
    watch = TreeWatch(Pairs(), Run(None, tree, "command", found=True), {})
    watch.begin(print)
    (tree / "one-note").read_bytes()
    assert watch.observed().found == 0


def test_under_strict_the_first_new_unit_stops_the_run(tree):
    watch = TreeWatch(Pairs(), Run(None, tree, "train", found=True, strict=True), {})
    watch.begin(print)
    add(tree, "made")
    with pytest.raises(MissError):
        watch.look(0)


@pytest.mark.parametrize("name", ["pairs-1/x.zip", "pairs-2/x.tar"])
def test_a_module_that_is_no_archive_of_the_folder_is_refused(name):
    digest = hashlib.sha256(b"").hexdigest()
    with pytest.raises(UnsafeArchiveError):
        check_archive(Module(name, (File(name, 0, digest),)), "pairs-1")
