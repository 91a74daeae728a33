"""What `cachekit push` does: choose records, show what a public cache would be told, and put them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachekit.errors import AuthError, RemoteError
from cachekit.remotes.remote import Remote
from cachekit.store.record import Record
from cachekit.values import by_value
from cachekit.verbs.inspect import find
from cachekit.verbs.leaks import leaks_of
from cachekit.verbs.push import Pushed, push
from cachekit.verbs.session import Session, holding


@dataclass(frozen=True, slots=True)
class Reported:
    """A push, with what it tells strangers.

    Attributes:
        pushed: What became of it.
        leaks: What the records tell about who made them, where anybody may read the cache.
    """

    pushed: Pushed
    leaks: tuple[str, ...]

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**self.pushed.as_dict(), "leaks": list(self.leaks)}


def chosen(session: Session, keys: Sequence[str], *, pending: bool) -> list[Record]:
    """The records that a push is about.

    Raises:
        UnknownNameError: A key names none.
    """
    named = {record.key: record for record in (find(session.store, key) for key in keys)}  # each once
    kept = {key for remote in session.chain.writable for key in remote.pending()} if pending else set[str]()
    if keys:
        return [record for record in named.values() if not pending or record.key in kept]
    return list(session.store.records(lambda one: not pending or one.key in kept))


@holding
def push_records(
    session: Session, records: Sequence[Record], *, public: bool, replaces: bool, dry_run: bool, recheck: bool = False
) -> list[Reported]:
    """Put records on every cache that may be written; see `push`.

    Args:
        session: Collaborators.
        records: Of the store.
        public: On a cache that anybody can read, too; what that tells is told first.
        replaces: In the place of others of the same keys.
        dry_run: Only say what would be sent.
        recheck: Look at all files of records that are there already.
    """
    records = [record for record in records if session.store.keep(record)]
    tells: dict[str, tuple[str, ...]] = {}
    for remote in session.chain.writable:
        remote.retry()
        if public and not dry_run and _is_public(remote):
            tells[remote.name] = tuple(leaks_of(session.store, records))
            session.journal.emit("push.tells", tier=remote.name, leaks=tells[remote.name])
    remotes = session.chain.writable
    done = push(session, records, remotes, public=public, replaces=replaces, dry_run=dry_run, recheck=recheck)
    reports = []
    for one, remote in zip(done, session.chain.writable, strict=True):
        leaks = tells.get(remote.name, ())
        if not leaks and remote.public and (dry_run or one.error is not None):
            leaks = tuple(leaks_of(session.store, records))
        reports.append(Reported(one, leaks))
    return reports


def _is_public(remote: Remote) -> bool:
    try:
        remote.state()
    except (RemoteError, AuthError):  # the push tells it
        return False
    return remote.public
