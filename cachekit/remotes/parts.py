"""A long record on a remote: its document names the parts that have its modules, so that one more is a small change.

    {"record": {"schema": 3, "record": {all but modules}, "whole": "<sha256>", "parts": ["<sha256>", …], "tail": "…"},
     "sha256": "…"}
    cachekit/v1/blobs/ab/<sha256>  base64 of zlib of {"modules": […], "inline": {…}}: of some modules, in their order

A record grows at its end: the tail has the last modules as a part would, until they make up one. So a push that
adds a module writes the document alone, and parts that lie there are neither sent nor, where they are here, read. They
stay as they were read: another zlib makes other bytes of the same modules, and another edition other parts. The record,
its digest and its signatures are what they are in one document. A cachekit that knows no parts, or no tail, finds a
record of a later schema, which is a miss.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from cachekit.decode import from_builtins
from cachekit.errors import IntegrityError
from cachekit.remotes import layout
from cachekit.remotes.budget import each
from cachekit.remotes.notes import Copies
from cachekit.remotes.port import Storage
from cachekit.store.record import (
    LARGEST,
    MOST_VALUES,
    DamagedRecordError,
    Digest,
    Module,
    misfit,
    parse,
    sealed,
    serialise,
    unsealed,
    values_of,
)

SCHEMA, SCHEMA_OF_TAIL = 2, 3  # the store's records, and short ones, have 1
MODULES = 256  # of a part at most; a record of no more lies in one document
WEIGHT = 48 << 10  # bytes of a part, about, of which a push of one module sends as many with the tail at most
_FILE = 80  # bytes of what a part says of a file, about
LANES = 8  # parts that are read at once
# Anybody may have written them. Many times what a record has.
_MOST = 4096  # parts
_LARGEST = 16 << 20  # bytes of one as it lies there

Fetch = Callable[[str], bytes]  # the bytes of the part of this digest


class _Head(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    record: dict[str, Any]
    whole: Digest
    parts: Annotated[tuple[Digest, ...], Meta(min_length=1, max_length=_MOST)]
    tail: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/=\n]*\Z")] = ""


class PackedPart(Struct, frozen=True):
    """Some modules of a record, as somebody has packed them.

    Attributes:
        raw: The bytes, as they lie on a remote.
        modules: How many there are.
        inside: Digests of the tiny files in it.
        is_tail: It is the last one, and lies in the record's document.
    """

    raw: bytes
    modules: int
    inside: frozenset[str]
    is_tail: bool


class Cut(Struct, frozen=True):
    """How somebody has divided a record.

    Attributes:
        modules: Of the record.
        parts: In their order.
    """

    modules: tuple[Module, ...] = ()
    parts: tuple[PackedPart, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """Where the parts lie."""
        apart = (part.raw for part in self.parts if not part.is_tail)
        return frozenset(layout.blob_path(hashlib.sha256(raw).hexdigest()) for raw in apart)


def divided(document: Mapping[str, Any], modules: tuple[Module, ...], cut: Cut) -> tuple[bytes, dict[str, bytes]]:
    """The document of a record as it lies on a remote, and its parts by their digests: none of a short one.

    Args:
        document: The record's, in one; see `document`.
        modules: Its modules.
        cut: How the record is divided that this one began as. Of the same record, all parts stay. Else the first ones
            do, as far as they say the same still, and have as much as one that is made here.
    """
    rest, inline = document["record"]["modules"], document.get("inline", {})
    if len(rest) <= MODULES:
        return serialise(document), {}
    raws, at, tail = list[bytes](), 0, ""
    same = modules == cut.modules
    for part in cut.parts:
        group, end = modules[at : at + part.modules], at + part.modules
        inside = {file.sha256 for module in group for file in module.files} & inline.keys()
        if group != cut.modules[at:end] or inside != part.inside:
            break
        weight = sum(_weight(module, inline) for module in rest[at:end])
        if not same and (part.is_tail or not _is_full(len(group), weight)):
            break
        at = end
        if part.is_tail:
            tail = part.raw.decode()
        else:
            raws.append(part.raw)
    *groups, last = _grouped(rest[at:], inline)
    raws += [_packed(group, inline) for group in groups]
    tail = tail or (_packed(last, inline).decode() if last else "")
    parts = {hashlib.sha256(raw).hexdigest(): raw for raw in raws}
    record = {name: value for name, value in document["record"].items() if name != "modules"}
    head = {"schema": SCHEMA, "record": record, "whole": document["sha256"], "parts": list(parts)}
    if tail:
        head |= {"schema": SCHEMA_OF_TAIL, "tail": tail}
    others = {name: value for name, value in document.items() if name == "places"}
    return serialise(sealed("record", head) | others), parts


def _grouped(modules: Sequence[Any], inline: Mapping[str, str]) -> list[list[Any]]:
    """The modules of each part, and last those that make up none yet: however the record goes on, these groups stay."""
    groups, weight = [list[Any]()], 0
    for module in modules:
        groups[-1].append(module)
        weight += _weight(module, inline)
        if _is_full(len(groups[-1]), weight):
            groups.append([])
            weight = 0
    return groups


def _is_full(modules: int, weight: int) -> bool:
    return modules >= MODULES or weight >= WEIGHT


def _weight(module: Mapping[str, Any], inline: Mapping[str, str]) -> int:
    return sum(_FILE + len(inline.get(file["sha256"], "")) for file in module["files"])


def _packed(modules: Sequence[Any], inline: Mapping[str, Any]) -> bytes:
    digests = {file["sha256"] for module in modules for file in module["files"]}
    inside = {sha256: text for sha256, text in inline.items() if sha256 in digests}
    packed = zlib.compress(serialise({"modules": modules, "inline": inside}), 9)
    return base64.b64encode(packed) + b"\n"  # text, so that git itself can hold it


def joined(document: dict[str, Any], fetch: Fetch) -> tuple[dict[str, Any], tuple[PackedPart, ...]]:
    """The record's document in one, out of what `parse` read, and its parts: of a short record, as it is.

    Raises:
        DamagedRecordError: It, or a part of it, is not what `divided` makes.
        RemoteError, AuthError: The remote cannot be asked for a part.
    """
    body = document.get("record")
    if not isinstance(body, dict) or body.get("schema") not in {SCHEMA, SCHEMA_OF_TAIL} or "parts" not in body:
        return document, ()
    others = {name: value for name, value in document.items() if name == "places"}
    try:
        unsealed("record", {name: value for name, value in document.items() if name not in others})
        head = from_builtins(body, _Head)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise DamagedRecordError(f"not a record: {misfit(error)}") from error
    left, values = LARGEST, MOST_VALUES
    modules: list[Any] = []
    inline: dict[str, Any] = {}
    read: list[PackedPart] = []
    calls = [partial(fetch, name) for name in head.parts] + [head.tail.encode] * bool(head.tail)
    for at in range(0, len(calls), LANES):  # never more in memory: what is too much is seen before the rest comes
        for raw in each(calls[at : at + LANES], LANES):
            packed = _unpacked(raw, left)
            part = parse(packed, values)
            left, values = left - len(packed), values - values_of(packed)
            if not isinstance(part.get("modules"), list) or not isinstance(part.get("inline"), dict):
                raise DamagedRecordError("a part of the record has no modules")
            if len(part) > 2:  # noqa: PLR2004 - these two; a part stays as it is, and its values are counted
                raise DamagedRecordError("a part of the record has more than modules")
            modules += part["modules"]
            inline |= part["inline"]
            read.append(PackedPart(raw, len(part["modules"]), frozenset(part["inline"]), len(read) == len(head.parts)))
    whole = {"record": {**head.record, "modules": modules}, "sha256": head.whole, "inline": inline, **others}
    return whole, tuple(read)


def fetching(storage: Storage, revision: str, known: Mapping[str, bytes] | None = None) -> Fetch:
    """What brings parts from a remote, but those that are known.

    Raises:
        DamagedRecordError: One is not there, or has other bytes.
        RemoteError, AuthError: The remote cannot be asked.
    """
    kept = copied(storage.copies, known or {})

    def fetch(name: str) -> bytes:
        with suppress(DamagedRecordError):
            return kept(name)
        try:
            found = storage.read(layout.blob_path(name), revision, _LARGEST)
        except IntegrityError as error:  # a body without end, say
            raise DamagedRecordError(f"a part of it: {error.cause or error.message}") from error
        if found is None:
            raise DamagedRecordError("one of its parts is missing")
        if hashlib.sha256(found.data).hexdigest() != name:
            raise DamagedRecordError("one of its parts is damaged")
        storage.copies.keep(layout.blob_path(name), found.data)
        return found.data

    return fetch


def copied(copies: Copies, known: Mapping[str, bytes]) -> Fetch:
    """What brings parts that are known, or that this store read or wrote before: asks no remote.

    Raises:
        DamagedRecordError: One is not here.
    """

    def fetch(name: str) -> bytes:
        raw = known.get(name) or copies.get(layout.blob_path(name)) or b""
        if hashlib.sha256(raw).hexdigest() != name:
            raise DamagedRecordError("one of its parts is missing")
        return raw

    return fetch


def _unpacked(raw: bytes, limit: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(base64.b64decode(raw, validate=False), limit + 1)
    except (ValueError, zlib.error) as error:
        raise DamagedRecordError(f"a part of the record cannot be decoded: {error}") from error
    if len(unpacked) > limit or not unpacking.eof or unpacking.unused_data:
        raise DamagedRecordError("a part of the record is cut off, or too large")
    return unpacked
