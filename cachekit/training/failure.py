"""Why a worker failed, in words: from the exception that it met, or from what it left behind when it died."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cachekit.disk import existing
from cachekit.errors import INSTALL, CachekitError, CompileError, CompilerUnavailableError, TrainingError, chain_of
from cachekit.text import cut

LONGEST = 300  # characters of other programs' words that an error shows
FULL = 1 << 20  # bytes; a disk with less than that left is full, whatever could not be written to it
_SPACE_HINT = (
    "free some space there, or name other disks: --output-dir, CACHEKIT_COMPILER_CACHE_DIR, CACHEKIT_HOME, TMPDIR"
)

# Rust's words for the two error numbers, and the C library's: libraries rarely pass an OSError on.
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|\(os error (28|122)\)")
# How a traceback ends, how compilers, loaders and the C library's own checks complain.
_ERROR_LINE = re.compile(
    r"^[\w.]*(Error|Exception|Exit|Interrupt)\b(:|$)|\b(fatal )?error: |^terminate called|: cannot "
)
# What a C++ compiler says around its messages, and other people's warnings: never why a worker died.
_NOISE = re.compile(
    r"\bwarning\b|\bnote: |^\s*\d*\s*\||^[\s~^|]+$|^In file included|^\s+from |: (In|At) |required from|^\s",
    re.IGNORECASE,
)


def full_disk(folders: Iterable[Path]) -> Path | None:
    """The first of these folders whose disk has no room left: bytes or files; None where all have."""
    for folder in folders:
        with suppress(OSError, ValueError):
            found = os.statvfs(existing(folder))
            if found.f_bavail * found.f_frsize < FULL or (found.f_files and not found.f_favail):
                return folder
    return None


def of_exception(
    error: BaseException, phase: str, folders: Iterable[Path], compiler_said: str | None = None
) -> CachekitError:
    """Name an exception as one of our errors.

    Args:
        error: The exception.
        phase: Of the run in which it was raised.
        folders: Into which that run writes.
        compiler_said: See `Runtime.failure`.
    """
    chain = chain_of(error)
    texts = [str(one) for one in chain]
    lines = [line.strip() for line in texts[0].splitlines() if line.strip()]
    said = next((line for line in lines if not line.endswith(":")), "")  # "backend='inductor' raised:" says nothing
    cause = cut(f"{type(error).__name__}: {said}", 500)
    names = {cls.__module__.partition(".")[0] + "." + cls.__name__ for one in chain for cls in type(one).__mro__}
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or str(error)).partition(".")[0]
        return CompilerUnavailableError(f"{name} is not installed", cause=cause, hint=INSTALL)
    if any(map(_says_full, chain)) or full_disk(folders) is not None:
        words = next((match[0] for text in texts if (match := _NO_SPACE.search(text))), said)
        return _disk(full_disk(folders), f"in: {phase}; {words}")
    no_memory = {"builtins.MemoryError", "torch.OutOfMemoryError"} & names
    if no_memory or any("can't allocate memory" in text for text in texts):
        hint = "lower the batch size or training.max_seq_length"
        return TrainingError("out of memory", cause=cause, hint=hint)
    if compiler_said is not None:
        return CompileError(f"the compiler failed in: {phase}", cause=cut(compiler_said, 500) or cause)
    return TrainingError(f"training failed in: {phase}", cause=cause)


def of_death(code: int, log: Path, printed: int, folders: Iterable[Path]) -> CachekitError:
    """Why a worker ended that left no result.

    Args:
        code: Its exit code; negative for a signal.
        log: What it printed, after `printed` bytes of other runs.
        printed: Their number.
        folders: Where it wrote.
    """
    place = full_disk([*folders, log.parent])
    if place is not None:
        return _disk(place, "it killed the worker")
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = f"see {log}"
    if code == -signal.SIGKILL:
        hint = f"most often the system ran out of memory: lower the batch size or the length; see {log}"
    # A signal comes from outside: whatever was printed last has nothing to do with it.
    cause = "" if code < 0 else _last_words(log, printed)
    return TrainingError(f"the training worker died ({how})", cause=cause, hint=hint)


def _disk(place: Path | None, words: str) -> TrainingError:
    where = f": nothing more fits into {place}" if place else ""
    return TrainingError(f"the disk is full{where}", cause=cut(words, 500), hint=_SPACE_HINT)


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return True
    return _NO_SPACE.search(str(error)) is not None


def _last_words(log: Path, printed: int) -> str:
    """The last line of this run that says what went wrong; else the last that is not about something else."""
    try:
        with log.open("rb") as stream:
            stream.seek(printed)
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    lines = [line.rstrip() for line in lines if line.strip() and not _NOISE.search(line)]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    return cut(next(iter([*errors[-1:], *lines[-1:]]), ""), LONGEST)
