"""What a log tells of a run that cachekit did not start: what it found, compiled and failed on, and the time lost."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import structs

from cachekit import files
from cachekit.compilers import registry
from cachekit.compilers.graphs import Logged
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.text import cause_of
from cachekit.values import Answer

SAVE = "save all that a run prints: COMMAND 2>&1 | tee run.log"
PIECE = 1 << 20
# How files begin in which a log stands, but not as lines of text; and what makes a log of them.
PACKED = {
    b"\x1f\x8b": "gunzip -c",
    b"BZh": "bunzip2 -c",
    b"\xfd7zXZ\x00": "xz -dc",
    b"\x28\xb5\x2f\xfd": "zstd -dc",
    b"PK\x03\x04": "unzip -p",
}
TAR = (".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")  # of these, what unpacking gives is a tar
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class LogWhy(Logged, Answer, frozen=True, kw_only=True):
    """What a log tells; see `Logged`.

    Attributes:
        file: The log.
        compiler: Whose words it has.
    """

    file: str
    compiler: str


def why_log(path: Path, journal: Journal) -> LogWhy:
    """Read a log, by whichever compiler's words are in it; `-` is stdin, to its end.

    Raises:
        UsageError: It cannot be read, is not a regular file or not one of text, or no compiler knows its words.
    """
    if str(path) != "-":
        return _read(path, path, journal)
    with tempfile.NamedTemporaryFile(prefix="cachekit-log-") as kept:  # each compiler's reader begins anew
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        return _read(Path(kept.name), Path("stdin"), journal)


def _read(file: Path, path: Path, journal: Journal) -> LogWhy:
    """Read a log in a file, which is called otherwise."""
    try:
        with files.opened(file, buffering=0) as source:
            _check_text(path, source.read(max(map(len, PACKED))))
        for adapter in registry.every():
            with files.opened(file, buffering=0) as source:
                size = os.fstat(source.fileno()).st_size
                log = io.BufferedReader(_Watched(source, partial(journal.show, "log.reading", of=size)), PIECE)
                if (told := adapter.read_log(log)) is not None:
                    return LogWhy(**structs.asdict(told), file=str(path), compiler=adapter.name)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=cause_of(error),
            hint=SAVE,
        ) from error
    raise UsageError(
        f"{path} says nothing about a compile",
        cause="no line is one of a compiler's, or of its cache's, that cachekit reads",
        hint=f"{SAVE}; or give the compiler's own log",
    )


def _check_text(path: Path, begin: bytes) -> None:
    for magic, unpack in PACKED.items():
        if begin.startswith(magic):
            raise UsageError(
                f"{path} cannot be read as a log",
                cause="it is compressed",
                hint=f"unpack it first: tar xf {shlex.quote(str(path))}, and give the log that was in it"
                if path.name.lower().endswith(TAR)
                else f"unpack it first: {unpack} {shlex.quote(str(path))} > run.log",
            )
    zeros = [byte == 0 for byte in begin[:4]]
    order = "LE" if zeros == [False, True] * 2 else "BE" if zeros == [True, False] * 2 else ""  # without a mark of it
    if order or begin.startswith(UTF_16):
        raise UsageError(
            f"{path} cannot be read as a log",
            cause="it is text in UTF-16, as PowerShell writes it",
            hint=f"make UTF-8 of it first: iconv -f UTF-16{order} -t UTF-8 {shlex.quote(str(path))} > run.log",
        )


class _Watched(io.RawIOBase):
    """A file that tells how far it has been read."""

    def __init__(self, source: BinaryIO, tell: Callable[..., None]) -> None:
        self._source, self._tell = source, tell

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        return self._source.seek(place, whence)

    def readinto(self, space: Any) -> int:
        piece = self._source.read(len(space))
        space[: len(piece)] = piece
        self._tell(done=self._source.tell())
        return len(piece)
