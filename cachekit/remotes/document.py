"""A record as it lies on a remote: with its tiny files inside, and what lies elsewhere; and the union of two of them.

    {"record": {...}, "sha256": "…", "inline": {"<sha256>": "<base64>"}, "places": {"<sha256>": "<path>"}}

A Neuron module has flags of a few hundred bytes and an empty marker beside its NEFF: fetched alone, each would cost as
much time as the NEFF. So whoever has the record has those already. They lie at their own paths as well, for the
compiler's own tools. The document of a long record is divided; see `parts`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any

from msgspec import Struct, structs

from cachekit.errors import IntegrityError
from cachekit.remotes import layout, parts
from cachekit.remotes.parts import Cut
from cachekit.remotes.port import Storage
from cachekit.store.record import (
    COMMAND,
    LARGEST,
    DamagedRecordError,
    File,
    Module,
    Record,
    from_document,
    is_closed,
    marked,
    parse,
    paths_of,
    serialise,
    to_document,
)

MOST_OF_A_COMMAND = 64  # archives that runs of a command add to one record: two of the same graphs have them twice
INLINE = 8 << 20  # bytes of all of them: 10,000 modules' flags


class Shared(Struct, frozen=True, dict=True):
    """A record on a remote.

    Attributes:
        record: The record.
        inline: Tiny files' bytes, by SHA-256; checked.
        places: Paths of files that do not lie at their own, because other bytes do, by SHA-256.
        cut: How a long one is divided that lies there, of which this is a later state, or the same.
    """

    record: Record
    inline: Mapping[str, bytes] = {}
    places: Mapping[str, str] = {}
    cut: Cut = Cut()

    @cached_property
    def paths(self) -> dict[str, tuple[File, str]]:
        """Each file, once, and the path where it lies, by SHA-256."""
        return {
            file.sha256: (file, self.places.get(file.sha256) or path) for path, file in paths_of(self.record.modules)
        }

    @property
    def by_path(self) -> dict[str, File]:
        """The files by all paths where they lie: what is the same in many modules lies in each."""
        return {self.places.get(file.sha256) or path: file for path, file in paths_of(self.record.modules)}

    @property
    def raw(self) -> bytes:
        """All of it in one document, as a bundle has it; equal bytes for equal records."""
        return serialise(self.whole)

    @property
    def document(self) -> bytes:
        """The document's bytes as it lies on a remote; equal ones for equal records, divided in the same way."""
        return self._divided[0]

    @property
    def parts(self) -> Mapping[str, bytes]:
        """What lies beside the document, by digest; nothing of a short record."""
        return self._divided[1]

    @property
    def parts_by_path(self) -> dict[str, bytes]:
        """The parts by their paths."""
        return {layout.blob_path(sha256): raw for sha256, raw in self.parts.items()}

    @cached_property
    def _divided(self) -> tuple[bytes, Mapping[str, bytes]]:
        return parts.divided(self.whole, self.record.modules, self.cut)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """All of it as JSON values."""
        document = to_document(self.record)
        wanted = {file.sha256 for file in self.record.files}
        inline = {sha256: base64.b64encode(raw).decode() for sha256, raw in self.inline.items() if sha256 in wanted}
        places = {sha256: path for sha256, path in self.places.items() if sha256 in wanted}
        return document | ({"inline": inline} if inline else {}) | ({"places": places} if places else {})


def read(raw: bytes, fetch: parts.Fetch | None = None) -> Shared | None:
    """Read a document of a remote, which anybody may have written.

    Args:
        raw: The document.
        fetch: Brings the parts of a long record; where None, the document has all of it.

    Returns:
        The record with its tiny files; None where its schema is another, which is a miss.

    Raises:
        DamagedRecordError: It is not a record, or a tiny file is not what the record says, or a place is not a path.
        RemoteError, AuthError: The remote cannot be asked for a part.
    """
    return read_parsed(parse(raw), fetch)


def is_of(raw: bytes, record: Record) -> bool:
    """Whether a document says that it has this record: by the record's digest, which nobody has compared."""
    try:
        said = parse(raw)
    except DamagedRecordError:
        return False
    body = said.get("record")
    return record.digest in (said.get("sha256"), body.get("whole") if isinstance(body, dict) else None)


