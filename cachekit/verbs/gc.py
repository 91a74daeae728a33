"""Take out of the store what nobody needs: see `store.gc`."""

from __future__ import annotations

from pathlib import Path

from cachekit import config as settings
from cachekit.store.gc import Collected, Keep
from cachekit.store.gc import gc as collect
from cachekit.verbs.session import Session


def keep(home: Path | str | None, max_size: int | str | None, max_age: float | str | None, compiler: str = "") -> Keep:
    """Limits as somebody gives them, `50GB` and `30d`; those of the settings where none is given.

    The settings' limits are for all records: with a compiler only limits count that are given with it.

    Raises:
        UsageError: One is no size, or no time.
    """
    config = settings.load({"home": home, "gc_max_size": max_size, "gc_max_age": max_age})
    return Keep(
        None if compiler and max_size is None else config.gc_max_size,
        None if compiler and max_age is None else config.gc_max_age,
        compiler,
    )


def gc(session: Session, limits: Keep, *, dry_run: bool = False) -> Collected:
    """Remove what nobody needs, while others go on; raises as `store.gc.gc`."""
    return collect(session.store, session.config.compiler_cache_dir, limits, dry_run=dry_run)
