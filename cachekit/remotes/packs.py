"""Small files of a record once more, many in one: who fetches the record asks for few packs instead of for each file.

    cachekit/v1/packs/<key>/<sha256>  how many, then digest and size of each, then their bytes

A push that adds many small files puts them there in a pack too. One that adds a few does so where they end a group: a
record's modules are groups of `FEW`, or of fewer with at least `GROUP` bytes. So a push of one module sends at most
`GROUP` bytes and its own once more. At their own paths files lie for the compiler's own tools, and for whoever lacks a
few of them. No document names a pack. What is in one is believed by the digest that the record has of it, and what is
not in any, or is wrong there, is fetched as if there were none.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from cachekit.files import is_digest
from cachekit.remotes import layout
from cachekit.remotes.fetch_files import Fetch, Fetched, WantedFile, inline_files
from cachekit.remotes.port import Storage, Upload
from cachekit.store.record import File, Record

SMALL = 64 << 10  # bytes of a file that goes into a pack
FEW = 16  # files that are not worth one
SIZE = 16 << 20  # bytes of the files of one
GROUP = 48 << 10  # bytes of small files that are worth one, and that a push of a few may send once more
_MOST = 4000  # packs of a record: four pages of a listing; of 3,000 modules that came one by one there are 1,500
_COUNT, _MEMBER = struct.Struct(">I"), struct.Struct(">32sI")


def groups_after(
    had: int, record: Record, sources: Mapping[str, Path | bytes], inline: Container[str]
) -> list[list[Upload]]:
    """The small files of each group of modules that ends after the first ones of a record.

    Args:
        had: How many are the first ones: those that were there before.
        record: The record.
        sources: The local file of each digest that may be in a pack.
        inline: The digests of files that whoever has the record has.
    """
    groups, group, modules = list[list[Upload]](), dict[str, File](), 0
    for number, module in enumerate(record.modules, 1):
        modules += 1
        group |= {file.sha256: file for file in module.files if file.size <= SMALL and file.sha256 not in inline}
        if modules == FEW or sum(file.size for file in group.values()) >= GROUP:
            here = [file for file in group.values() if file.sha256 in sources]
            if number > had:
                groups.append([Upload(file.path, file.size, file.sha256, sources[file.sha256]) for file in here])
            group, modules = {}, 0
    return groups


def packed(key: str, files: Iterable[Upload], least: int = FEW) -> list[Upload]:
    """Packs of those of a record's new files that are small; none of fewer than `least`.

    Raises:
        OSError: A file cannot be read.
    """
    small = [file for file in files if file.size <= SMALL]
    groups: list[list[Upload]] = [[]]
    room = SIZE
    for file in small if len(small) >= least else ():
        if file.size > room:
            groups.append([])
            room = SIZE
        groups[-1].append(file)
        room -= file.size
    return [_pack(key, group) for group in groups if group]


def unpacked(
    fetch: Fetch, storage: Storage, revision: str, key: str, *, wanted: Sequence[WantedFile], folder: Path
) -> dict[str, Fetched]:
    """Files that packs of a record have, by name; none where few are wanted, or packs have too much else.

    Args:
        fetch: Fetches packs.
        storage: The remote.
        revision: Its state.
        key: The record's.
        wanted: What is wanted; names are digests.
        folder: Gets the files.

    Raises:
        RemoteError, AuthError: The remote fails.
        OSError: The store cannot be written.
    """
    small = {file.name: file.size for file in wanted if file.size <= SMALL}
    if storage.lines == 1 or len(small) < FEW:
        return {}
    packs = []
    for entry in islice(storage.list(layout.packs(key), revision), _MOST):
        name = entry.path.rpartition("/")[2]
        if is_digest(name) and entry.holds(entry.size, name) is not False:
            packs.append(WantedFile(entry.path, entry.size, name, name.__eq__))
    if sum(pack.size for pack in packs) > 2 * sum(small.values()):
        return {}
    found: dict[str, Fetched] = {}
    for pack in fetch.all(packs, sparing=True).values():
        with suppress(FileNotFoundError):  # another process has used it up
            found |= inline_files(dict(_members(pack.path.read_bytes(), small)), folder)
            pack.path.unlink()
        for name in found:
            small.pop(name, None)
    return found


def _pack(key: str, files: Sequence[Upload]) -> Upload:
    contents = [b"".join(file.pieces(SMALL)) for file in files]
    sizes = [_MEMBER.pack(bytes.fromhex(file.sha256), file.size) for file in files]
    raw = b"".join([_COUNT.pack(len(files)), *sizes, *contents])
    sha256 = hashlib.sha256(raw).hexdigest()
    return Upload(layout.pack_path(key, sha256), len(raw), sha256, raw)


def _members(raw: bytes, wanted: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Those of a pack's files that are wanted, and what they should be. Anybody may have written it."""
    count = _COUNT.unpack_from(raw)[0] if len(raw) >= _COUNT.size else 0
    at = _COUNT.size + count * _MEMBER.size
    if at > len(raw):
        return
    for digest, size in _MEMBER.iter_unpack(raw[_COUNT.size : at]):
        data = raw[at : at + size]
        at += size
        sha256 = digest.hex()
        if wanted.get(sha256) == len(data) and hashlib.sha256(data).hexdigest() == sha256:
            yield sha256, data
