"""Check the store, and where that is wanted repair what is bad: `cachekit store verify`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from cachekit.compilers import registry
from cachekit.remotes.mend import repair as repair_store
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module
from cachekit.store.verify import Examine, Verified
from cachekit.store.verify import verify as look
from cachekit.verbs.session import Session


def verify(session: Session, *, quick: bool = False, repair: bool = False) -> Verified:
    """Check records, blobs and compiled graphs, and repair what can be repaired.

    Args:
        session: Collaborators.
        quick: Only look which files there are, and how large they are.
        repair: Bring back what is bad from the remotes.

    Raises:
        StoreError: The store cannot be read; or written, to repair.
    """
    examine = _graphs(session.store.layout)
    found = look(session.store, session.config.compiler_cache_dir, "there" if quick else "digest", examine)
    if not repair:
        return found
    problems = found.problems
    if problems:  # else nothing is written
        problems = repair_store(session.store, session.remotes, problems, examine, registry.judge)
    return structs.replace(found, repair=True, problems=problems)


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
