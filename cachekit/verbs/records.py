"""Records of the store: look at one, remove some, pin those that are to stay; and look at compiled files anywhere."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct, structs

from cachekit.compilers import registry
from cachekit.compilers.graphs import CompiledFile, StoredModule
from cachekit.errors import UnknownNameError, UsageError
from cachekit.key.canonical import DIGITS, key_of
from cachekit.remotes.judging import Trust, envelopes_of
from cachekit.store import Store
from cachekit.store import pins as noted
from cachekit.store.gc import GoneFile, below
from cachekit.store.index_rows import IndexRow, Listed
from cachekit.store.layout import Place
from cachekit.store.origin import Beside, How
from cachekit.store.pins import Pin
from cachekit.store.record import Record
from cachekit.store.removal import Going, Remover, Victim, check_readable
from cachekit.store.rwlock import used_now
from cachekit.text import one_line
from cachekit.trust.statement import Builder, read_statement
from cachekit.values import Answer, by_value
from cachekit.verbs.entry import Named, find, is_key, one_of, row_of
from cachekit.verbs.session import Session


class Source(Struct, frozen=True):
    """Where a record came from, or one whose files it reuses.

    Attributes:
        key: Of the record.
        record: Its digest.
        remote: The remote, the bundle or the folder; empty where it was made in this store.
        how: Why it was taken: `here`, `owner`, `signed` or `all`; `stated` where it was not, and whoever signed the
            record says that the record reuses it; empty where nobody knows any more.
        signers: Who had signed it: by the names of the settings, else by the fingerprint.
    """

    key: str
    record: str
    remote: str
    how: How
    signers: tuple[str, ...]


class Vouched(Struct, frozen=True):
    """A signature over a record that counts now, and what it says of who made or published the record.

    Attributes:
        signers: By the names of the settings; `you` is this user's own key.
        builder: A user and a host, and in CI the repository, the workflow, the commit and the run.
        created: When that was said: UTC, ISO 8601.
    """

    signers: tuple[str, ...]
    builder: Builder
    created: str


class StoredRecord(Record, Answer, frozen=True, kw_only=True, tag="cachekit/record/1"):
    """A record as the store has it.

    Attributes:
        modules: With what their files say.
        bytes: Of all files.
        key_of_ingredients: What hashing the ingredients gives: the key, or something was changed.
        whole: All its files are there.
        origin: Where it came from, and then the records whose files it reuses, nearest first.
        vouched: The signatures that count, each with what it says of who made the record.
        untrusted: Why it is not given to others by what the settings say now; empty where it would be.
        refused: Why the settings do not let it be used; empty where they do. What is revoked lies in quarantine.
    """

    modules: tuple[StoredModule, ...]
    bytes: int
    key_of_ingredients: str
    whole: bool
    origin: tuple[Source, ...]
    vouched: tuple[Vouched, ...]
    untrusted: str
    refused: str = ""

    __hash__ = by_value


def show(store: Store, name: str, trust: Trust | None = None) -> StoredRecord:
    """A record whole, and what the settings say of its signers; see `Cache.show`."""
    trust = trust or Trust()
    record, refused = _found(store, name, trust)
    beside = store.origins.of(record)
    origin = beside.origin
    said = registry.adapter(record.compiler).describe_modules(
        record.modules, lambda file: store.layout.blob(file.sha256)
    )
    return StoredRecord(
        **{**structs.asdict(record), "modules": tuple(said)},
        bytes=record.size,
        key_of_ingredients=key_of(record.hard),
        whole=not store.lacking(record.files) if refused else store.lookup(record.place) is not None,
        origin=(
            Source(record.key, record.digest, origin.remote, origin.how, _names(trust, origin.signers)),
            *(Source(one.key, one.record, one.remote, one.how, _names(trust, one.signers)) for one in origin.reused),
        ),
        vouched=tuple(_vouched(trust, record, beside)),
        untrusted=trust.unpublishable(record, beside),
        refused=refused,
    )


def told_of_strangers(store: Store, rows: Iterable[Listed], doubtful: Collection[Place], trust: Trust) -> list[Listed]:
    """Rows of records, each with the reason why it is not used where somebody else can have written the record.

    Args:
        store: The store.
        rows: Its records.
        doubtful: Those that somebody else can have written; see `Store.doubtful`.
        trust: What the settings say of signers.
    """
    asking, told = Store(store.layout.home, store.journal, trust.asked), []
    for row in rows:
        record = store.read(row.place) if row.place in doubtful else None
        refused = asking.refusal.judged_strange(record) if record else None
        told.append(structs.replace(row, refused=refused.reason) if refused else row)
    return told


def _found(store: Store, name: str, trust: Trust) -> tuple[Record, str]:
    """A record, be it one that the settings refuse, and why they do."""
    try:
        record = find(store, name)
    except UnknownNameError:
        aside = store.refusal.set_aside(name) if is_key(name) else None
        if aside is None or store.by_prefix(name):
            raise
        reason = trust.policy.revoked(aside, store.origins.of(aside).origin)
        return aside, f"{reason or 'refused before'}; it is in quarantine"
    with suppress(OSError):  # it was removed meanwhile
        asking = Store(store.layout.home, store.journal, trust.asked)
        refused = asking.refusal.judged(record)
        return record, refused.reason if refused else ""
    return record, ""


def _vouched(trust: Trust, record: Record, beside: Beside) -> Iterator[Vouched]:
    for envelope in envelopes_of(beside):
        # Each by itself, as the policy tells only who signed; what it says is read after its signature held.
        verdict = trust.policy.judge(record, [envelope], mode="signed")
        if verdict.how == "signed":
            said = read_statement(envelope.payload).predicate
            yield Vouched(_names(trust, verdict.keys), said.builder, said.created)


def _names(trust: Trust, signers: tuple[str, ...]) -> tuple[str, ...]:
    return trust.policy.names(signers) if signers else ()


def compiled_files(paths: Iterable[Path]) -> list[CompiledFile]:
    """Each file's state and, where a compiler knows it, all that it says; one that cannot be read stops no other."""
    return [_said(path) for path in paths]


