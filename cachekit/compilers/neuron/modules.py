"""Modules of torch-neuronx's cache, verbatim: out of a compiler cache dir into a record, and back.

Out: only finished modules, copied while they are hashed, each NEFF checked in the copy, and none that changed while it
was read. Back: built aside from files whose digests fit, `model.done` last, and renamed into place in one step. The
place may be in use by processes that know nothing of cachekit.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from cachekit.compilers.foreign import Unfit
from cachekit.compilers.neuron import facts, nki, place
from cachekit.compilers.neuron.entries import CacheEntry, belongs, classify, read_entry
from cachekit.compilers.neuron.fit import Check, Claimed, claim
from cachekit.compilers.neuron.flags import read_flags
from cachekit.compilers.port import Harvest, Restored
from cachekit.errors import IntegrityError, UntrustedError
from cachekit.files import Opener, digest_of, pieces, written
from cachekit.path_steps import is_mine
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import File, Module
from cachekit.text import cause_of


class Copied(Struct, frozen=True):
    """What was taken from a compiler cache dir."""

    harvest: Harvest | None  # for the record; None where nothing was fit
    left: tuple[Unfit, ...]  # the rest of what was offered
    beside: tuple[Path, ...] = ()  # what lay in the folders of those that were taken, and is none of a module's files


class _UnfitError(Exception):
    """A module that cannot be taken; its text says why."""


# Out of a compiler cache dir


def collect(
    entries: Iterable[CacheEntry],
    workspace: Path | None,
    check: Check,
    seconds: Mapping[str, float] | None = None,
    opener: Opener = os.open,
) -> Copied:
    """Copy finished modules into a workspace, in their order; without one everything is read, and nothing copied.

    Left are those that are unfinished, locked, damaged (as `check` judges their NEFF), changed meanwhile or unreadable.
    `seconds` are compile times by module, where they are known. `opener` opens the files.

    Raises:
        OSError: The workspace cannot be written.
    """
    taken: list[Module] = []
    files: dict[str, Path] = {}
    left: list[Unfit] = []
    beside: list[Path] = []
    folder = Path(tempfile.mkdtemp(prefix="modules-", dir=workspace)) if workspace else None
    for entry in entries:
        try:
            found, fresh = _take(entry, folder, check, files, opener)
        except _UnfitError as error:
            left.append(Unfit(entry.module, entry.path, str(error)))
            continue
        taken.append(Module(entry.module, found, (seconds or {}).get(entry.module)))
        files |= fresh
        beside += strange(entry)
    return Copied(Harvest(tuple(taken), files) if taken else None, tuple(left), tuple(beside))


def unfit(entry: CacheEntry) -> str:
    """Why a module must not be taken, by its state and name; empty where it may be."""
    if facts.COMPILER_DIRECTORY.fullmatch(entry.compiler) is None:
        return f"{entry.compiler} is not the folder of a compiler whose modules can be used"
    if facts.MODULE_DIRECTORY.fullmatch(entry.name) is None:
        return "not a name that Neuron gives a module"
    reasons = {
        "failed": "its compile failed, and Neuron remembers that",
        "locked": "a compile is running, or was killed",
        "empty": "its graph was extracted, and not compiled",
        "done-without-neff": f"{facts.DONE} without {facts.NEFF}",
        "neff-without-done": f"{facts.NEFF} without {facts.DONE}: half-written, perhaps",
    }
    if entry.state != "success":
        return reasons[entry.state]
    return "it is locked although it is finished: a compile is running, or was killed" if entry.locks else ""


def damage(entry: CacheEntry, check: Check) -> str:
    """Why a finished module is not to be used where it lies; empty where it is fit."""
    said = claim(entry.compiler, entry.name, read_flags(entry.path / facts.FLAGS_FILE))
    try:
        return check(entry.path / facts.NEFF, said) or ""
    except OSError as error:
        return f"{facts.NEFF} cannot be read: {cause_of(error)}"


def strange(entry: CacheEntry) -> list[Path]:
    """What lies in a module's folder and is none of its files: it is left there."""
    names = sorted((*entry.names, *entry.odd))
    return [entry.path / name for name in names if not belongs(name) and name != facts.FAILURE_LOG]


