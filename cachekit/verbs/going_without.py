"""Reasons for going without the cache that a run knows before it begins; see `cachekit.events`."""

from __future__ import annotations

from pathlib import Path

from cachekit.errors import CachekitError, IntegrityError
from cachekit.events import bypass, bypassed
from cachekit.recipe import Recipe
from cachekit.remotes.layout import LOCAL
from cachekit.verbs.plan import Plan
from cachekit.verbs.session import Session


def of_plan(session: Session, planned: Plan, *, recache: bool = False) -> None:
    """Note what kept a plan from a hit, or who does not want one.

    Args:
        session: Collaborators.
        planned: The plan.
        recache: Compile although there is a record.
    """
    journal = session.journal
    if recache and planned.hit and not bypassed(journal).get("restore-refused"):  # then nobody asked for it
        bypass(journal, "recache", planned.prepared.key)
    if planned.flaw:
        unreadable = planned.flaw.startswith("its record cannot be read")
        bypass(journal, "store-unreadable" if unreadable else "store-damaged", planned.flaw)
    if planned.tier == LOCAL:
        return  # nobody else was needed
    for name in session.chain.offline:
        bypass(journal, "tier-offline", name)
    if not planned.hit:
        for remote in session.chain.writable:
            if not remote.readable:
                bypass(journal, "tier-write-only", remote.name)


def unrestored(session: Session, again: Plan | None, error: IntegrityError, *, last: bool = False) -> None:
    """Note that a record could not be restored.

    Args:
        session: Collaborators.
        again: What there is for the key now; None where the record was another key's.
        error: What was wrong.
        last: No other plan follows that would tell of a miss.
    """
    what = f"{error.message}: {error.cause}"
    if again is None or (again.hit and not again.found):
        bypass(session.journal, "restore-refused", what)
    elif again.found or last:
        bypass(session.journal, "store-damaged", what)


def unshared(session: Session) -> None:
    """Note the shared caches that do not get what has just compiled, as they are only read."""
    for remote in session.chain.readable:
        if not remote.writable:
            bypass(session.journal, "tier-read-only", remote.name)


def own_root(session: Session, recipe: Recipe) -> Path | None:
    """The compiler's own folder on this host, as `Compiler.live_root` gives it.

    Raises:
        CachekitError: It cannot be used, which is noted.
    """
    try:
        return session.compiler.live_root(recipe)
    except CachekitError as error:
        bypass(session.journal, "live-root-unusable", error.message)
        raise
