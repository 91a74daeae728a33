"""Fetch what recipes and commands need, whatever is remembered of the remotes: `cachekit pull`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cachekit.compilers import registry
from cachekit.compilers.keep import FINISHED, joined
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, MissError
from cachekit.remotes.fetch import Pulled, fetch
from cachekit.remotes.nearest_on import by_key
from cachekit.text import first_of
from cachekit.values import Answer
from cachekit.verbs.entry import row_of
from cachekit.verbs.plan import plan
from cachekit.verbs.session import Session, using_store

SHOWN = 12  # modules that an error names


class LeftModule(Struct, frozen=True):
    """A module that was not fetched: it is not finished, or not to be used."""

    module: str
    reason: str


class Outcome(Answer, frozen=True, tag="cachekit/pull-record/1"):
    """What became of one thing that was to be pulled.

    Attributes:
        name: The recipe, or the compiler's folder.
        state: `present` is in the store already, `absent` in no remote, `failed` locked and nowhere whole.
        key: Of the record.
        remote: Where it came from.
        files: Files that were fetched.
        bytes: That were, or would be, fetched.
        present: Bytes that the store had.
        seconds: Wall time.
        modules: Those that were, or would be, fetched by their names.
        left: Those that were not.
        error: Why it failed, or why nobody knows whether a remote has it.
    """

    name: str
    state: Literal["fetched", "would-fetch", "present", "absent", "failed"]
    key: str
    remote: str = ""
    files: int = 0
    bytes: int = 0
    present: int = 0
    seconds: float = 0.0
    modules: tuple[str, ...] = ()
    left: tuple[LeftModule, ...] = ()
    error: CachekitError | None = None


class Pulls(Answer, frozen=True, tag="cachekit/pull/1"):
    """What became of all that was to be pulled."""

    pulled: tuple[Outcome, ...]

    def error(self) -> CachekitError | None:
        """What to raise where something failed, or no remote has it; None where all is there."""
        if failed := next((one.error for one in self.pulled if one.error), None):
            return failed
        absent = [one for one in self.pulled if one.state == "absent"]
        if not absent:
            return None
        left = sorted(f"{item.module}: {item.reason}" for one in absent for item in one.left)
        return MissError(
            f"no remote has {', '.join(one.name for one in absent)}",
            cause=first_of(left, SHOWN, "; "),
            hint="warm or run it, with the remote writable: --cache local:rw,NAME:rw",
        )


@using_store
def pull_recipe(session: Session, prepared: Prepared, *, dry_run: bool = False) -> Outcome:
    """Fetch a recipe's record into the store; see `Cache.pull`."""
    for remote in session.remotes.readable:
        remote.retry()
    planned = plan(prepared, session.store, session.remotes, anew=True)
    name = prepared.recipe.name
    if planned.record is None:
        session.remotes.raise_failure(prepared.key)
        return Outcome(name, "absent", prepared.key, error=session.remotes.unasked(name))
    if planned.found is None:
        return Outcome(name, "present", prepared.key, present=planned.record.size)
    place = planned.found.remote.name
    if dry_run:
        present = planned.record.size - planned.fetch
        return Outcome(name, "would-fetch", prepared.key, place, bytes=planned.fetch, present=present)
    done = fetch(session.store, session.remotes, planned.found, registry.judge(planned.found.shared.record.directory))
    return fetched(name, prepared.key, done)


@using_store
def pull_key(session: Session, beginning: str, *, dry_run: bool = False) -> Outcome:
    """Fetch the record of a key, as that of a command, which no recipe names; see `Cache.pull`."""
    for remote in session.remotes.readable:
        remote.retry()
    rows = session.store.by_prefix(beginning)
    place = row_of(rows, beginning).place if rows else None
    if place is None and (known := by_key(beginning, session.store, session.remotes)[0]):
        place = known.place
    here = session.store.lookup(place) if place else None
    whole = here is not None and here.soft.get(FINISHED, True)  # a command that failed may lack graphs
    found = session.remotes.find(place, anew=True) if place and not whole else None
    if here is not None and (found is None or not found.shared.record.soft.get(FINISHED, True)):
        if not whole:
            session.remotes.raise_failure(here.key)
        unasked = None if whole else session.remotes.unasked(here.recipe)
        return Outcome(here.recipe, "present", here.key, present=here.size, error=unasked)
    if found is None:
        key = place.key if place else ""
        session.remotes.raise_failure(key)
        return Outcome(beginning, "absent", key, error=session.remotes.unasked(beginning))
    record, origin = found.shared.record, found.remote.name
    if dry_run:
        lacking = sum(file.size for file in session.store.lacking(record.files))
        return Outcome(record.recipe, "would-fetch", record.key, origin, bytes=lacking, present=record.size - lacking)
    done = fetch(session.store, session.remotes, found, registry.judge(record.directory))
    joined(session.store, done.record, here)
    return fetched(record.recipe, record.key, done)


def fetched(name: str, key: str, done: Pulled, *, dry_run: bool = False) -> Outcome:
    """A fetch as an answer."""
    state: Literal["fetched", "would-fetch"] = "would-fetch" if dry_run else "fetched"
    return Outcome(name, state, key, done.remote, done.files, done.size, done.present, round(done.seconds, 3))
