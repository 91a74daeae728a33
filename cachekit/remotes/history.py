"""What the history of a remote says of the records that came since its index was renewed: a change names its rows."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from cachekit.decode import from_json
from cachekit.key.canonical import key_of
from cachekit.remotes.index import Known, RemoteIndex
from cachekit.remotes.port import PastCommit
from cachekit.store.record import names_folder

WHOLE = "The index of all records is renewed."  # the message of the change that an index is written with
_ROWS = "Rows of the index: "
LARGEST_ROW = 8 << 10  # characters of a message
# Titles of changes that change no record.
_BESIDE = re.compile(r"cachekit: (?:[a-z ]+ the lease of [0-9a-f]{16}|a lease) \[[0-9a-f]+\]")


def after(known: RemoteIndex, changes: Iterable[PastCommit]) -> RemoteIndex | None:
    """An index with what the changes after it say; None where it, or what they say, lacks records.

    Args:
        known: The index.
        changes: The last ones of the remote, newest first.
    """
    told = None if known.unread or not known.change else later(changes, known.change)
    return None if told is None else known.with_(told)


def message(known: Sequence[Known]) -> str:
    """What a change says of the records that it writes, for the history; empty where that is too much."""
    rows = base64.b64encode(zlib.compress(msgspec.json.encode(known), 9)).decode()
    return _ROWS + rows if len(rows) <= LARGEST_ROW else ""


def later(changes: Iterable[PastCommit], mark: str = "") -> list[Known] | None:
    """What the changes after the one that an index was written with say of their records, the oldest first.

    Args:
        changes: The last ones of the remote, newest first. Anybody may have written them.
        mark: Of that index; of any that has all records where it is not given.

    Returns:
        None where one of them says nothing, or that change is not among them.
    """
    told: list[Known] = []
    for change in changes:
        if change.title.endswith(f"[{mark}]") if mark else change.message == WHOLE:
            return told
        if not _BESIDE.fullmatch(change.title):
            rows = _read_message(change.message)
            if rows is None:
                return None
            told = rows + told
    return None


def _read_message(text: str) -> list[Known] | None:
    if not text.startswith(_ROWS) or len(text) > len(_ROWS) + LARGEST_ROW:
        return None
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(base64.b64decode(text.removeprefix(_ROWS), validate=True), LARGEST_ROW * 16)
        rows = from_json(raw, list[Known])
        fits = all(
            key_of(one.hard) == one.key and names_folder(one.directory) and names_folder(one.model_type) for one in rows
        )
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError, zlib.error):
        return None
    return rows if fits and unpacking.eof else None
