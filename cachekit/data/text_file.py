"""Text from a file in an encoding that a recipe names, with errors that name the line."""

from __future__ import annotations

import codecs
import io
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TextIO, TypeVar

from cachekit import files
from cachekit.errors import DataError
from cachekit.text import cut

_Piece = TypeVar("_Piece", str, list[str])
_BLOCK = 1 << 18  # characters: what is made of a block stays in the processor's cache
_UTF_16 = ("it begins as UTF-16 does", "give its encoding: data.encoding=utf-16")
# What files begin with that are no text in an encoding of bytes, and what to say then.
_OTHER_FORMS = {
    codecs.BOM_UTF16_LE: _UTF_16,
    codecs.BOM_UTF16_BE: _UTF_16,
    b"\x1f\x8b": ("it is compressed, by gzip", "unpack it: gunzip"),
    b"PK\x03\x04": ("it is a zip archive, as .xlsx files are", "save the table as csv, or unpack the archive"),
}
_LINES = 1 << 16  # characters of lines that are read at once


def lines(path: Path, encoding: str, newline: str | None = "") -> Iterator[str]:
    """The lines of a text file, read as they are taken where it is UTF-8; `newline` is as in `open`.

    Raises:
        DataError: It cannot be read, or is not of this encoding.
    """
    return chain.from_iterable(_pieces(path, encoding, newline, lambda text: text.readlines(_LINES)))


def blocks(path: Path, encoding: str) -> Iterator[str]:
    """A text file in pieces of whole lines, some 100,000 characters each: in a third of the time that `lines` takes.

    Only a newline ends a line.

    Raises:
        DataError: As `lines`.
    """
    return _pieces(path, encoding, "\n", lambda text: text.read(_BLOCK) + text.readline())


def _pieces(path: Path, encoding: str, newline: str | None, read: Callable[[TextIO], _Piece]) -> Iterator[_Piece]:
    """What `read` takes from a file until nothing is left. The file is closed before the last piece is given."""
    if not _is_utf_8(encoding):
        text = io.StringIO(whole(path, encoding), newline=newline)
        while piece := read(text):
            yield piece
        return
    try:
        with files.opened(path) as source, io.TextIOWrapper(source, "utf-8-sig", newline=newline) as opened:
            piece = read(opened)
            while more := read(opened):
                yield piece
                piece = more
    except (OSError, ValueError):
        whole(path, encoding)  # which tells what is wrong, and where
        raise
    yield piece


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
        raise DataError(
            f"{cut(str(path), 200)} cannot be read", cause=cause, hint="write the rows to a file"
        ) from error
    try:
        if _is_utf_8(encoding):
            raw = raw.removeprefix(codecs.BOM_UTF8)
            return raw.decode("utf-8")
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        cause = f"byte 0x{raw[error.start]:02x} cannot be there"
        hint = f"convert the file to {encoding}, or give its encoding: data.encoding=latin-1"
        cause, hint = next((said for start, said in _OTHER_FORMS.items() if raw.startswith(start)), (cause, hint))
        raise DataError(f"{path}, line {line}: not {encoding}", cause=cause, hint=hint) from error
    except (LookupError, ValueError) as error:
        hint = "utf-8, latin-1, cp1252, ..."
        raise DataError(
            f"data.encoding: there is no encoding named {encoding!r}", cause=str(error), hint=hint
        ) from error