def _said(path: Path) -> CompiledFile:
    found = CompiledFile(one_line(str(path)), "unknown", "no compiler that is known here makes such files")
    for adapter in registry.every():
        if (said := adapter.describe(path)) is not None:
            found = said
            if said.state != "unknown":
                break
    return found


class Deleted(Answer, frozen=True, tag="cachekit/rm/1"):
    """A record that went, or would go.

    Attributes:
        dry_run: Nothing was removed.
        unpinned: It was pinned.
        bytes: Of what goes with it.
        shared_bytes: Of blobs that stay, because other records name them or a process uses them.
        files: What goes with it.
    """

    key: str
    recipe: str
    directory: str
    model_type: str
    dry_run: bool
    unpinned: bool
    bytes: int
    shared_bytes: int
    files: tuple[GoneFile, ...]


def remove(session: Session, names: Sequence[str], *, force: bool = False, dry_run: bool = False) -> list[Deleted]:
    """Remove the records of these keys, with what only they name; see `Cache.rm`.

    With `force` a running process keeps what it needs of them until it is done.
    """
    layout = session.store.layout
    index = session.store.refresh(exact=True)
    check_readable(index, layout)
    rows = list({row.place: row for row in (_row(session, name) for name in names)}.values())
    pinned, now = noted.pinned(layout), used_now(layout)
    for row in rows if not force else ():
        if row.key in pinned:
            raise UsageError(
                f"{row.recipe} ({row.key[:16]}) is pinned",
                cause="a pinned record is kept until it is unpinned",
                hint=f"cachekit store unpin {row.key[:16]}, or --force",
            )
        if row.key in now.keys:
            raise UsageError(
                f"{row.recipe} ({row.key[:16]}) is in use",
                cause=f"by process {', '.join(map(str, now.processes))}",
                hint="wait for it, or --force: it keeps what it needs until it is done",
            )
    named = {row.place: index.named(row) for row in rows}
    if dry_run:
        going = Going(layout, index, now.blobs, [row.id for row in rows])
        taken = [(row, going.take(row)) for row in rows]
    else:
        remover = Remover(session.store)
        remover.records([Victim(row, time.time(), "named") for row in rows], force=force)
        for row in rows:
            if row.key in pinned:
                noted.unpin(layout, row.key)
        taken = [(victim.row, files) for victim, files in remover.removed.records]
        if remover.removed.kept:
            victim, why = remover.removed.kept[0]
            raise UsageError(f"{victim.row.key[:16]} was not removed: {why}", hint="try again")
        session.journal.emit(
            "rm.end", keys=[row.key for row, _ in taken], bytes=sum(sum(files.values()) for _, files in taken)
        )
    return [
        Deleted(
            row.key, row.recipe, row.directory, row.model_type, dry_run, row.key in pinned, sum(files.values()),
            sum(max(size, 0) for digest, size in named[row.place].items() if str(layout.blob(digest)) not in files),
            tuple(GoneFile(below(layout, path), size) for path, size in files.items()),
        )
        for row, files in taken
    ]  # fmt: skip


