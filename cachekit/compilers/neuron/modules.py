"""Modules of torch-neuronx's cache, verbatim: out of a live root into a record, and back.

Out: only finished modules, copied while they are hashed, each NEFF checked in the copy, and none that changed while it
was read. Back: built aside from files whose digests fit, `model.done` last, and renamed into place in one step. The
place may be in use by processes that know nothing of cachekit.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from cachekit.archive import UnsafeArchiveError
from cachekit.compilers.neuron import facts, place
from cachekit.compilers.neuron.entries import Entry, classify, read_entry
from cachekit.compilers.port import Harvest
from cachekit.errors import IntegrityError
from cachekit.record import File, Module

CHUNK = 1 << 20
Check = Callable[[Path], "str | None"]
"""Why a NEFF is damaged; None where it is whole."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A module that was not taken, and why."""

    module: str
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """What was taken from a live root.

    Attributes:
        harvest: For the record; None where nothing was fit.
        skipped: The rest of what was offered.
    """

    harvest: Harvest | None
    skipped: tuple[Skipped, ...]


class _UnfitError(Exception):
    """A module that cannot be taken; its text says why."""


# Out of a live root


def collect(
    entries: Iterable[Entry], workspace: Path, check: Check, seconds: Mapping[str, float] | None = None
) -> Collected:
    """Copy finished modules into a workspace.

    Args:
        entries: What to take; of two with one name, the first that is fit.
        workspace: A private folder; the copies go into a new one inside it.
        check: Judges each NEFF.
        seconds: Compile times by module name, where they are known.

    Returns:
        The modules sorted by name, and what was not taken: unfinished, locked, damaged, changed meanwhile, unreadable.

    Raises:
        OSError: The workspace cannot be written.
    """
    modules: dict[str, Module] = {}
    files: dict[str, Path] = {}
    skipped: list[Skipped] = []
    folder = Path(tempfile.mkdtemp(prefix="modules-", dir=workspace))
    for entry in entries:
        try:
            if entry.module in modules:
                raise _UnfitError("another of the same name was taken")  # noqa: TRY301
            found, fresh = _take(entry, folder, check, files)
        except _UnfitError as error:
            skipped.append(Skipped(entry.module, entry.path, str(error)))
            continue
        modules[entry.module] = Module(entry.module, found, (seconds or {}).get(entry.module))
        files |= fresh
    taken = tuple(module for _, module in sorted(modules.items()))
    return Collected(Harvest(taken, files) if taken else None, tuple(skipped))


def unfit(entry: Entry) -> str:
    """Why a module must not be taken, by its state and name; empty where it may be."""
    if facts.COMPILER_DIRECTORY.fullmatch(entry.compiler) is None:
        return f"{entry.compiler} is no folder of a compiler whose modules can be used"
    if facts.MODULE_DIRECTORY.fullmatch(entry.name) is None:
        return "no name that a module is known to have"
    reasons = {
        "failed": "its compile failed, and Neuron remembers that",
        "locked": "a compile is at work, or was killed",
        "empty": "its graph was extracted, and not compiled",
        "done-without-neff": f"{facts.DONE} without {facts.NEFF}",
        "neff-without-done": f"{facts.NEFF} without {facts.DONE}: half-written, perhaps",
    }
    if entry.state != "success":
        return reasons[entry.state]
    return "it is locked although it is finished: a compile is at work, or was killed" if entry.locks else ""


def damage(entry: Entry, check: Check) -> str:
    """Why a finished module is not to be trusted where it lies; empty where it is whole."""
    try:
        return check(entry.path / facts.NEFF) or ""
    except OSError as error:
        return f"{facts.NEFF} cannot be read: {error.strerror}"


def _kept(name: str) -> bool:
    return not (name.startswith(".") or name.endswith(facts.LOCK_SUFFIX) or name == facts.FAILURE_LOG)


def _take(
    entry: Entry, folder: Path, check: Check, known: Mapping[str, Path]
) -> tuple[tuple[File, ...], dict[str, Path]]:
    if reason := unfit(entry):
        raise _UnfitError(reason)
    before = _look(entry)
    names = [name for name in before if _kept(name)]
    if reason := next((reason for name in names if (reason := _unsafe(name))), ""):
        raise _UnfitError(reason)
    files: list[File] = []
    fresh: dict[str, Path] = {}
    try:
        for name in names:
            copy = folder / str(len(known) + len(fresh))
            sha256, size = _copy_out(entry.path / name, copy)
            if name == facts.NEFF and (problem := check(copy)):
                raise _UnfitError(f"{name} is damaged: {problem}")  # noqa: TRY301
            if sha256 in known or sha256 in fresh:
                copy.unlink()
            else:
                fresh[sha256] = copy
            files.append(File(name, size, sha256))
        if _look(entry) != before:
            raise _UnfitError("it changed while it was read")  # noqa: TRY301
    except BaseException:
        for path in (*fresh.values(), folder / str(len(known) + len(fresh))):
            path.unlink(missing_ok=True)
        raise
    return tuple(files), fresh


def _look(entry: Entry) -> dict[str, tuple[int, int, int, int]]:
    """The files of a module with what tells whether they change."""
    try:
        names = read_entry(entry.place, entry.compiler, entry.name).names
        if classify(names) != "success" or any(name.endswith(facts.LOCK_SUFFIX) for name in names):
            raise _UnfitError("it changed while it was read")
        states = {name: (entry.path / name).stat() for name in names}
    except OSError as error:
        raise _UnfitError(f"it changed while it was read: {error.strerror}") from error
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in states.items()}


