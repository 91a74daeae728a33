"""A tier as a run uses it: what it may do there, left alone after a failure, its state pinned once.

What was not there is remembered for a moment, so that a sweep over a zoo does not ask again and again. Whoever would
compile because of it asks anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import document, layout, trust
from cachekit.remotes.breaker import Breaker
from cachekit.remotes.document import RECORD_LIMIT, Shared
from cachekit.remotes.layout import Place
from cachekit.remotes.port import Tier
from cachekit.store.record import DamagedRecordError, Record

ABSENT_SECONDS = 15.0
LANES = 8  # records read at once


@dataclass(frozen=True, slots=True)
class Found:
    """A record on a tier.

    Attributes:
        remote: Where.
        shared: The record.
        revision: The state of the tier in which it was read.
    """

    remote: Remote
    shared: Shared
    revision: str


@dataclass(slots=True)
class FoundAll:
    """What a tier said of many keys.

    Attributes:
        found: Records by key.
        damaged: Keys with what is no record of theirs, and what is wrong with it.
        error: Why some could not be read.
    """

    found: dict[str, Found] = field(default_factory=dict)
    damaged: dict[str, DamagedRecordError] = field(default_factory=dict)
    error: RemoteError | AuthError | None = None


class Remote:
    """One tier of a run.

    Args:
        tier: The tier.
        memory: A folder of the store for what is remembered between runs.
        readable: It may be read.
        writable: It may be written.
        trusted: What lies there is used, whoever may have made it.
    """

    def __init__(self, tier: Tier, memory: Path, *, readable: bool, writable: bool, trusted: bool = False) -> None:
        self.tier = tier
        self.name = tier.name
        self.readable = readable
        self.writable = writable
        self._memory = memory
        self._stranger: str | None = "" if trusted else None  # why it is not trusted; None until the tier was asked
        self._breaker = Breaker(memory, tier.name)
        own = memory / hashlib.sha256(tier.name.encode()).hexdigest()[:16]
        self._absent, self._pending = own / "absent", own / "pending"
        self.spoiled: set[str] = set()  # paths of files that this run found not to be what their record says
        self._revision: str | None = None
        self._passed_over: dict[str, Shared] = {}

    @contextmanager
    def call(self) -> Iterator[Tier]:
        """Talk to the tier inside of the block, unless it failed a moment ago.

        Raises:
            SkippedError: It did.
            RemoteError: It fails now.
        """
        with self._breaker.call():
            yield self.tier

    def state(self) -> str:
        """The present state, found out once; of one that is only written to as well.

        Raises:
            RemoteError, AuthError: See `Tier.revision`.
        """
        if self._revision is None:
            with self.call() as tier:
                self._revision = tier.revision()
        return self._revision

    def revision(self) -> str:
        """The state that this run reads: whatever reads there begins with it, and so with the question of trust.

        Raises:
            UntrustedError: What lies there may be somebody else's.
            RemoteError, AuthError: See `Tier.revision`.
        """
        state = self.state()
        if self._stranger is None:
            with self.call() as tier:
                self._stranger = tier.stranger(self._memory)
        if self._stranger:
            raise trust.refusal(self.name, self._stranger)
        return state

    @property
    def public(self) -> bool:
        """Whether anybody can read it, as far as the tier said so far."""
        return self.tier.public

    def usable(self) -> bool:
        """Whether it would be asked now: it did not fail a moment ago."""
        return not self._breaker.broken

    def retry(self) -> None:
        """Ask again although it failed a moment ago: a person wants it."""
        self._breaker.reset()
        if self._stranger:
            self._stranger = None  # the tier may be somebody else's no longer
        self.refresh()

    def refresh(self) -> None:
        """Look at the present state from now on: while waiting for somebody, after a push."""
        self._revision = None

    def pass_over(self, found: Found) -> None:
        """Take this record for absent in this run: it could not be fetched."""
        self._passed_over[found.shared.record.key] = found.shared

    def find(self, directory: str, model_type: str, key: str, *, anew: bool = False) -> Found | None:
        """The record of a key; None where there is none, one that only a later cachekit reads, or one passed over.

        Args:
            directory: The compiler's.
            model_type: As in the record.
            key: The key.
            anew: Ask, whatever is remembered.

        Raises:
            RemoteError, AuthError: It cannot be asked.
            DamagedRecordError: What lies there is no record of this key.
        """
        note = self._absent / key
        if not anew and _fresh(note):
            return None
        revision = self.revision()
        try:
            with self.call() as tier:
                found = tier.read(layout.record_path(directory, model_type, key), revision, RECORD_LIMIT)
        except IntegrityError as error:  # a body without end, say
            raise DamagedRecordError(error.cause or error.message) from error
        if found is None:
            self._remember_absent([key])
            return None
        with suppress(OSError):
            note.unlink(missing_ok=True)
        shared = document.read(found.data)
        if shared is None:
            return None
        record = shared.record
        if (record.directory, record.model_type, record.key) != (directory, model_type, key):
            raise DamagedRecordError("it is another key's record")
        if shared == self._passed_over.get(key):
            return None
        return Found(self, shared, revision)

    def find_all(self, places: Sequence[Place], *, anew: bool = False) -> FoundAll:
        """The records of many keys: one question which of them exist, however many they are, then each of those.

        Args:
            places: Where records lie.
            anew: Ask, whatever is remembered.

        Raises:
            RemoteError, AuthError: It cannot be asked at all.
        """
        if len(places) > 1:  # of a single one the record itself is the shorter question
            places = [place for place in places if anew or not _fresh(self._absent / place.key)]
            there = self.exist([layout.record_path(*place) for place in places]) if places else set()
            self._remember_absent([place.key for place in places if layout.record_path(*place) not in there])
            places = [place for place in places if layout.record_path(*place) in there]
            anew = True
        answer = FoundAll()

        def one(place: Place) -> Found | DamagedRecordError | RemoteError | AuthError | None:
            try:
                return self.find(*place, anew=anew)
            except (DamagedRecordError, RemoteError, AuthError) as error:
                return error

        with ThreadPoolExecutor(LANES, "cachekit-find") as pool:
            results = pool.map(one, places) if len(places) > 1 else map(one, places)
            for place, found in zip(places, results, strict=True):
                if isinstance(found, Found):
                    answer.found[place.key] = found
                elif isinstance(found, DamagedRecordError):
                    answer.damaged[place.key] = found
                elif found is not None:
                    answer.error = answer.error or found
        return answer

    def _remember_absent(self, keys: Sequence[str]) -> None:
        with suppress(OSError):
            if keys:
                self._absent.mkdir(parents=True, exist_ok=True)
            for key in keys:
                (self._absent / key).touch()

    def exist(self, paths: Sequence[str]) -> set[str]:
        """Which of the files exist: two requests for a thousand.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        revision = self.revision()
        with self.call() as tier:
            return set(tier.stat(paths, revision))

    def settled(self, keys: Sequence[str]) -> None:
        """After a push these are there: neither absent nor pending."""
        for key in keys:
            self._passed_over.pop(key, None)
            for note in (self._absent / key, self._pending / key):
                with suppress(OSError):
                    note.unlink(missing_ok=True)

    def keep_pending(self, record: Record, reason: str) -> None:
        """Note that a record could not be put there."""
        with suppress(OSError):  # a store that cannot be written: it is told, and offered no more
            self._pending.mkdir(parents=True, exist_ok=True)
            note = {"directory": record.directory, "model_type": record.model_type, "reason": reason}
            (self._pending / record.key).write_text(json.dumps(note), encoding="utf-8")

    def pending(self) -> dict[str, tuple[str, str]]:
        """Keys of records that could not be put there, each with its compiler's directory and model type.

        These are empty where a full disk took no more than the note's name.
        """
        found = {}
        with suppress(OSError):
            for note in sorted(self._pending.iterdir()):
                found[note.name] = ("", "")
                with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                    document = json.loads(note.read_text(encoding="utf-8"))
                    found[note.name] = (str(document["directory"]), str(document["model_type"]))
        return found


def _fresh(note: Path) -> bool:
    try:
        return 0 <= time.time() - note.stat().st_mtime < ABSENT_SECONDS
    except OSError:
        return False
