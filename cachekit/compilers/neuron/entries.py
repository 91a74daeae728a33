"""Look at a cache of torch-neuronx on disk: which modules there are, and in which state.

    <root>/neuronxcc-<version>/MODULE_<graph>+<flags>/{model.neff, model.done, …}

Only looks: follows no links to folders, opens no file, survives whatever else lies there, and costs one directory
listing a module. The order of the tests is optimum-neuron's (`cleanup.py`, `_classify_entry`), so that both agree on
what is finished; two states of theirs are told apart here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.installed import public
from cachekit.errors import CompileError
from cachekit.text import cause_of

State = Literal["success", "failed", "locked", "empty", "done-without-neff", "neff-without-done"]
STATES: tuple[State, ...] = ("success", "failed", "locked", "empty", "done-without-neff", "neff-without-done")
OURS = ".cachekit-"  # how the names of our own unfinished work begin


class CacheEntry(Struct, frozen=True):
    """A module on disk, as it was when it was looked at."""

    compiler: str  # the compiler's folder, `neuronxcc-<version>`
    name: str  # the module's, `MODULE_<graph>[+<flags>]`
    place: str  # its folder
    state: State  # as libneuronxla will take it
    names: tuple[str, ...]  # its regular files, and links to such, sorted
    odd: tuple[str, ...] = ()  # what else lies there: folders, dead links, devices

    @property
    def path(self) -> Path:
        """Its folder."""
        return Path(self.place)

    @property
    def module(self) -> str:
        """Its name in a record and on every remote."""
        return f"{self.compiler}/{self.name}"

    @property
    def locks(self) -> tuple[str, ...]:
        """Its lock files."""
        return tuple(name for name in self.names if name.endswith(facts.LOCK_SUFFIX))

    @property
    def finished(self) -> bool:
        """Whether it is whole and nobody works on it. A lock beside a whole one may be of a compile that begins."""
        return self.state == "success" and not self.locks

    def files(self) -> dict[str, os.stat_result]:
        """Its files as they are now, of a link what it leads to; those that vanished are left out."""
        found = {}
        for name in self.names:
            with suppress(OSError):
                found[name] = os.stat(os.path.join(self.place, name))  # noqa: PTH116, PTH118 - called 100,000 times
        return found


class Unknown(Struct, frozen=True):
    """Something in a cache that is not a module."""

    path: Path  # where it lies
    reason: str  # what it is, or why it was not looked at


class Scan(Struct, frozen=True):
    """What a cache holds, sorted by compiler and name."""

    root: Path
    entries: tuple[CacheEntry, ...]  # its modules
    unknown: tuple[Unknown, ...]  # the rest
    compilers: tuple[str, ...] = ()  # the compilers' folders, those without modules too

    def of(self, version: str) -> list[CacheEntry]:
        """The modules of one compiler version, with any commit."""
        wanted = f"{facts.COMPILER_DIRECTORY_PREFIX}{public(version)}"
        return [entry for entry in self.entries if public(entry.compiler) == wanted]


def classify(names: Iterable[str]) -> State:
    """The state of a module by its files' names."""
    names = frozenset(names)
    neff, done = facts.NEFF in names, facts.DONE in names
    if neff and done:
        return "success"
    if facts.FAILURE_LOG in names and not neff:
        return "failed"
    if any(name.endswith(facts.LOCK_SUFFIX) for name in names):
        return "locked"
    if done:
        return "done-without-neff"
    return "neff-without-done" if neff else "empty"


def belongs(name: str) -> bool:
    """Whether a file of a module's folder is one of a finished module's."""
    return name in facts.MODULE_FILES or facts.KERNEL_FILE.fullmatch(name) is not None


