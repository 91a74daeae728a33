"""Signatures of records: vouch for those of the store, and look which of a remote's would be used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from cachekit.errors import AuthError, Helps, RemoteError, UntrustedError, UsageError
from cachekit.remotes import document, layout
from cachekit.remotes.judging import OWN, advice, best, envelopes_of, name_of
from cachekit.remotes.remotes import remotes_of
from cachekit.store.layout import LOCAL
from cachekit.store.origin import Beside
from cachekit.store.record import Record
from cachekit.trust import envelope
from cachekit.values import Answer
from cachekit.verbs.entry import find
from cachekit.verbs.session import using_store

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote
    from cachekit.verbs.session import Session

MOST = 1000  # records of a remote that are looked at
SPOILT = 32  # records beside which signatures are false, that are judged as if they were alone there: 8 checks each


class SignedRecord(Answer, frozen=True, tag="cachekit/trust-sign/1"):
    """A record of the store that this user vouches for.

    Attributes:
        digest: Of the record's document.
        signers: Fingerprints of all keys that signed it, this user's among them.
        new: The signature was made now.
    """

    key: str
    recipe: str
    digest: str
    signers: tuple[str, ...]
    new: bool
    dry_run: bool = False


class JudgedRecord(Struct, frozen=True):
    """A record of a remote: whether it would be used, by whom it is signed, and why not; what helps, see `Planned`."""

    key: str
    recipe: str
    directory: str
    digest: str
    used: bool
    how: str = ""
    signers: tuple[str, ...] = ()
    reason: str = ""
    helps: Helps | Literal[""] = ""


class CheckedRemote(Answer, frozen=True, tag="cachekit/trust-check/1"):
    """Which records of a remote would be used.

    Attributes:
        remote: Its name.
        mode: What is asked of its records: `owner`, `signed` or `all`.
        demands: Why records need a signature; empty where they do not.
        writers: Who else than this user, or an organisation of this user, can write there, or why nobody knows: a
            sentence about the place; empty where nobody can.
        records: Those that were looked at.
        more: There are more, which were not looked at.
    """

    remote: str
    mode: str
    demands: str
    writers: str
    records: tuple[JudgedRecord, ...]
    more: bool = False

    def error(self) -> UntrustedError | None:
        """What to raise where there are records, and none would be used."""
        if not self.records or any(one.used for one in self.records):
            return None
        return UntrustedError(
            f"no record on {self.remote} is used",
            cause=self.records[0].reason or self.demands,
            hint=advice(best(one.helps for one in self.records)),
        )


@using_store
def sign(session: Session, names: Sequence[str], *, dry_run: bool = False) -> list[SignedRecord]:
    """Sign records of the store with this user's key; a push gives the signatures to others. See `Cache.trust_sign`."""
    from cachekit.trust.statement import holding
    from cachekit.trust.statement import sign as signed

    trust, store = session.remotes.trust, session.store
    if not trust.table.key:
        raise UsageError("no key signs what this user publishes", hint="make one: cachekit trust init")
    signer = trust.signer()
    own = signer.key
    done = []
    for record in [find(store, name) for name in names]:
        beside = store.origins.of(record)
        if reason := trust.unshared(record, beside):
            raise UntrustedError(f"{record.recipe} ({record.key[:12]}) is not signed", cause=reason, hint=OWN)
        known = envelopes_of(beside)
        new = not any(holding(record, known, own))
        if new and not dry_run:
            known = envelope.union([signed(record, signer, beside.origin)], known)
            store.publish(record, {}, beside=Beside(beside.origin, tuple(envelope.to_document(known)["envelopes"])))
        signers = tuple(dict.fromkeys(key.fingerprint for _, key, _ in holding(record, known)))
        done.append(SignedRecord(record.key, record.recipe, record.digest, signers, new, dry_run))
    return done


def check(session: Session, name: str) -> CheckedRemote:
    """Which records of a remote would be used now, and why the others would not; see `Cache.trust_check`."""
    remote = _remote(session, name)
    remote.retry()
    demands, revision = remote.demands(), remote.revision()
    writers = _writers(remote, session.store.layout.remotes)
    with remote.call() as storage:
        entries = list(islice(storage.list(layout.RECORDS, revision), MOST + 1))
    judged = list(_judged(remote, [entry.path for entry in entries[:MOST]], revision))
    mode, more = remote.trust.mode(remote.name), len(entries) > MOST
    return CheckedRemote(remote.name, mode, demands, writers, tuple(judged), more)


def _writers(remote: Remote, memory: Path) -> str:
    try:
        said = remote.storage.stranger(memory) or remote.storage.untold
    except (RemoteError, AuthError) as error:  # where no answer is needed, none is no failure
        return f"it is not known who can write there: {error.message}"
    if said and said == remote.storage.untold and remote.trust.vouches(remote.name):
        return f"{said}; the settings say that only your own people may"
    return said


def _judged(remote: Remote, paths: Sequence[str], revision: str) -> Iterator[JudgedRecord]:
    spoilt = 0
    for path in paths:
        with remote.call() as storage:
            shared = document.listed(storage, path, revision)
        if shared is None:
            continue
        record = shared.record
        if remote.vain and spoilt < SPOILT:  # false signatures beside one record say nothing of the next
            spoilt += 1
            remote.vain.clear()
        try:
            origin = remote.judge(shared, revision).origin
        except UntrustedError as error:
            yield structs.replace(_row(record, used=False, reason=error.cause), helps=error.helps)
        else:
            assert origin is not None  # what was judged has one
            names = remote.trust.policy.names(origin.signers)
            yield _row(record, used=True, how=origin.how, signers=names)


def _row(record: Record, *, used: bool, how: str = "", signers: tuple[str, ...] = (), reason: str = "") -> JudgedRecord:
    return JudgedRecord(record.key, name_of(record), record.directory, record.digest, used, how, signers, reason)


def _remote(session: Session, name: str) -> Remote:
    remotes = session.remotes
    if name:  # one that the list does not name is opened as `--cache` would
        config = structs.replace(session.config, cache=(LOCAL, name))
        remotes = remotes_of(config, session.journal)
    remotes.need("read")
    if len(remotes.readable) != 1:
        raise UsageError(
            "several remotes are configured",
            cause=f"there are {', '.join(one.name for one in remotes.readable)}",
            hint="name one of them",
        )
    return remotes.readable[0]
