"""Check the store, and where that is wanted repair what is bad: `cachekit store verify`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from cachekit.compilers import registry
from cachekit.remotes.repair import repair as repair_store
from cachekit.store import Store
from cachekit.store.garbage import origins as noted_origins
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module
from cachekit.store.verify import Distrusted, Examine, OriginCounts, Verified
from cachekit.store.verify import verify as look
from cachekit.verbs.session import Session


def verify(session: Session, *, quick: bool = False, repair: bool = False) -> Verified:
    """Check records, blobs and compiled graphs, and repair what can be repaired; see `Cache.verify`."""
    examine = _graphs(session.store.layout)
    found = look(session.store, session.config.compiler_cache_dir, "there" if quick else "digest", examine)
    found = structs.replace(found, origins=_origins(session, found.records))
    if not repair:
        return found
    problems = found.problems
    if problems:  # else nothing is written
        problems = repair_store(session.store, session.remotes, problems, examine, registry.judge)
    return structs.replace(found, repair=True, problems=problems)


def _origins(session: Session, count: int) -> OriginCounts:
    """Where records came from, and what the settings say of that now."""
    trust = session.remotes.trust
    store = Store(session.store.layout.home, session.store.journal)  # one that refuses no record
    counts = Counter[str]()
    revoked: list[Distrusted] = []
    kept: list[Distrusted] = []
    strangers: list[Distrusted] = []
    noted = {path.stem for path, _ in noted_origins(store.layout)}
    # Not by `Store.records`, which would set aside what is damaged: that is to be repaired.
    rows = [
        row
        for row in store.refresh().rows()
        if trust.table.revokes or row.key in noted or store.origins.elsewhere(row.place)
    ]
    asking = Store(store.layout.home, store.journal, trust.asked)
    for record in filter(None, (store.read(row.place) for row in rows)):
        beside = store.origins.of(record)
        origin = beside.origin
        gone = trust.policy.revoked(record, origin) if trust.table.revokes else ""
        refused = asking.refusal.judged_strange(record) or (
            asking.refusal.judged(record) if origin.how and not gone else None
        )
        if refused is not None:
            strangers.append(Distrusted(record.key, record.recipe, refused.reason))
            continue
        counts[origin.how] += origin.how != "here"
        reason = gone or trust.unpublishable(record, beside)
        if reason:
            (revoked if gone else kept).append(Distrusted(record.key, record.recipe, reason))
    return OriginCounts(
        here=count - sum(counts.values()) - len(strangers),
        owner=counts["owner"],
        signed=counts["signed"],
        all=counts["all"],
        unknown=counts[""],
        refused=tuple(strangers),
        revoked=tuple(revoked),
        kept=tuple(kept),
    )


def _graphs(layout: Layout) -> Callable[[str], Examine | None]:
    """What looks into the graphs of a compiler's directory; None where its compiler has no opinion."""

    def of(directory: str) -> Examine | None:
        adapter = registry.of_directory(directory)

        def examine(module: Module, file: File, path: Path) -> tuple[str, bool]:
            if adapter.graph(module) is not file:
                return "", False
            try:
                found = adapter.judge(module, lambda one: path if one is file else layout.blob(one.sha256))
            except OSError:
                return "", False  # gone meanwhile
            return found.harm or found.oddity, bool(found.harm)

        return examine if adapter.name else None

    return of