def read_parsed(document: dict[str, Any], fetch: parts.Fetch | None = None) -> Shared | None:
    """As `read`, of what its `parse` gives."""
    document, divided = parts.joined(document, fetch) if fetch else (document, ())
    inline, places = document.pop("inline", {}), document.pop("places", {})
    record = from_document(document)
    if record is None:
        return None
    if not isinstance(inline, dict) or not isinstance(places, dict):
        raise DamagedRecordError('"inline" or "places" is not a mapping')
    sizes = {file.sha256: file.size for file in record.files}
    for sha256, path in places.items():
        # Only one place is ever given, and it follows from the digest: a path of somebody's choice is never read.
        if sha256 not in sizes or path != layout.blob_path(sha256):
            raise DamagedRecordError("it names a place where no file may be")
    return Shared(record, _inline(inline, sizes), places, Cut(record.modules, divided))


def listed(
    storage: Storage,
    path: str,
    revision: str,
    limit: int = LARGEST,
    turn: AbstractContextManager[object] | None = None,
) -> Shared | None:
    """The record at a path where a remote lists one; None where it is not a record of this path, as a fetch reports.

    Args:
        storage: The remote.
        path: The path.
        revision: The remote's state.
        limit: The largest document to read, in bytes.
        turn: Held while values are made of one: 60 MB of text may be 300 MB of those.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    with suppress(DamagedRecordError, IntegrityError):  # the latter of a document without end, say
        found = storage.read(path, revision, limit)
        with turn or nullcontext():
            shared = read(found.data, parts.fetching(storage, revision)) if found else None
        if shared is not None and layout.record_path(shared.record.place) == path:
            return shared
    return None


def _inline(inline: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, bytes]:
    contents = {}
    for sha256, text in inline.items():
        try:
            raw = base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError) as error:
            raise DamagedRecordError("a file inside the record cannot be decoded") from error
        if sizes.get(sha256) != len(raw) or hashlib.sha256(raw).hexdigest() != sha256:
            raise DamagedRecordError("a file inside the record does not match its digest")
        contents[sha256] = raw
    return contents


def merge(ours: Shared, theirs: Shared | None) -> Shared:
    """What a remote should hold for a key that both have.

    Nothing of either is lost where a compiler names its modules: then the union, and of two builds of one module the
    one that is there already, which others may have fetched. An archive has no name but its digest: of two records that
    do not contain each other, the one that is there stays. Of a command, both have archives of different graphs.
    """
    if theirs is None:
        return ours
    merged = _merged(ours, theirs)
    if merged.record.model_type == COMMAND:
        # What a run was whose archives it has, as to come to its end, the record is.
        there = {module.name for module in merged.record.modules}
        whole = [one.record for one in (ours, theirs) if there.issuperset(module.name for module in one.record.modules)]
        soft = {**merged.record.soft, **{name: True for record in whole for name in said_of(record)}}
        if soft != merged.record.soft:
            merged = structs.replace(merged, record=structs.replace(merged.record, soft=soft))
    return merged


def said_of(record: Record) -> list[str]:
    """What is marked of the runs of a command: that one came to its end, say."""
    return [name for name, value in record.soft.items() if value is True and name.startswith(f"{COMMAND}.")]


def with_modules(shared: Shared, modules: tuple[Module, ...]) -> Shared:
    """A record with these of its modules only: it does not say that a run came to its end whose graphs it lacks."""
    record = structs.replace(shared.record, modules=modules)
    if len(modules) < len(shared.record.modules):
        record = structs.replace(record, soft={**record.soft, **dict.fromkeys(said_of(record), False)})
    return structs.replace(shared, record=record)


def _merged(ours: Shared, theirs: Shared) -> Shared:
    mine = {module.name: module for module in ours.record.modules}
    there = {module.name: module for module in theirs.record.modules}
    if mine.keys() <= there.keys():
        return theirs
    if not there.keys() <= mine.keys():
        if is_closed(ours.record) or is_closed(theirs.record):
            return theirs
        if ours.record.model_type == COMMAND and len(mine | there) > MOST_OF_A_COMMAND:
            return theirs
    # What is there goes first, so that its parts stay as they are; a record of the store grows at its end, too.
    modules = tuple({**there, **{name: one for name, one in mine.items() if name not in there}}.values())
    # The larger record's figures stand for the whole.
    base = ours.record if len(mine) >= len(there) else theirs.record
    graphs = max(ours.record.graphs, theirs.record.graphs)
    return Shared(
        marked(structs.replace(base, modules=modules, graphs=graphs), ours.record, theirs.record),
        {**ours.inline, **theirs.inline},
        {**ours.places, **theirs.places},
        theirs.cut,
    )