def _row(session: Session, name: str) -> IndexRow:
    """The record that a person means; one that is damaged, or not to be used, too: nobody else would find it."""
    rows = session.store.index.by_prefix(name.lower())
    return row_of([row for row in rows if not row.flaw] or rows, name)


class Pinned(Answer, frozen=True, tag="cachekit/pin/1"):
    """A pin, and what it keeps.

    Attributes:
        pinned: Since when, in UTC, ISO 8601; empty where that is unknown.
        directory: The compiler's folder of the key's record.
        bytes: Of the key's record; None where the store has none yet.
        changed: This command made the pin, or took it away; or it would.
        dry_run: Nothing was written.
    """

    key: str
    recipe: str
    pinned: str
    directory: str
    bytes: int | None
    changed: bool
    dry_run: bool = False


def pin(store: Store, wanted: Sequence[Named], *, dry_run: bool = False) -> list[Pinned]:
    """Pin keys; see `Cache.pin`."""
    known = _records(store)
    chosen = [(_key(one, known), one.recipe) for one in wanted]
    made = []
    for key, recipe in chosen:
        name = recipe or (known[key][0] if key in known else "")
        if dry_run:
            fresh = key not in noted.pinned(store.layout)
        else:
            fresh = noted.pin(store.layout, store.rwlock, Pin(key, name, time.time()))
        now = noted.pinned(store.layout).get(key, Pin(key, name))
        made.append(_pinned(now, known, changed=fresh, dry_run=dry_run))
    return made


def unpin(store: Store, wanted: Sequence[Named], *, dry_run: bool = False) -> list[Pinned]:
    """Let keys go; see `Cache.unpin`."""
    known, pins = _records(store), noted.pinned(store.layout)
    chosen = [one.key if one.recipe else _key(one, pins, "pin") for one in wanted]
    done = []
    for key, one in zip(chosen, wanted, strict=True):
        gone = key in pins if dry_run else noted.unpin(store.layout, key)
        done.append(_pinned(pins.get(key, Pin(key, one.recipe)), known, changed=gone, dry_run=dry_run))
    return done


def pins(store: Store) -> list[Pinned]:
    """Every pin, in the order of keys."""
    known = _records(store)
    return [_pinned(one, known, changed=False) for one in noted.pinned(store.layout).values()]


def _records(store: Store) -> dict[str, tuple[str, str, int]]:
    """Recipe, compiler's folder and bytes of each record, by key."""
    return {one.key: (one.recipe, one.directory, one.bytes) for one in store.rows()}


def _pinned(pin: Pin, known: dict[str, tuple[str, str, int]], *, changed: bool, dry_run: bool = False) -> Pinned:
    _, directory, size = known.get(pin.key, ("", "", None))
    since = datetime.fromtimestamp(pin.since, timezone.utc).isoformat(timespec="seconds") if pin.since else ""
    return Pinned(pin.key, pin.recipe, since, directory, size, changed, dry_run)


def _key(one: Named, known: Iterable[str], what: str = "record") -> str:
    if one.recipe or (len(one.key) == DIGITS and what == "record"):
        return one.key
    hint = "`cachekit store ls` lists the keys, `cachekit store pin --list` those that are pinned"
    return one_of(known, one.key, what, hint)
