"""What `cachekit push` does: choose records, show what a public cache would be told, and put them there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from cachekit.compilers import registry
from cachekit.errors import AuthError, CachekitError, RemoteError
from cachekit.remotes.push import Pushed, push
from cachekit.remotes.remote import Remote
from cachekit.store import Store
from cachekit.store.record import Record, is_archive
from cachekit.text import first_of
from cachekit.values import Answer
from cachekit.verbs.entry import find
from cachekit.verbs.session import Session, using_store

SHOWN = 5  # paths of a record that are named


class Pushes(Answer, frozen=True, tag="cachekit/push/1"):
    """What became of a push to each remote that may be written."""

    dry_run: bool
    pushed: tuple[Pushed, ...]

    def error(self) -> CachekitError | None:
        """Why the first of them failed; None where none did."""
        return next((one.error for one in self.pushed if one.error), None)


def chosen(session: Session, keys: Sequence[str], *, pending: bool) -> list[Record]:
    """The records that a push is about.

    Raises:
        UnknownNameError: A key names none.
    """
    named = {record.key: record for record in (find(session.store, key) for key in keys)}  # each once
    kept = {key for remote in session.remotes.writable for key in remote.pending()} if pending else set[str]()
    if keys:
        return [record for record in named.values() if not pending or record.key in kept]
    return list(session.store.records(lambda one: not pending or one.key in kept))


@using_store
def push_records(
    session: Session, records: Sequence[Record], *, public: bool, replaces: bool, dry_run: bool, recheck: bool = False
) -> list[Pushed]:
    """Put records on every remote that may be written; what a public one would reveal is told first.

    See `Cache.push`.
    """
    records = [record for record in records if session.store.keep(record)]
    tells: dict[str, tuple[str, ...]] = {}
    for remote in session.remotes.writable:
        remote.retry()
        if public and not dry_run and _is_public(remote):
            tells[remote.name] = tuple(leaks_of(session.store, records))
            session.journal.emit("push.tells", remote=remote.name, leaks=tells[remote.name])
    store, remotes = session.store, session.remotes
    done = push(
        store, remotes, records, public=public, replaces=replaces, dry_run=dry_run, recheck=recheck, by_hand=True
    )
    reports = []
    for one, remote in zip(done, session.remotes.writable, strict=True):
        leaks = tells.get(remote.name, ())
        if not leaks and remote.public and (dry_run or one.error is not None):
            leaks = tuple(leaks_of(session.store, records))
        reports.append(structs.replace(one, leaks=leaks))
    return reports


def _is_public(remote: Remote) -> bool:
    try:
        remote.revision()
    except (RemoteError, AuthError):  # the push tells it
        return False
    return remote.public


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
            yield f"{record.recipe}: paths in its files: {first_of(paths, SHOWN)}"
