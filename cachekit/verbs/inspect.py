"""Look at one record, and at compiled files wherever they lie: `show`, `neff`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from cachekit.compilers import registry
from cachekit.compilers.graphs import CompiledFile, StoredModule
from cachekit.errors import UnknownNameError
from cachekit.key.canonical import key_of
from cachekit.remotes.judging import Trust, envelopes_of
from cachekit.store import Store
from cachekit.store.index_rows import Listed
from cachekit.store.layout import Place
from cachekit.store.origin import Beside, How
from cachekit.store.record import Record
from cachekit.text import one_line
from cachekit.trust.statement import Builder, read_statement
from cachekit.values import Answer, by_value
from cachekit.verbs.entry import find, is_key


class Source(Struct, frozen=True):
    """Where a record came from, or one whose files it reuses.

    Attributes:
        key: Of the record.
        record: Its digest.
        remote: The remote, the bundle or the folder; empty where it was made in this store.
        how: Why it was taken: `here`, `owner`, `signed` or `all`; empty where nobody knows any more.
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


class StoredRecord(Record, Answer, frozen=True, kw_only=True):
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
    """A record whole: ingredients, modules, provenance; and whether hashing the ingredients gives its key.

    Args:
        store: The store.
        name: Its key, or the first digits.
        trust: What the settings say of signers.

    Raises:
        UnknownNameError: No key begins so, or several do.
    """
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