def _copy_out(source: Path, copy: Path) -> tuple[str, int]:
    """Copy a file of a live root; links are followed to regular files only."""
    try:
        # Not blocking: what was a file a moment ago may be a pipe now.
        handle = os.open(source, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _UnfitError(f"{source.name} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb", buffering=0) as raw:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _UnfitError(f"{source.name} is no regular file")
        with copy.open("xb") as target:
            return _pour(raw, target, source.name)


def _pour(source: BinaryIO, target: BinaryIO, name: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while True:
        try:
            block = source.read(CHUNK)
        except OSError as error:
            raise _UnfitError(f"{name} cannot be read: {error.strerror}") from error
        if not block:
            return digest.hexdigest(), size
        digest.update(block)
        size += len(block)
        target.write(block)


# Into a live root

Outcome = Literal["restored", "replaced", "present", "left"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a module that was to be put into a live root.

    Attributes:
        outcome: `restored` to an empty place, `replaced` an unfinished or damaged one, `present` already, or `left`
            because what stands there must not be touched.
        size: Bytes written.
        reason: What was replaced, or why it was left.
    """

    outcome: Outcome
    size: int = 0
    reason: str = ""


def check_module(module: Module) -> tuple[str, str]:
    """The compiler's folder and the module's, of a module that may be put into a live root.

    Raises:
        UnsafeArchiveError: It is no module of this compiler's cache, is not whole, or has a file that must not be.
    """
    compiler, separator, name = module.name.partition("/")
    if not separator or facts.COMPILER_DIRECTORY.fullmatch(compiler) is None:
        raise UnsafeArchiveError(f"{module.name!r} is not of torch-neuronx's cache")
    if facts.MODULE_DIRECTORY.fullmatch(name) is None or "\n" in module.name:
        raise UnsafeArchiveError(f"{module.name!r} is no module's name")
    names = [file.path for file in module.files]
    if len(set(names)) < len(names):
        raise UnsafeArchiveError(f"{module.name}: a file stands twice")
    for path in names:
        if reason := _unsafe(path) or ("" if _kept(path) else f"{path!r} is of an unfinished module"):
            raise UnsafeArchiveError(f"{module.name}: {reason}")
    if classify(names) != "success":
        raise UnsafeArchiveError(f"{module.name} is not finished: its files are {', '.join(sorted(names))}")
    return compiler, name


def _unsafe(name: str) -> str:
    longest = 255
    if "/" in name or "\\" in name or name in {"", ".", ".."} or len(os.fsencode(name)) > longest:
        return f"{name!r} is no plain file name"
    return "" if name.isprintable() else f"{name!r} is no printable name"


def restore(module: Module, files: Sequence[Path], root: Path, *, check: Check | None = None) -> Restored:
    """Put a module into a live root: whole, or not at all.

    A finished one that is there stays; an unfinished one nobody works on is replaced, a remembered failure too: there
    is a result now. What was left by killed restores is removed by `place.sweep`.

    Args:
        module: The module.
        files: Its files' bytes, in the order of `module.files`; copied, never linked.
        root: The live root; made if need be.
        check: Judges the NEFF, and also that of a finished module which is there: a damaged one is replaced.

    Raises:
        UnsafeArchiveError: The module is not what this adapter makes (see `check_module`).
        IntegrityError: The bytes are not those of the module. Nothing was put anywhere.
        OSError: The root cannot be written.
    """
    compiler, name = check_module(module)
    if len(files) != len(module.files):
        raise UnsafeArchiveError(f"{module.name}: {len(files)} files for {len(module.files)}")
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
        return Restored("left" if found == "left" else "present", reason=reason)
    with place.building(folder) as hidden:
        built = hidden / "module"
        size = _build(module, files, built, check)
        found, reason = place.put(built, target, over_finished=bool(damaged))
    if found == "absent":
        return Restored("restored", size)
    if found == "replaceable" or (found == "present" and damaged):
        return Restored("replaced", size, damaged or reason)
    return Restored("left" if found == "left" else "present", reason=reason)


def _build(module: Module, files: Sequence[Path], built: Path, check: Check | None) -> int:
    built.mkdir()
    size = 0
    pairs = sorted(zip(module.files, files, strict=True), key=lambda pair: (pair[0].path == facts.DONE, pair[0].path))
    for file, source in pairs:
        target = built / file.path
        with source.open("rb", buffering=0) as raw, target.open("xb") as out:
            sha256, count = _pour_checked(raw, out, file.size)
        if (sha256, count) != (file.sha256, file.size):
            raise IntegrityError(
                f"{file.path} of {module.name} is not what its record says", cause="digest or size do not fit"
            )
        if file.path == facts.NEFF and check is not None and (reason := check(target)):
            raise IntegrityError(f"the NEFF of {module.name} is damaged", cause=reason)
        size += count
    return size


def _pour_checked(source: BinaryIO, target: BinaryIO, size: int) -> tuple[str, int]:
    """Copy and hash, and stop where there is more than there should be."""
    digest, count = hashlib.sha256(), 0
    while count <= size and (block := source.read(CHUNK)):
        digest.update(block)
        count += len(block)
        target.write(block)
    return digest.hexdigest(), count
