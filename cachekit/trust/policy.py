"""Whose records are used: what the settings say, and how a record is judged by it.

A signature counts if it holds, is over a statement about exactly this record, and was made with a key that the settings
name, while they let it. One that counts is enough: others beside it, of whatever kind, take nothing away. What is
revoked is refused whoever signed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Literal

from msgspec import Struct, field, structs

from cachekit import redact
from cachekit.config_trust import YOU, Mode, TrustTable, is_fingerprint, is_own
from cachekit.errors import Helps, UsageError
from cachekit.store.origin import Origin, ReusedOrigin
from cachekit.store.record import Record
from cachekit.text import cut, first_of
from cachekit.trust import sshsig
from cachekit.trust.envelope import Envelope, MalformedError
from cachekit.trust.signer import holds, key_of
from cachekit.trust.sshsig import PublicKey, public_key
from cachekit.trust.statement import (
    CHECKS,
    PAYLOAD_TYPE,
    StatedReuse,
    Statement,
    holding,
    is_about,
    moment,
    read_statement,
    standing,
)
from cachekit.values import by_value

NOBODY = "signed by nobody you trust"
_LOST = "no longer signed by anybody you trust"
UNSIGNED = "not signed"
_NOT_TODAY = "whose key is not valid today"
VAIN = 8  # checks in vain, after which what lies beside the other records of a place is not looked at
_SKEW = timedelta(days=1)  # how wrong a signer's clock may be


class KnownSigner(Struct, frozen=True):
    """Somebody whose records are used: a name, a key, from when until when; and whether that is this user."""

    name: str
    key: PublicKey
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    own: bool = False


class Judgement(Struct, frozen=True):
    """Whether a record may be used, and why.

    Attributes:
        how: `signed`, `owner` or `all`; empty where the record is not trusted.
        created: When the newest statement was made that counts, by the fingerprint of its key, in one form that sorts.
        reused: What the newest of all says the record reuses: the newest of this user's own, if there is one. What
            others say of that is `stated`.
        reason: Why the record is not trusted: words that go on after "it is" or "there, but".
        helps: What helps with that: nothing where the settings revoke something.
    """

    how: Literal["", "signed", "owner", "all"] = ""
    created: Mapping[str, str] = {}
    reused: tuple[StatedReuse, ...] = ()
    reason: str = ""
    helps: Helps = "anew"

    __hash__ = by_value

    @property
    def trusted(self) -> bool:
        """Whether the record may be used."""
        return bool(self.how)

    @property
    def keys(self) -> tuple[str, ...]:
        """The fingerprints of the keys whose signatures count."""
        return tuple(self.created)


class _Checked(Struct, frozen=True):
    """What came of one signature: whose it is and what it says, or why it does not count.

    Attributes:
        key: The fingerprint of its key.
        statement: What it is over; None where it does not count.
        reason: Why it does not.
        helps: What helps with that.
        own: This user signed.
        lost: This user signed, and what the record reuses was taken for a signature by somebody who is not believed.
    """

    key: str = ""
    statement: Statement | None = None
    reason: str = ""
    helps: Helps = "anew"
    own: bool = False
    lost: bool = False


class _Spent(Struct):
    """What the signatures beside a record cost so far.

    Attributes:
        before: Checks in vain beside other records; see `Policy.judge`.
        vain: Those beside this one, by key.
        keys: How many name a key.
        stale: How many hold, and are about another record.
    """

    before: int
    vain: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    stale: int = 0


class Policy(Struct, frozen=True):
    """What the settings say of trust.

    Attributes:
        signers: Those whose records are used, with the user's own key.
        table: The settings' table.
    """

    signers: tuple[KnownSigner, ...] = ()
    table: TrustTable = TrustTable()

    __hash__ = by_value

    def names(self, fingerprints: Sequence[str]) -> tuple[str, ...]:
        """The names that the settings give to keys; a key that they do not name is its fingerprint."""
        known = {one.key.fingerprint: one.name for one in reversed(self.signers)}
        return tuple(known.get(one, one) for one in fingerprints)

    def judge(
        self,
        record: Record,
        envelopes: Sequence[Envelope],
        *,
        mode: Mode = "signed",
        now: datetime | None = None,
        vain: Counter[str] | None = None,
    ) -> Judgement:
        """Whether a record that lies somewhere may be used.

        Args:
            record: The record, as it is presented.
            envelopes: What lies beside it.
            mode: `signed` needs a signature; `owner` none, as only this user, or an organisation of this user, can
                write there, and what this user's own statement says of the record's origin holds there as in the
                store; `all` none, and one by a revoked key counts against the record only where no other counts.
            now: The time; the clock's by default.
            vain: How many signatures of known signers' keys were checked in vain where the record lies, by key: each
                costs 10 ms, and anybody may write them beside many records. This record's are counted there, too, if
                none counts; after `VAIN` no signature there is looked at.
        """
        now = now or datetime.now(timezone.utc)
        if reason := self.revoked(record):
            return Judgement(reason=reason, helps="nothing")
        if mode == "all" and not self.table.revokes:
            return Judgement("all")
        vain = Counter() if vain is None else vain
        spent = _Spent(vain.total())
        checked = [self._check(record, envelope, now, spent) for envelope in envelopes]
        good = [(one, one.statement) for one in checked if one.statement is not None]
        if not good:  # a true one was not put there by whoever writes false ones beside many records
            vain.update(spent.vain)
            vain["stale"] += spent.stale if mode == "signed" else 0
        withdrawn = next((one for one in checked if one.helps == "nothing"), None)
        if mode == "all" and (good or withdrawn is None):
            return Judgement("all")
        if good:
            created: dict[str, str] = {}
            for one, statement in good:
                said = moment(statement.predicate.created).isoformat(timespec="milliseconds")
                created[one.key] = max(created.get(one.key, ""), said)
            newest, latest = max(good, key=lambda pair: (pair[0].own, moment(pair[1].predicate.created)))
            reused = latest.predicate.reused
            if not newest.own:  # it rests on that signer alone
                reused = tuple(structs.replace(one, how="stated") for one in reused)
            return Judgement("signed", created, reused)
        lost = next((one for one in checked if one.lost), None)
        if mode == "owner" and not (withdrawn or lost):
            return Judgement("owner")
        # The reason that says most: what is revoked, then what a known signer's signature lacks.
        if told := withdrawn or lost or next((one for one in checked if one.helps != "signer"), None):
            return Judgement(reason=told.reason, helps=told.helps)
        reason = f"{NOBODY} ({_some([one.key for one in checked])})" if checked else UNSIGNED
        return Judgement(reason=reason, helps="signer")

    def revoked(self, record: Record, origin: Origin | None = None) -> str:
        """Why a record is no longer used, wherever it lies; empty where nothing about it is revoked.

        Args:
            record: The record.
            origin: Of a record of the store: under which keys it was believed, and what it reuses.
        """
        digest = record.digest if self.table.revoked.records else ""
        reason = self.withdrawn(record.provenance.created, digest, origin.signers if origin else ())
        return reason or (self._revoked_reuse(origin.reused) if origin else "")

    def withdrawn(self, created: str, digest: str, signers: Sequence[str]) -> str:
        """Why a record is no longer used of which so much is known; empty where nothing of that is revoked.

        Args:
            created: When it was made, as it says.
            digest: Its digest, or the first digits of it; empty where that is not known.
            signers: The fingerprints of the keys that it rests on.
        """
        gone = self.table.revoked
        if gone.before and _time(created) < gone.before:
            return f"made before {gone.before:%Y-%m-%d %H:%M} UTC, and everything made before then is revoked"
        if digest and any(one.startswith(digest) for one in gone.records):
            return "revoked by its digest"
        withdrawn = self._withdrawn(signers)
        return f"signed with {withdrawn}, which is revoked" if withdrawn else ""

    def believes(self, fingerprints: Sequence[str], now: datetime | None = None) -> bool:
        """Whether the settings name one of these keys, and let it sign today."""
        now, wanted = now or datetime.now(timezone.utc), set(fingerprints) - set(self.table.revoked.keys)
        known = {one.key.fingerprint for one in self.signers} & wanted
        return any(_valid([one for one in self.signers if one.key.fingerprint == key], now) for key in known)

    def unbelieved(self, fingerprints: Sequence[str], *, once: bool = False) -> tuple[str, Helps]:
        """Why no key of some, of which one was `once`, is believed: words that go on after "it is"; and what helps."""
        nobody = _LOST if once else NOBODY
        wanted = set(fingerprints) - set(self.table.revoked.keys)
        now = datetime.now(timezone.utc)
        ended = [one.name for one in self.signers if one.key.fingerprint in wanted and not _valid([one], now)]
        keys = _some([one for one in fingerprints if is_fingerprint(one)])  # a note may say anything
        if ended:
            return f"signed by {ended[0]}, {_NOT_TODAY}", "anew"
        return f"{nobody} ({keys})" if keys else nobody, "signer"

    def unrevoked(self, record: Record, envelopes: Sequence[Envelope]) -> tuple[str, ...]:
        """The keys whose signatures over a record others may believe: the settings revoke neither key nor statement.

        A signature that nothing here can check counts.
        """
        stand = standing(record, envelopes, VAIN)
        ended = {
            envelope.payload
            for envelope, _, statement in holding(record, stand)
            if self._dated(statement) or self._revoked_reuse(statement.predicate.reused)
        }
        signed = (one.sig for envelope in stand if envelope.payload not in ended for one in envelope.signatures)
        keys = dict.fromkeys(sshsig.parse(one).key.fingerprint for one in signed)
        return tuple(key for key in keys if key not in self.table.revoked.keys)

    def _dated(self, statement: Statement) -> str:
        """Why a statement does not count because of the date that the settings revoke; empty where it does."""
        before = self.table.revoked.before
        if before is None or moment(statement.predicate.created) >= before:
            return ""
        return f"signed before {before:%Y-%m-%d %H:%M} UTC, and everything signed before then is revoked"

    def _withdrawn(self, fingerprints: Sequence[str], now: datetime | None = None) -> str:
        """The revoked key on which the use of a record rests; empty where none is, or another signer is believed.

        A key that the settings do not name leaves nothing: anybody can make one, and sign with it.
        """
        gone = [one for one in fingerprints if one in self.table.revoked.keys]
        return gone[0] if gone and not self.believes(fingerprints, now) else ""

    def _revoked_reuse(self, reused: Iterable[StatedReuse | ReusedOrigin], now: datetime | None = None) -> str:
        gone = self.table.revoked
        for one in reused:
            before = gone.before and one.created and _time(one.created) < gone.before  # not said: it may be younger
            if before or one.record in gone.records or self._withdrawn(one.signers, now):
                return f"made by reuse of {one.key[:12]}, which is revoked"
        return ""

    def _lost_reuse(self, reused: Iterable[StatedReuse], now: datetime) -> tuple[str, Helps] | None:
        """What this user took for a signature by somebody whom the settings do not believe now; and what helps."""
        for one in reused:
            if one.taken == "signed" and not self.believes(one.signers, now):
                why, helps = self.unbelieved(one.signers, once=True)
                return f"made by reuse of {one.key[:12]}, {why}", helps
        return None

    def _check(self, record: Record, envelope: Envelope, now: datetime, spent: _Spent) -> _Checked:
        """What the best signature of an envelope comes to."""
        found = [self._check_one(record, envelope, signature.sig, now, spent) for signature in envelope.signatures]
        order = sorted(
            found, key=lambda one: (one.statement is None, one.helps != "nothing", not one.lost, one.helps == "signer")
        )
        return order[0] if order else _Checked(reason=UNSIGNED, helps="signer")

    def _check_one(self, record: Record, envelope: Envelope, blob: bytes, now: datetime, spent: _Spent) -> _Checked:
        if envelope.payload_type != PAYLOAD_TYPE:
            return _Checked(
                reason=f"signed as {redact.address(cut(envelope.payload_type, 80))!r}, which is not a statement"
            )
        try:
            key = sshsig.parse(blob).key
        except MalformedError as error:
            return _Checked(reason=f"signed in a way that cannot be used: {error}")
        print_ = key.fingerprint
        if print_ in self.table.revoked.keys:
            return _Checked(reason=f"signed with {print_}, which is revoked", helps="nothing")
        # A key that stands there twice is believed while both say so: one line is enough to withdraw it.
        known = [one for one in self.signers if one.key == key]
        if not known:
            return _Checked(key=print_, reason=NOBODY, helps="signer")
        name = known[0].name
        if over := [one.name for one in known if not _valid([one], now)]:
            return _Checked(reason=f"signed by {over[0]}, {_NOT_TODAY}")
        spent.keys[print_] += 1
        if spent.keys[print_] > CHECKS:
            return _Checked(reason=f"signed more than {CHECKS} times in {name}'s name")
        if spent.before + spent.vain.total() >= VAIN:
            why = f"{VAIN} other signatures there are false, or about other records, and so no more are checked"
            return _Checked(reason=f"signed in {name}'s name, but {why}")
        try:
            if not holds(key, blob, envelope.message):
                spent.vain[print_] += 1
                return _Checked(reason=f"signed in {name}'s name, and that signature is not valid")
            statement = read_statement(envelope.payload)
            created = moment(statement.predicate.created)
        except UsageError as error:
            return _Checked(reason=f"signed by {name}, but {error.message}: {error.cause}; {error.hint}")
        except ValueError as error:
            return _Checked(reason=f"signed by {name}, but that statement cannot be used: {error}")
        if created > now + _SKEW:
            return _Checked(reason=f"signed by {name} at a time that has not come yet")
        if not _valid(known, created):
            return _Checked(reason=f"signed by {name} when that key was not valid")
        if reason := self._dated(statement):
            return _Checked(reason=reason, helps="nothing")
        if not is_about(statement, record):
            spent.stale += 1
            return _Checked(reason=f"signed by {name}, but as a different record")
        if reason := self._revoked_reuse(statement.predicate.reused, now):
            return _Checked(reason=reason, helps="nothing")
        own = any(one.own for one in known)
        # A teammate answers for what that one took; of what this user took, the settings are asked again.
        if own and (lost := self._lost_reuse(statement.predicate.reused, now)):
            return _Checked(reason=f"signed by {name}, and {lost[0]}", helps=lost[1], lost=True)
        return _Checked(print_, statement, own=own)


def policy_of(table: TrustTable, origin: str = "") -> Policy:
    """What a table of the settings says.

    Args:
        table: The table.
        origin: Where it stands, for people.

    Raises:
        UsageError: A signer's key is none, or of a kind that is not taken.
    """
    signers = []
    for name, one in table.signers.items():
        try:
            key = public_key(one.key)
            signers.append(KnownSigner(name, key, one.valid_after, one.valid_before, own=is_own(name)))
        except ValueError as error:
            raise UsageError(
                f"[trust.signers.{redact.address(name)}]: its key cannot be used",
                cause=f"{f'from {origin}: ' if origin else ''}{error}",
                hint=f"`cachekit trust add {redact.address(name)} FILE.pub` writes it",
            ) from error
    if table.key:
        with suppress(UsageError):  # a key that is not there says so when it is to sign
            own = key_of(table.key)
            signers = [structs.replace(one, own=one.own or one.key == own) for one in signers]
            if all(one.key != own for one in signers):
                signers.append(KnownSigner(YOU, own, own=True))
    return Policy(tuple(signers), table)


def _some(fingerprints: Sequence[str]) -> str:
    """The keys that nobody knows: of some, as anybody can sign with many."""
    return first_of(dict.fromkeys(fingerprints), 2)


def _valid(known: Sequence[KnownSigner], at: datetime) -> bool:
    return all(
        (one.valid_after is None or one.valid_after <= at) and (one.valid_before is None or at < one.valid_before)
        for one in known
    )


def _time(created: str) -> datetime:
    """A time as a record says it; one that cannot be read is long ago, and so before any date."""
    try:
        return moment(created)
    except MalformedError:
        return datetime.min.replace(tzinfo=timezone.utc)
