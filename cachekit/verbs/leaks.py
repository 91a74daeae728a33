"""What records would tell strangers about the people and machines that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachekit.compilers import registry
from cachekit.remotes.layout import is_archive
from cachekit.store import Store
from cachekit.store.record import Record

SHOWN = 5  # paths of a record


def leaks_of(store: Store, records: Sequence[Record]) -> Iterator[str]:
    """One line each, for people."""
    makers = sorted({f"{record.provenance.user}@{record.provenance.host}" for record in records})
    if makers:
        yield f"who made them: {', '.join(makers)}"
    for record in records:
        adapter = registry.adapter(record.compiler)
        paths: dict[str, None] = {}
        names: set[str] = set()
        for module in record.modules:
            for file in module.files:
                found = adapter.leaks(file, store.layout.blob(file.sha256), archive=is_archive(module))
                paths |= dict.fromkeys(leak.path for leak in found.paths)
                names |= {*found.users, *found.hosts}
        if names:
            yield f"{record.recipe}: names in its files: {', '.join(sorted(names))}"
        if paths:
            more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
            yield f"{record.recipe}: paths in its files: {', '.join(list(paths)[:SHOWN])}{more}"