def scan(root: Path) -> Scan:
    """Look at a whole cache: a root, or one compiler's folder in it.

    Raises:
        OSError: The folder itself cannot be listed.
    """
    entries: list[CacheEntry] = []
    unknown: list[Unknown] = []
    compilers: list[str] = []
    with os.scandir(root) as found:  # the root itself must be there; one of its folders may be unreadable
        items = list(found)
    if facts.COMPILER_DIRECTORY.fullmatch(root.name):
        compilers, items = [root.name], []
        _scan_compiler(os.fspath(root), root.name, entries, unknown)
    for item in items:
        name = item.name
        if name.startswith(".") or name == facts.ROOT_LOCK:
            continue
        if not item.is_dir(follow_symlinks=False):
            unknown.append(Unknown(Path(item.path), _what(item)))
        elif facts.COMPILER_DIRECTORY.fullmatch(name):
            compilers.append(name)
            _scan_compiler(item.path, name, entries, unknown)
        elif name.startswith(facts.MODULE_PREFIX):
            unknown.append(Unknown(Path(item.path), "a module outside of a compiler's folder"))
        else:
            unknown.append(Unknown(Path(item.path), "not part of Neuron's cache"))
    entries.sort(key=lambda entry: (entry.compiler, entry.name))
    unknown.sort(key=lambda one: one.path)
    return Scan(root, tuple(entries), tuple(unknown), tuple(sorted(compilers)))


def scan_if_there(root: Path) -> Scan:
    """As `scan`; a root that nobody has made yet holds nothing."""
    try:
        return scan(root)
    except FileNotFoundError:
        return Scan(root, (), ())


def _scan_compiler(folder: str, compiler: str, entries: list[CacheEntry], unknown: list[Unknown]) -> None:
    try:
        with os.scandir(folder) as found:
            items = list(found)
    except OSError as error:
        unknown.append(_unreadable(folder, error))
        return
    for item in items:
        name = item.name
        if name.startswith(".") or name in {facts.ROOT_LOCK, facts.REGISTRY_DIRECTORY}:
            continue
        if not name.startswith(facts.MODULE_PREFIX):
            unknown.append(Unknown(Path(item.path), "not part of Neuron's cache"))
        elif not item.is_dir(follow_symlinks=False):
            unknown.append(Unknown(Path(item.path), _what(item, " where a module's folder is expected")))
        elif facts.MODULE_DIRECTORY.fullmatch(name) is None:
            unknown.append(Unknown(Path(item.path), "not a name that Neuron gives a module"))
        else:
            try:
                entries.append(read_entry(item.path, compiler, name))
            except OSError as error:
                unknown.append(_unreadable(item.path, error))


def _unreadable(path: str, error: OSError) -> Unknown:
    return Unknown(Path(path), f"unreadable: {cause_of(error)}")


def read_entry(place: str, compiler: str, name: str) -> CacheEntry:
    """Look at one module.

    Raises:
        OSError: Its folder cannot be listed, or is none.
    """
    names: list[str] = []
    odd: list[str] = []
    with os.scandir(place) as found:
        for item in found:
            # Asks the kernel only where it is a link; the listing tells of everything else.
            (names if _is_file(item) else odd).append(item.name)
    names.sort()
    odd.sort()
    return CacheEntry(compiler, name, place, classify(names), tuple(names), tuple(odd))


def read_needed(path: Path, what: str) -> CacheEntry:
    """Look at a module that this run needs.

    Raises:
        CompileError: It is not there any more; `what` says what of it.
    """
    try:
        return read_entry(str(path), path.parent.name, path.name)
    except OSError as error:  # somebody's cleaner was quicker
        raise CompileError(
            f"{path.parent.name}/{path.name} {what}",
            cause=f"{path}: {cause_of(error)}; another process removes modules from this root",
            hint="warm again, and let nothing clean Neuron's cache meanwhile",
        ) from error


def _is_file(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_file()
    except OSError:  # a link that may not be followed
        return False


def _what(item: os.DirEntry[str], where: str = "") -> str:
    if item.is_symlink():
        return "a link, not followed"
    return ("a file" if item.is_file(follow_symlinks=False) else "neither a file nor a folder") + where