def _take(
    entry: CacheEntry, folder: Path | None, check: Check, known: Mapping[str, Path], opener: Opener
) -> tuple[tuple[File, ...], dict[str, Path]]:
    if reason := unfit(entry):
        raise _UnfitError(reason)
    before = _look(entry)
    files: list[File] = []
    fresh: dict[str, Path] = {}
    words: list[str] | None = None
    kernels: dict[str, str] = {}  # the paths of those that the graph names
    names = sorted(before, key=lambda name: (name != facts.FLAGS_FILE, name))
    try:
        for name in names:
            copy = folder / str(len(known) + len(fresh)) if folder else None
            at = kernels.get(name)
            handle = _opened(entry, name, opener) if at is None else _opened_kernel(at, opener)
            with BytesIO() if handle is None else os.fdopen(handle, "rb", buffering=0) as raw:
                sha256, size = _copy_out(raw, name, copy)
            read = copy or Path(at or entry.path / name)
            if name == facts.FLAGS_FILE:
                words = read_flags(read)
            elif name in facts.HLO_FILES:
                kernels |= {nki.carried_as(path): path for path in nki.named(read) if nki.carried_as(path) not in names}
                names += sorted(kernels.keys() - names)
            elif name == facts.NEFF and (problem := check(read, claim(entry.compiler, entry.name, words))):
                raise _UnfitError(f"{name} cannot be used: {problem}")  # noqa: TRY301
            if sha256 not in known and sha256 not in fresh:
                fresh[sha256] = read
            elif copy is not None:
                copy.unlink()
            files.append(File(name if handle is not None else f"{name}{facts.KERNEL_LACKING}", size, sha256))
        if _look(entry) != before:
            raise _UnfitError("it changed while it was read")  # noqa: TRY301
    except BaseException:
        for path in (*fresh.values(), folder / str(len(known) + len(fresh))) if folder else ():
            path.unlink(missing_ok=True)
        raise
    return tuple(sorted(files, key=lambda file: file.path)), fresh


def _look(entry: CacheEntry) -> dict[str, tuple[int, int, int, int]]:
    """A module's own files with what tells whether they change."""
    try:
        names = read_entry(entry.place, entry.compiler, entry.name).names
        if classify(names) != "success" or any(name.endswith(facts.LOCK_SUFFIX) for name in names):
            raise _UnfitError("it changed while it was read")
        states = {name: (entry.path / name).stat() for name in names if belongs(name)}
    except OSError as error:
        raise _UnfitError(f"it changed while it was read: {cause_of(error)}") from error
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in states.items()}


def _copy_out(raw: BinaryIO, name: str, copy: Path | None) -> tuple[str, int]:
    """Hash a file of a module, and copy it."""
    if copy is None:
        return digest_of(_legible(raw, name))
    with copy.open("xb") as target:
        return digest_of(written(_legible(raw, name), target))


