"""Text from a file in an encoding that a recipe names, with errors that name the line."""

from __future__ import annotations

import codecs
import io
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from cachekit import files
from cachekit.errors import DataError

_BLOCK = 1 << 20  # characters
_LINES = 1 << 16  # characters of lines that are read at once


def lines(path: Path, encoding: str, newline: str | None = "") -> Iterator[str]:
    """The lines of a text file, read as they are taken where it is UTF-8; `newline` is as in `open`.

    Raises:
        DataError: It cannot be read, or is not of this encoding.
    """
    return chain.from_iterable(_some_lines(path, encoding, newline))


def _some_lines(path: Path, encoding: str, newline: str | None) -> Iterator[list[str]]:
    if not _is_utf_8(encoding):
        yield list(io.StringIO(whole(path, encoding), newline=newline))
        return
    try:
        with files.opened(path) as source, io.TextIOWrapper(source, "utf-8-sig", newline=newline) as text:
            while some := text.readlines(_LINES):
                yield some
    except (OSError, ValueError):
        whole(path, encoding)  # which tells what is wrong, and where
        raise


def blocks(path: Path, encoding: str) -> Iterator[str]:
    """A text file in pieces of whole lines, about a million characters each: in a third of the time that `lines` takes.

    Only a newline ends a line.

    Raises:
        DataError: As `lines`.
    """
    if not _is_utf_8(encoding):
        yield whole(path, encoding)
        return
    try:
        with files.opened(path) as source, io.TextIOWrapper(source, "utf-8-sig", newline="\n") as text:
            while block := text.read(_BLOCK):
                yield block + text.readline()
    except (OSError, ValueError):
        whole(path, encoding)  # which tells what is wrong, and where
        raise


def _is_utf_8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name in {"utf-8", "utf-8-sig"}
    except (LookupError, ValueError):
        return False


def check(path: Path, encoding: str) -> None:
    """Refuse a file that is text in its first lines only.

    Raises:
        DataError: As `lines`.
    """
    deque(blocks(path, encoding), maxlen=0)


def whole(path: Path, encoding: str) -> str:
    """All of a text file.

    Raises:
        DataError: See `lines`.
    """
    try:
        raw = files.read(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint="check data.path, or data.train_file and its like") from error
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", "") or str(error)
        raise DataError(f"{str(path)[:200]} cannot be read", cause=cause, hint="write the rows to a file") from error
    try:
        if _is_utf_8(encoding):
            raw = raw.removeprefix(codecs.BOM_UTF8)
            return raw.decode("utf-8")
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: not {encoding}",
            cause=f"byte 0x{raw[error.start]:02x} cannot be there",
            hint=f"convert the file to {encoding}, or give its encoding: data.encoding=latin-1",
        ) from error
    except (LookupError, ValueError) as error:
        hint = "utf-8, latin-1, cp1252, ..."
        raise DataError(
            f"data.encoding: there is no encoding named {encoding!r}", cause=str(error), hint=hint
        ) from error
