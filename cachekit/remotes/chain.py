"""The shared caches of a run, in order: the first that has a record serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cachekit.errors import AuthError, CachekitError, RemoteError, SkippedError, UntrustedError
from cachekit.events import Journal, bypass
from cachekit.remotes.layout import Place
from cachekit.store.record import DamagedRecordError, Record

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote


class Chain:
    """The shared caches of a run, nearest first.

    Args:
        remotes: Without the local store.
        journal: Told once about each that fails.
        offline: Those that are left out, because no connection may be opened: names, and what makes them.
    """

    def __init__(
        self,
        remotes: Sequence[Remote] = (),
        journal: Journal | None = None,
        offline: Mapping[str, Callable[[], Remote]] | None = None,
    ) -> None:
        self.offline = dict(offline or {})
        self._remotes = tuple(remotes)
        self._journal = journal or Journal(None, "")
        self._told: set[str] = set()
        self._failure: RemoteError | AuthError | None = None
        self._untrusted: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._remotes)

    @property
    def readable(self) -> tuple[Remote, ...]:
        """Those that hits are taken from."""
        return tuple(remote for remote in self._remotes if remote.readable)

    @property
    def writable(self) -> tuple[Remote, ...]:
        """Those that take what is new."""
        return tuple(remote for remote in self._remotes if remote.writable)

    def postpone(self, record: Record) -> None:
        """Note a record for those that are left out now, for a push later."""
        for make in self.offline.values():
            with suppress(CachekitError):  # a package that it needs is missing, say: it is not used now
                remote = make()
                if remote.writable:
                    remote.keep_pending(record, "offline")

    def above(self, remote: Remote) -> tuple[Remote, ...]:
        """Those nearer than this one, which a hit fills."""
        return tuple(other for other in self._remotes[: self._remotes.index(remote)] if other.writable)

    def find(self, directory: str, model_type: str, key: str, *, anew: bool = False) -> Found | None:
        """The record of a key from the first that has it; one that fails is told, and passed over.

        Args:
            directory: The compiler's.
            model_type: As in the record.
            key: The key.
            anew: Ask, whatever is remembered.
        """
        for remote in self.readable:
            try:
                found = remote.find(directory, model_type, key, anew=anew)
            except (RemoteError, AuthError) as error:
                self.failed(remote, error)
            except DamagedRecordError as error:
                self._journal.emit("remote.damaged", tier=remote.name, key=key, reason=str(error))
                bypass(self._journal, "tier-damaged", remote.name)
            else:
                if found is not None:
                    return found
        return None

    def find_all(self, places: Sequence[Place], *, anew: bool = False) -> dict[str, Found]:
        """The records of many keys, by key, as `find` finds each; a cache is asked once which of them it has.

        Args:
            places: Where records lie.
            anew: Ask, whatever is remembered.
        """
        found: dict[str, Found] = {}
        for remote in self.readable:
            left = [place for place in dict.fromkeys(places) if place.key not in found]
            if not left:
                break
            try:
                answer = remote.find_all(left, anew=anew)
            except (RemoteError, AuthError) as error:
                self.failed(remote, error)
                continue
            found |= answer.found
            for key, damage in answer.damaged.items():
                self._journal.emit("remote.damaged", tier=remote.name, key=key, reason=str(damage))
                bypass(self._journal, "tier-damaged", remote.name)
            if answer.error is not None:
                self.failed(remote, answer.error)
        return found

    @property
    def untrusted(self) -> tuple[str, ...]:
        """Those that this run does not use because somebody else may have made what lies there; a sentence each."""
        return tuple(f"{name} is not used: {why}" for name, why in self._untrusted.items())

    def raise_failure(self) -> None:
        """Raise what the first cache that failed in this run failed with; nothing where none did."""
        if self._failure is not None:
            raise self._failure

    def failed(self, remote: Remote, error: RemoteError | AuthError) -> None:
        """Tell, once in a run, that a cache is not used."""
        self._failure = self._failure or error
        if remote.name in self._told:
            return
        self._told.add(remote.name)
        if isinstance(error, UntrustedError):
            self._untrusted[remote.name] = error.cause
        self._journal.emit(
            "remote.failed",
            tier=remote.name,
            code=error.code,
            reason=error.cause or error.message,
            hint=error.hint,
            skipped=isinstance(error, SkippedError),
        )
        kinds = ((SkippedError, "skipped"), (UntrustedError, "untrusted"), (AuthError, "refused"))
        kind = next((word for cls, word in kinds if isinstance(error, cls)), "failed")
        bypass(self._journal, f"tier-{kind}", remote.name)
