"""How a lease is taken, kept and given back on a remote: with compare-and-swap, and without.

With it, a lease is one document, and of all who swap it on one state one succeeds. Without it, each process puts a
document of its own beside the others, waits until all have seen all, and the smallest id wins. That is as good as the
settling time is long: a document that becomes visible later than that lets two processes compile, which is harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cachekit import redact
from cachekit.errors import ConflictError, TooLargeError, UncertainError
from cachekit.remotes.budget import Clock
from cachekit.remotes.layout import LEASES, lease_path
from cachekit.remotes.lease.document import GENERATIONS, LARGEST, LONGEST, LeaseDocument, Owner, decode, encode
from cachekit.remotes.port import ABSENT, Commit, Storage, Write

_MANY = 64  # documents of one key that are looked at


class WantedLease(Struct, frozen=True):
    """A lease that a process wants.

    Attributes:
        remote: Where it lies.
        key: The key.
        what: What this process works on, for those who wait; it is written without secrets.
        seconds: How long others must see the lease unchanged before they take it.
        settle: On remotes without compare-and-swap, seconds until everybody sees a new document.
        owner: This process.
        clock: For waiting.
    """

    remote: Storage
    key: str
    what: str
    seconds: float
    settle: float
    owner: Owner
    clock: Clock

    def document(self, generation: int = 1, *, held: bool = True) -> LeaseDocument:
        """What is to stand in the lease."""
        seconds, since = min(self.seconds, LONGEST), self.clock.wall()
        what = redact.printed(self.what)[:256]
        return LeaseDocument(self.key, self.owner, generation, 0, seconds, since, what, held)

    def commit(self, doing: str, writes: Sequence[Write], revision: str) -> str:
        """Change leases, under a title that no other change has; returns the new revision."""
        title = f"cachekit: {doing} the lease of {self.key[:16]} [{uuid.uuid4().hex}]"
        return self.remote.commit(Commit(title, writes=writes), revision)

    def read(self, path: str, revision: str) -> HeldLease | None:
        """What lies there; what is too large to be a lease is held by somebody unknown, like all that says nothing."""
        try:
            stored = self.remote.read(path, revision, LARGEST)
        except TooLargeError as error:
            return HeldLease(path, error.token, error.token.encode(), None)
        return None if stored is None else HeldLease(path, stored.token, stored.data, decode(stored.data))


class HeldLease(Struct, frozen=True):
    """The document of a process, as it lies on the remote.

    Attributes:
        path: Where.
        token: As the remote has it.
        mark: What changes with each sign of life.
        document: None where it cannot be read; somebody holds it all the same.
    """

    path: str
    token: str
    mark: bytes
    document: LeaseDocument | None

    @property
    def counts(self) -> bool:
        """Whether its process holds the lease, or may hold it."""
        return self.document is None or self.document.held

    @property
    def removal(self) -> Write:
        """What removes it, if it is still in this state."""
        return Write(self.path, None, self.token)


class LeasesSeen(Struct, frozen=True):
    """What one look at the remote saw.

    Attributes:
        revision: That was looked at.
        mine: Of this process.
        others: By path.
    """

    revision: str
    mine: HeldLease | None
    others: Mapping[str, HeldLease]


class LeaseWatch:
    """Since when each lease has not changed, on the own clock that only goes forward.

    Args:
        wanted: The lease that this process wants; one that cannot be read is believed for as long.
    """

    def __init__(self, wanted: WantedLease) -> None:
        self._wanted = wanted
        self._since: dict[str, tuple[bytes, float]] = {}

    def left(self, seen: LeasesSeen) -> dict[str, float]:
        """Seconds that each lease of somebody else is still to be believed; 0 or less where its holder is dead."""
        now = self._wanted.clock.now()
        left = {}
        for path, held in seen.others.items():
            mark, since = self._since.get(path, (None, now))
            if mark != held.mark:
                since = now
            self._since[path] = (held.mark, since)
            left[path] = since + (held.document.seconds if held.document else self._wanted.seconds) - now
            if held.document is not None and held.document.owner.is_dead():
                left[path] = 0.0
        return left


class Swapped:
    """One document, by compare-and-swap."""

    def __init__(self, wanted: WantedLease) -> None:
        self._wanted = wanted
        self._path = lease_path(wanted.key)

    def look(self, revision: str = "") -> LeasesSeen:
        """Look at the remote, at its present state or at a revision: one document."""
        revision = revision or self._wanted.remote.revision()
        held = self._wanted.read(self._path, revision)
        if held is None:
            return LeasesSeen(revision, None, {})
        if held.document is not None and held.document.owner.id == self._wanted.owner.id:
            return LeasesSeen(revision, held, {})
        return LeasesSeen(revision, None, {self._path: held})

    def take(self, seen: LeasesSeen, watch: LeaseWatch) -> HeldLease | None:
        """Try to take the lease, all others of which are dead; None where somebody else was faster.

        Raises:
            ConflictError: Somebody was faster, or the remote changed: look again.
            UncertainError: It may have been taken.
        """
        there = seen.others.get(self._path)
        known = there.document.generation if there is not None and there.document is not None else 0
        mine = self._wanted.document(min(known + 1, GENERATIONS))
        return self._write("takes", mine, ABSENT if there is None else there.token, seen.revision)

    def renew(self, held: HeldLease) -> HeldLease | None:
        """Give a sign of life; None where the lease is lost. Where a swap failed, it may still be the own one."""
        if held.document is None:
            return None
        try:
            return self._write("renews", held.document.next(), held.token, self._wanted.remote.revision())
        except (ConflictError, UncertainError):
            return self.look().mine

    def _write(self, doing: str, mine: LeaseDocument, token: str, revision: str) -> HeldLease | None:
        return self.look(self._wanted.commit(doing, [Write(self._path, encode(mine), token)], revision)).mine


class SideBySide:
    """A document of each process, beside those of the others."""

    def __init__(self, wanted: WantedLease) -> None:
        self._wanted = wanted
        self._remote = wanted.remote
        self._folder = f"{LEASES}/{wanted.key}"
        self._path = f"{self._folder}/{wanted.owner.id}.json"
        self._written = 0.0  # when the own document was last written, or a moment before

    def look(self, revision: str = "") -> LeasesSeen:
        """List and read the documents."""
        revision = revision or self._remote.revision()
        paths = sorted(entry.path for entry in self._remote.list(self._folder, revision))
        found = {path: held for path in paths[:_MANY] if (held := self._wanted.read(path, revision)) is not None}
        return LeasesSeen(revision, found.pop(self._path, None), found)

    def take(self, seen: LeasesSeen, watch: LeaseWatch) -> HeldLease | None:
        """Put a document, wait, and look who is there: who holds goes first, then the smallest id."""
        mine = self._wanted.document(held=False)
        self._write("asks for", mine)
        self._wanted.clock.sleep(self._wanted.settle)
        if self._is_beaten(watch, held=False):
            self._step_back()
            return None
        self._written = self._wanted.clock.now()
        self._write("takes", mine.next(held=True))
        if self._is_beaten(watch, held=True):
            self._step_back()
            return None
        if seen.others:  # of the dead
            self._wanted.commit("clears", [held.removal for held in seen.others.values()], self._remote.revision())
        return self.look().mine

    def _is_beaten(self, watch: LeaseWatch, *, held: bool) -> bool:
        seen = self.look()
        left = watch.left(seen)
        live = {path: other for path, other in seen.others.items() if left[path] > 0}
        holders = [path for path, other in live.items() if other.counts]
        if held:
            return any(path < self._path for path in holders)
        return bool(holders) or any(path < self._path for path in live)

    def _step_back(self) -> None:
        mine = self.look().mine
        if mine is not None:
            self._wanted.commit("leaves", [mine.removal], self._remote.revision())

    def renew(self, held: HeldLease) -> HeldLease | None:
        """Write the own document again, unless somebody took it for dead and removed it.

        The remote compares nothing: a process that is stopped after its look, and goes on when its document was
        removed, would write the document once more, and believe that it holds the lease. So what is written that late
        does not count.
        """
        began = self._wanted.clock.now()
        mine = self.look().mine
        if mine is None or mine.document is None or held.document is None:
            return None
        renewed = Write(self._path, encode(held.document.next()), mine.token)
        self._wanted.commit("renews", [renewed], self._remote.revision())
        if self._wanted.clock.now() - self._written > self._wanted.seconds:
            self._step_back()
            return None
        self._written = began
        return self.look().mine

    def _write(self, doing: str, mine: LeaseDocument) -> None:
        there = self._remote.read(self._path, self._remote.revision(), LARGEST)
        write = Write(self._path, encode(mine), ABSENT if there is None else there.token)
        self._wanted.commit(doing, [write], self._remote.revision())