def _opened_kernel(path: str, opener: Opener) -> int | None:
    """A kernel that a graph names, open to be read; None where the module must do without it, and says so."""
    if nki.misplaced(path):
        return None
    with suppress(OSError, UntrustedError):
        handle = opener(Path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_size <= facts.KERNEL_LARGEST and is_mine(status):
            return handle
        os.close(handle)
    return None


def _opened(entry: CacheEntry, name: str, opener: Opener) -> int:
    """A module's file, open to be read.

    A link could lead to anything that this user may read, and records are shared. It is followed within the module's
    folder, and out of it only where what is found cannot be a secret: a NEFF, which is checked, or an empty mark.
    """
    try:
        handle = _open(entry, name, opener)
    except OSError as error:
        raise _UnfitError(f"{name} cannot be read: {cause_of(error)}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        reason = "is not a regular file"
    elif name == facts.DONE and status.st_size and (entry.path / name).is_symlink():
        reason = "is a link to something else"
    else:
        return handle
    os.close(handle)
    raise _UnfitError(f"{name} {reason}")


def _open(entry: CacheEntry, name: str, opener: Opener) -> int:
    # Not blocking: what was a file a moment ago may be a pipe now.
    how = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    path = entry.path / name
    try:
        return opener(path, how | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    if name in facts.LINKED_FILES:
        return opener(path, how)
    goal = path.parent / path.readlink()
    if goal.parent.resolve() != path.parent.resolve():
        raise _UnfitError(f"{name} is a link that leads out of its folder")
    return opener(path.parent / goal.name, how | os.O_NOFOLLOW)


def _legible(source: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from pieces(source)
    except OSError as error:
        raise _UnfitError(f"{name} cannot be read: {cause_of(error)}") from error


# Into a compiler cache dir


def check_module(module: Module) -> tuple[str, str]:
    """The compiler's folder and the module's, of a module that may be put into a compiler cache dir.

    Raises:
        UnsafeArchiveError: It is not a module of this compiler's cache, is not whole, or has a file that must not be.
    """
    compiler, separator, name = module.name.partition("/")
    if not separator or facts.COMPILER_DIRECTORY.fullmatch(compiler) is None:
        raise UnsafeArchiveError(f"{module.name!r} does not belong to torch-neuronx's cache")
    if facts.MODULE_DIRECTORY.fullmatch(name) is None or "\n" in module.name:
        raise UnsafeArchiveError(f"{module.name!r} is not a module's name")
    names = [file.path for file in module.files]
    if len(set(names)) < len(names):
        raise UnsafeArchiveError(f"{module.name}: a file is listed twice")
    for path in names:
        if not belongs(path):
            raise UnsafeArchiveError(f"{module.name}: {path!r} is not one of a finished module's files")
    if classify(names) != "success":
        raise UnsafeArchiveError(f"{module.name} is not finished: its files are {', '.join(sorted(names))}")
    return compiler, name


def restore(module: Module, files: Sequence[Path], root: Path, *, check: Check | None = None) -> Restored:
    """Put a module into a compiler cache dir: whole, or not at all.

    A finished one that is there stays, unless `check` finds it damaged; an unfinished one nobody works on is replaced,
    a remembered failure too: there is a result now. What was left by killed restores is removed by `place.sweep`. The
    files, in the order of `module.files`, are copied and never linked.

    Raises:
        UnsafeArchiveError: The module is not what this adapter makes (see `check_module`).
        IntegrityError: The bytes are not those of the module. Nothing was put anywhere.
        OSError: The root cannot be written.
    """
    compiler, name = check_module(module)
    if len(files) != len(module.files):
        raise UnsafeArchiveError(f"{module.name}: the record lists {len(module.files)} files, {len(files)} were given")
    folder = root / compiler
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        return Restored("left", reason=f"{folder} is a link")
    target = folder / name
    found, reason = place.standing(target)
    damaged = ""
    if found == "present" and check is not None:
        entry = read_entry(str(target), compiler, name)
        damaged = "" if entry.locks else damage(entry, check)
    if found == "left" or (found == "present" and not damaged):
        return outcome(found, 0, reason)
    with place.building(folder) as hidden:
        built = hidden / "module"
        size = _build(module, files, built, check)
        found, reason = place.put(built, target, over_finished=bool(damaged))
    return outcome(found, size, damaged if damaged and found == "replaceable" else reason)


def outcome(found: place.Standing, size: int, reason: str) -> Restored:
    """What comes of a module of so many bytes, where this stood at its place."""
    if found == "absent":
        return Restored("restored", size)
    if found == "replaceable":
        return Restored("replaced", size, reason)
    return Restored(found, reason=reason)


def _build(module: Module, files: Sequence[Path], built: Path, check: Check | None) -> int:
    built.mkdir()
    size = 0

    def said() -> Claimed:
        compiler, _, name = module.name.partition("/")
        return claim(compiler, name, read_flags(built / facts.FLAGS_FILE))

    # The flags before the NEFF, which is judged by them; the mark that it is whole last.
    order = {facts.FLAGS_FILE: 0, facts.DONE: 2}
    pairs = sorted(zip(module.files, files, strict=True), key=lambda pair: (order.get(pair[0].path, 1), pair[0].path))
    for file, source in pairs:
        target = built / file.path
        with source.open("rb", buffering=0) as raw, target.open("xb") as out:
            sha256, count = digest_of(written(pieces(raw, file.size + 1), out))
        if (sha256, count) != (file.sha256, file.size):
            raise IntegrityError(
                f"{file.path} of {module.name} is not what its record says", cause="its size or its digest differs"
            )
        if file.path == facts.NEFF and check is not None and (reason := check(target, said())):
            raise IntegrityError(f"the NEFF of {module.name} cannot be used here", cause=reason)
        size += count
    return size
