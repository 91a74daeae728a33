"""A remote as a run uses it: with its permissions, skipped after a failure, its revision pinned once.

What was not there is remembered for a moment, so that a sweep over a zoo does not ask again and again. Whoever would
compile because of it asks anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import document, layout, trust
from cachekit.remotes.breaker import Breaker
from cachekit.remotes.budget import each
from cachekit.remotes.document import RECORD_LIMIT, Shared
from cachekit.remotes.notes import Notes, short
from cachekit.remotes.port import Storage
from cachekit.store.layout import Place
from cachekit.store.record import DamagedRecordError

ABSENT_SECONDS = 15.0
_ASKED = "asked"  # the note of when a remote was last asked whether it is trusted, and was
LANES = 8  # records read at once


class Found(Struct, frozen=True):
    """A record on a remote.

    Attributes:
        remote: Where.
        shared: The record.
        revision: The state of the remote in which it was read.
    """

    remote: Remote
    shared: Shared
    revision: str


Outcome = Found | DamagedRecordError | RemoteError | AuthError  # of a key: its record, or why there is none


class Remote:
    """One remote of a run.

    Args:
        storage: Where it lies.
        memory: A folder of the store for what is remembered between runs.
        readable: It may be read.
        writable: It may be written.
        trusted: What lies there is used, whoever may have made it.
    """

    def __init__(
        self, storage: Storage, memory: Path, *, readable: bool, writable: bool, trusted: bool = False
    ) -> None:
        self.storage = storage
        self.name = storage.name
        self.readable = readable
        self.writable = writable
        self._memory = memory
        self._stranger: str | None = "" if trusted else None  # why it is not trusted; None until the remote was asked
        self._breaker = Breaker(memory, storage.name)
        own = memory / short(storage.name)
        self._absent, self._pending = Notes(own / "absent"), Notes(own / "pending")
        self._trusted = Notes(own / "trusted")
        self.spoiled: set[str] = set()  # paths of files that this run found not to be what their record says
        self._revision: str | None = None
        self._passed_over: dict[str, Shared] = {}

    @contextmanager
    def call(self) -> Iterator[Storage]:
        """Talk to the remote inside of the block, unless it failed a moment ago.

        Raises:
            SkippedError: It did.
            RemoteError: It fails now.
        """
        with self._breaker.call():
            yield self.storage

    def state(self) -> str:
        """The present revision, asked for once; also for a remote that may only be written.

        Raises:
            RemoteError, AuthError: See `Storage.revision`.
        """
        if self._revision is None:
            with self.call() as storage:
                self._revision = storage.revision()
        return self._revision

    def revision(self) -> str:
        """The revision that this run reads. Every read begins here, and so with the question of trust.

        What is used without being read again was read this way a moment ago: see `remembers`.

        Raises:
            UntrustedError: What lies there may be somebody else's.
            RemoteError, AuthError: See `Storage.revision`.
        """
        state = self.state()
        if self._stranger is None:
            with self.call() as storage:
                self._stranger = storage.stranger(self._memory)
            if not self._stranger:
                self._trusted.touch(_ASKED)
        if self._stranger:
            raise trust.refusal(self.name, self._stranger)
        return state

    def remembers(self, seconds: float) -> bool:
        """Whether what was read so lately may be used unasked: it was trusted then, and not for one run only."""
        if self._stranger is not None:
            return not self._stranger
        age = self._trusted.age(_ASKED)
        return age is not None and age < seconds

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
        if self._stranger:
            self._stranger = None  # the remote may be somebody else's no longer
        self.refresh()

    def refresh(self) -> None:
        """Read the present revision from now on: while waiting for another machine, and after a push."""
        self._revision = None

    def pass_over(self, found: Found) -> None:
        """Treat this record as absent for the rest of the run: fetching it failed."""
        self._passed_over[found.shared.record.key] = found.shared

    def find(self, directory: str, model_type: str, key: str, *, anew: bool = False) -> Found | None:
        """The record of a key; None where there is none, only a later cachekit reads it, or it was passed over.

        Args:
            directory: The compiler's.
            model_type: As in the record.
            key: The key.
            anew: Ask, whatever is remembered.

        Raises:
            RemoteError, AuthError: It cannot be asked.
            DamagedRecordError: What lies there is no record of this key.
        """
        if not anew and self._was_absent(key):
            return None
        revision = self.revision()
        try:
            with self.call() as storage:
                found = storage.read(layout.record_path(directory, model_type, key), revision, RECORD_LIMIT)
        except IntegrityError as error:  # a body without end, say
            raise DamagedRecordError(error.cause or error.message) from error
        if found is None:
            self._absent.touch(key)
            return None
        self._absent.remove(key)
        shared = document.read(found.data)
        if shared is None:
            return None
        record = shared.record
        if (record.directory, record.model_type, record.key) != (directory, model_type, key):
            raise DamagedRecordError("it is the record of another key")
        if shared == self._passed_over.get(key):
            return None
        return Found(self, shared, revision)

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
            there = self.exist([layout.record_path(*place) for place in places]) if places else set()
            for place in places:
                if layout.record_path(*place) not in there:
                    self._absent.touch(place.key)
            places = [place for place in places if layout.record_path(*place) in there]
            anew = True

        def one(place: Place) -> Outcome | None:
            try:
                return self.find(*place, anew=anew)
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
