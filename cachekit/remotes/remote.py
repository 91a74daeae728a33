"""A remote as a run uses it: with its permissions, skipped after a failure, its revision pinned once.

What was not there is remembered for a moment, so that a sweep over a zoo does not ask again and again. Whoever would
compile because of it asks anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from cachekit.config_trust import Mode
from cachekit.errors import AuthError, IntegrityError, RemoteError, TooLargeError
from cachekit.remotes import document, layout, parts
from cachekit.remotes.breaker import Breaker
from cachekit.remotes.budget import each
from cachekit.remotes.document import Shared
from cachekit.remotes.judging import HINT_BARE, Trust, beside_of, origin_of, refusal, unreadable, untrusted
from cachekit.remotes.notes import Copies, Notes, short
from cachekit.remotes.patience import Patience, patient
from cachekit.remotes.port import Storage
from cachekit.store.layout import Place
from cachekit.store.origin import Beside, Origin
from cachekit.store.record import LARGEST, DamagedRecordError, Digest, Record
from cachekit.text import spelled
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.index import Known
    from cachekit.trust.envelope import Envelope

ABSENT_SECONDS = 15.0
LANES = 8  # records read at once


class _Seen(Struct, frozen=True):
    """The newest record of a key that a signer signed: when, and its digest."""

    created: str
    record: Digest


class Found(Struct, frozen=True):
    """A record on a remote.

    Attributes:
        remote: Where.
        shared: The record.
        revision: The state of the remote in which it was read.
        origin: Why it may be used; None where its bytes are those of a record that the store has.
        kept: What the store keeps beside that one.
        envelopes: The signatures beside it; None where they were not read, as none was needed.
    """

    remote: Remote
    shared: Shared
    revision: str
    origin: Origin | None = None
    envelopes: tuple[Envelope, ...] | None = None
    kept: Beside | None = None

    __hash__ = by_value

    def beside(self) -> Beside | None:
        """What the store keeps beside it: its signatures also where none is needed, so that one can be revoked later.

        Raises:
            UntrustedError: They are too many bytes.
            RemoteError, AuthError: The signatures cannot be read.
        """
        if self.origin is None:
            return self.kept
        envelopes = self.envelopes
        if envelopes is None:
            envelopes, _ = self.remote.signatures(self.shared.record, self.revision)
        return beside_of(self.shared.record, self.origin, envelopes)


Outcome = Found | DamagedRecordError | RemoteError | AuthError  # of a key: its record, or why there is none


class Remote:
    """One remote of a run.

    Args:
        storage: Where it lies.
        memory: A folder of the store for what is remembered between runs.
        readable: It may be read.
        writable: It may be written.
        trust: What this run asks of records.
        patience: How long this run asks again.

    Attributes:
        vain: Signatures that were checked in vain there, by key; see `Policy.judge`.
    """

    def __init__(
        self,
        storage: Storage,
        memory: Path,
        *,
        readable: bool,
        writable: bool,
        trust: Trust | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.storage = storage
        own = memory / short(storage.name)
        storage.copies = Copies(own / "documents")
        self._patience = patience or Patience()
        self._patient = patient(storage, self._patience)
        self.name = storage.name
        self.readable = readable
        self.writable = writable
        self._memory = memory
        self.trust = trust or Trust()
        self._demands: str | None = None  # why records need a signature; None until the remote was asked
        self._breaker = Breaker(memory, storage.name)
        self._absent, self._pending = Notes(own / "absent"), Notes(own / "pending")
        self.vain: Counter[str] = Counter()
        # Paths of files that this run found not to be what their record says, and of records that it could not read.
        self.spoiled: set[str] = set()
        self.told = ""  # why it is not used, once this run has said so
        self._revision: str | None = None
        self._passed_over: dict[str, Shared] = {}

    @contextmanager
    def call(self) -> Iterator[Storage]:
        """Talk to the remote inside of the block, unless it failed a moment ago; see `patience`.

        Raises:
            SkippedError: It did.
            RemoteError: It fails now.
        """
        with self._breaker.call(once=self._patience.is_once):
            yield self._patient

    def revision(self) -> str:
        """The revision that this run reads, asked for once.

        Raises:
            RemoteError, AuthError: See `Storage.revision`.
        """
        if self._revision is None:
            with self.call() as storage:
                self._revision = storage.revision()
        return self._revision

    def asked(self, revision: str) -> None:
        """Take a revision that the remote named for a push as that of this run, if it has none."""
        if self._revision is None:
            self._revision = revision

    def demands(self) -> str:
        """Why a record needs the signature of somebody whom the settings name; empty where it does not.

        Raises:
            RemoteError, AuthError: It cannot be asked who may write there.
        """
        mode = self.trust.mode(self.name)
        if mode == "all":
            return ""
        if mode == "signed":
            return self.trust.signs
        if self._demands is None:
            self.revision()  # which tells most of it
            with self.call() as storage:
                self._demands = storage.stranger(self._memory) or self.untold
        return self._demands

    @property
    def untold(self) -> str:
        """Why a record needs a signature: who may write there cannot be asked, nor do the settings say; else empty."""
        asked = self.trust.mode(self.name) == "owner" and not self.trust.vouches(self.name)
        return self.storage.untold if asked else ""

    @property
    def picks(self) -> bool:
        """Whether some records there may be told of and others not: those are told apart by reading each.

        So it is where the settings revoke something, which an index may not know of. Each run asks: what was remembered
        of a remote that has been opened to others since would be told of them. Of a private one this costs no request
        where nothing that is known says that it is somebody else's: whose token this is, is asked before any of it is
        used.

        Raises:
            RemoteError, AuthError: See `demands`.
        """
        if self.trust.table.revokes:
            return True
        if self._demands is None and self.trust.mode(self.name) == "owner":
            self.revision()
            if self.storage.private and not self.storage.known_stranger(self._memory):
                return False
        return bool(self.demands())

    def withdrawn(self, known: Known) -> str:
        """Why a record is revoked, by what an index says of it: such a one need not be read to be left out."""
        if not self.trust.table.revokes:
            return ""
        return self.trust.policy.withdrawn(known.created, known.digest, known.signers)

    def owned(self) -> Origin:
        """The origin of bare files there, which no signature names.

        Raises:
            UntrustedError: Others may have put them there.
            RemoteError, AuthError: See `demands`.
        """
        if demands := self.demands():
            raise refusal(self.name, demands, HINT_BARE)
        return Origin(spelled(self.name), "all" if self.trust.mode(self.name) == "all" else "owner")

    def signatures(self, record: Record, revision: str) -> tuple[tuple[Envelope, ...], str]:
        """The signatures over a record there, and why what lies there cannot be read, where it cannot.

        Raises:
            UntrustedError: They have too many bytes. Without them nobody could revoke the record by a signer's key.
            RemoteError, AuthError: It cannot be asked.
        """
        from cachekit.trust import envelope

        most = envelope.largest(record)
        try:
            with self.call() as storage:
                found = storage.read(layout.signatures_path(record.place), revision, most)
            return envelope.decode(found.data) if found else (), ""
        except TooLargeError as error:
            reason = f"{envelope.too_large(most)}; `cachekit push` by a signer writes them again"
            raise untrusted(self.name, record, reason, "anew") from error
        except (envelope.MalformedError, IntegrityError) as error:
            return (), str(error)

    def judge(
        self,
        shared: Shared,
        revision: str,
        *,
        past: bool = False,
        stray: str = "",
        envelopes: tuple[Envelope, ...] | None = None,
    ) -> Found:
        """A record that was read there, and may be used.

        Args:
            shared: The record.
            revision: The state that it was read in, of which its signatures are read.
            past: That is an earlier state on purpose, in which older signatures are nobody's trick.
            stray: Why that state may be anybody's, so that a signature is needed; empty where it is the remote's own.
            envelopes: Its signatures, where they are known.

        Raises:
            UntrustedError: It may not.
            UsageError: The settings name a signer's key that is none.
            RemoteError, AuthError: It cannot be asked who may write there, or who signed it.
        """
        demands = self.demands() or (stray if self.trust.mode(self.name) != "all" else "")
        if not demands:  # a signature would vouch for the bytes, whoever put them there
            with self.call() as storage:
                storage.check([path for sha256, (_, path) in shared.paths.items() if sha256 not in shared.inline])
        # Where no signature is asked for, this user's own still says what the record reuses.
        owned = None if demands or self.trust.table.revokes else self.owned()
        if owned and (owned.how == "all" or not self.trust.table.key):
            return Found(self, shared, revision, owned, envelopes)
        record, damage = shared.record, ""
        if envelopes is None:
            envelopes, damage = self.signatures(record, revision)
        mode: Mode = "signed" if demands else self.trust.mode(self.name)
        verdict = self.trust.policy.judge(record, envelopes, mode=mode, vain=self.vain)
        if owned and verdict.trusted:
            reused = tuple(one for one in origin_of(self.name, verdict).reused if one.how == "signed")
            return Found(self, shared, revision, structs.replace(owned, reused=reused), envelopes)
        reason, helps = unreadable(verdict, damage)
        if reason := reason or (not past and self._replayed(record, verdict.created)) or "":
            raise untrusted(self.name, record, reason, helps, demands)
        return Found(self, shared, revision, origin_of(self.name, verdict), envelopes)

    def _replayed(self, record: Record, created: Mapping[str, str]) -> str:
        """Whether a newer record of the key was seen there, signed by somebody who is believed still, in words.

        Of each signer the newest is remembered, with the time of its statement; of a time to come this moment, as it
        would hold up what others sign until then.

        Args:
            record: The record.
            created: See `Judgement`.
        """
        if not created:
            return ""
        with self.call() as storage:
            place = storage.place()  # another way to name it does not forget
        seen = Notes(self._memory / short(place) / "seen")
        known = seen.read(record.key, dict[str, _Seen]) or {}
        others = {signer: one for signer, one in known.items() if one.record != record.digest}
        gone = self.trust.table.revoked.records
        believed = [
            one.created
            for signer, one in others.items()
            if one.record not in gone and self.trust.policy.believes([signer])
        ]
        said, newest = max(created.values()), max(believed, default="")
        if newest > said:
            return f"signed at {said[:19]}, and what was there before at {newest[:19]}: it was put back"
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        news = {
            signer: _Seen(min(at, now), record.digest)
            for signer, at in created.items()
            if signer not in known or (signer in others and others[signer].created < at)
        }
        if news:
            seen.write(record.key, {**known, **news})
        return ""

    @property
    def public(self) -> bool:
        """Whether anybody can read it, as far as the remote said so far."""
        return self.storage.public

    def usable(self) -> bool:
        """Whether it would be asked now: it did not fail a moment ago."""
        return not self._breaker.broken

    def retry(self) -> None:
        """Forget a failure: a person wants the remote to be asked again."""
        self._breaker.reset()
        if self._demands:
            self._demands = None  # the remote may be somebody else's no longer
        self.refresh()

    def refresh(self) -> None:
        """Read the present revision from now on: while waiting for another machine, and after a push."""
        self._revision = None

    def pass_over(self, found: Found) -> None:
        """Treat this record as absent for the rest of the run: fetching it failed."""
        self._passed_over[found.shared.record.key] = found.shared

    def find(self, place: Place, *, anew: bool = False) -> Found | None:
        """The record at a place; None where there is none, only a later cachekit reads it, or it was passed over.

        Args:
            place: Where it lies.
            anew: Ask, whatever is remembered.

        Raises:
            RemoteError, AuthError: It cannot be asked.
            UntrustedError: There is one, and it may not be used.
            DamagedRecordError: What lies there is no record of this key.
        """
        key = place.key
        if not anew and self._was_absent(key):
            return None
        revision = self.revision()
        try:
            shared = self._read(place, revision)
        except DamagedRecordError:  # on its way, maybe
            try:
                shared = self._read(place, revision)
            except DamagedRecordError:
                self.spoiled.add(layout.record_path(place))
                raise
        if shared is None or shared == self._passed_over.get(key):
            return None
        return self.judge(shared, revision)

    def _read(self, place: Place, revision: str) -> Shared | None:
        try:
            with self.call() as storage:
                found = storage.read(layout.record_path(place), revision, LARGEST)
                shared = document.read(found.data, parts.fetching(storage, revision)) if found else None
        except IntegrityError as error:  # a body without end, say
            raise DamagedRecordError(error.cause or error.message) from error
        if found is None:
            self._absent.touch(place.key)
            return None
        self._absent.remove(place.key)
        if shared is not None and shared.record.place != place:
            raise DamagedRecordError("it is the record of another key")
        return shared

    def find_all(self, places: Sequence[Place], *, anew: bool = False) -> dict[str, Outcome]:
        """The records of many keys: one question which of them exist, however many they are, then each of those.

        Args:
            places: Where records lie.
            anew: Ask, whatever is remembered.

        Returns:
            By key; a key without a record is not among them.

        Raises:
            RemoteError, AuthError: It cannot be asked at all.
        """
        if len(places) > 1:  # of a single one the record itself is the shorter question
            places = [place for place in places if anew or not self._was_absent(place.key)]
            there = self.exist([layout.record_path(place) for place in places]) if places else set()
            for place in places:
                if layout.record_path(place) not in there:
                    self._absent.touch(place.key)
            places = [place for place in places if layout.record_path(place) in there]
            anew = True
        if len(places) > 1:
            self.demands()  # asked for once

        def one(place: Place) -> Outcome | None:
            try:
                return self.find(place, anew=anew)
            except (DamagedRecordError, RemoteError, AuthError) as error:
                return error

        outcomes = each([partial(one, place) for place in places], LANES)
        return {place.key: outcome for place, outcome in zip(places, outcomes, strict=True) if outcome is not None}

    def _was_absent(self, key: str) -> bool:
        age = self._absent.age(key)
        return age is not None and age < ABSENT_SECONDS

    def exist(self, paths: Sequence[str]) -> set[str]:
        """The paths of those files that exist; two requests for a thousand.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        revision = self.revision()
        with self.call() as storage:
            return set(storage.stat(paths, revision))

    def serves(self, files: Mapping[str, str]) -> set[str]:
        """The paths of those files, of which the digests are said, that can be fetched: see `Fetch`.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        there = self.exist(sorted(files))
        spare = {path: layout.blob_path(sha256) for path, sha256 in files.items() if path not in there}
        with self.call() as storage:
            if storage.compares or not spare:
                return there
        lying = self.exist(sorted(set(spare.values())))
        return there | {path for path, blob in spare.items() if blob in lying}

    def settled(self, keys: Sequence[str]) -> None:
        """Note that a push put these keys there: they are neither absent nor pending."""
        for key in keys:
            self._passed_over.pop(key, None)
            self._absent.remove(key)
            self._pending.remove(key)

    def keep_pending(self, key: str) -> None:
        """Note that the record of a key could not be put there."""
        self._pending.touch(key)

    def pending(self) -> set[str]:
        """Keys of records that could not be put there."""
        return set(self._pending.names())
