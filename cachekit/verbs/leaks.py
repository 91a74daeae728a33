"""What records would tell strangers about the people and machines that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff import NeffError, Part, read
from cachekit.remotes.layout import is_archive
from cachekit.store import Store
from cachekit.store.archive import UnsafeArchiveError, members
from cachekit.store.leaks import Leaks, Scanner
from cachekit.store.record import Record

SHOWN = 5  # paths of a record
PIECE = 1 << 20


def leaks_of(store: Store, records: Sequence[Record]) -> Iterator[str]:
    """One line each, for people."""
    makers = sorted({f"{record.provenance.user}@{record.provenance.host}" for record in records})
    if makers:
        yield f"who made them: {', '.join(makers)}"
    for record in records:
        paths: dict[str, None] = {}
        names: set[str] = set()
        for module in record.modules:
            for file in module.files:
                found = _leaks(store.layout.blob(file.sha256), archive=is_archive(module), neff=file.path == facts.NEFF)
                paths |= dict.fromkeys(leak.path for leak in found.paths)
                names |= {*found.users, *found.hosts}
        if names:
            yield f"{record.recipe}: names in its files: {', '.join(sorted(names))}"
        if paths:
            more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
            yield f"{record.recipe}: paths in its files: {', '.join(list(paths)[:SHOWN])}{more}"


def _leaks(path: Path, *, archive: bool, neff: bool) -> Leaks:
    if neff:
        with suppress(NeffError, OSError):
            return read(path).leaks
    scanner = Scanner()
    with suppress(OSError, UnsafeArchiveError, NeffError), path.open("rb") as raw:
        if not archive:
            scanner.body(path.name, path.stat().st_size, _pieces(raw, path.stat().st_size))
            return scanner.leaks()
        for stored in members(path):
            if stored.name.endswith(facts.NATIVE_SUFFIX):
                # What it has is packed, and no word of it is seen from outside.
                with suppress(NeffError):
                    scanner.found(read(path, part=Part(stored.offset, stored.size)).leaks)
            else:
                raw.seek(stored.offset)
                scanner.body(stored.name, stored.size, _pieces(raw, stored.size))
    return scanner.leaks()


def _pieces(source: IO[bytes], size: int) -> Iterator[bytes]:
    while size and (data := source.read(min(size, PIECE))):
        size -= len(data)
        yield data
