"""How a lease is taken, kept and given back on a remote: with compare-and-swap, and without.

With it, a lease is one document, and of all who swap it on one state one succeeds. Without it, each process puts a
document of its own beside the others, waits until all have seen all, and the smallest id wins. That is as good as the
settling time is long: a document that becomes visible later than that lets two processes compile, which is harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from cachekit import redact
from cachekit.errors import BusyError, ConflictError, RemoteError, TooLargeError, UncertainError
from cachekit.remotes.budget import Clock
from cachekit.remotes.layout import LEASES, lease_path
from cachekit.remotes.lease.document import GENERATIONS, LARGEST, LeaseDocument, Owner, decode, encode, utc
from cachekit.remotes.port import ABSENT, Commit, Storage, Write

_MANY = 64  # documents of one key that are looked at
SCARCE_LATE = 18.0  # seconds that a sign may come late where commits are scarce: others commit, and it takes its time
CROWD = (
    24  # commits: where the last ones came at the pace of the quota, signs of life would leave none for what is made
)
CROWD_SECONDS = CROWD * 3600 / 128
MOST_SIGNS = 18  # of these, which leave 32 commits an hour for what is made
ANSWER_SECONDS = 300.0  # within which a holder that gives no signs in a crowd answers who asks for them
_SIGN = "renews"


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
        crowded: As `seconds`, where commits are scarce and many make them; 0 is the same.
    """

    remote: Storage
    key: str
    what: str
    seconds: float
    settle: float
    owner: Owner
    clock: Clock
    crowded: float = 0.0

    def sign(self, seconds: float) -> float:
        """Seconds between two signs of life: a third of a lease's length, nearly all of it if commits are scarce."""
        third = seconds / 3
        return max(third, seconds - SCARCE_LATE) if self.remote.scarce else third

    def terms(self, revision: str, *, asked: bool = False) -> dict[str, float]:
        """How long the lease is to be believed from now on, given what others commit: `seconds` and `answers`.

        In a crowd a holder gives signs of life only if somebody waits for them, who asks once; and none where those of
        the others are most of what is committed.
        """
        usual = {"seconds": self.seconds, "answers": 0.0}
        if not (self.remote.scarce and self.crowded):
            return usual
        try:
            last = self.remote.latest(revision)[:CROWD]
        except RemoteError:
            return usual
        if len(last) < CROWD or last[0].at - last[-1].at >= CROWD_SECONDS:
            return usual
        if sum(f": {_SIGN} the lease of " in change.title for change in last) > MOST_SIGNS:
            return {"seconds": self.crowded, "answers": 0.0}
        return usual if asked else {"seconds": self.crowded, "answers": ANSWER_SECONDS}

    def ask(self, seen: LeasesSeen) -> None:
        """Ask those who hold the lease, and give no signs of life as long as nobody waits for them."""
        for held in seen.others.values():
            there = held.document
            if there is not None and there.answers and not there.asked:
                asked = Write(held.path, encode(structs.replace(there, asked=True)), held.token)
                with suppress(ConflictError, BusyError, UncertainError):  # the next look tells
                    self.commit("asks about", [asked], seen.revision)

    def document(self, generation: int = 1, *, held: bool = True) -> LeaseDocument:
        """What is to stand in the lease."""
        now = self.clock.wall()
        what = redact.printed(self.what)[:256]
        return LeaseDocument(self.key, self.owner, generation, 0, self.seconds, now, what, held, sign=now)

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
        if stored is None:
            return None
        there = decode(stored.data)
        mark = stored.data if there is None else encode(structs.replace(there, asked=False))  # no sign of its holder
        return HeldLease(path, stored.token, mark, there)


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


class Waiting(Struct, frozen=True):
    """For whom a process waits, and how long it will.

    Attributes:
        holder: The lease of the one that compiles; None where it cannot be read.
        waited: Seconds so far.
        sign: Seconds since this process saw the last sign of life; None where it saw none since it waits.
        left: Seconds after which this process takes over, if no further sign comes.
    """

    holder: LeaseDocument | None
    waited: float
    sign: float | None
    left: float

    def __str__(self) -> str:
        return str(self.holder or "an unknown machine")

    def fields(self) -> dict[str, Any]:
        """For the journal; `since` and `last_sign` are times by the holder's clock, and compared with no other one."""
        one = self.holder
        said = {
            "host": one.owner.host, "machine": one.owner.machine, "user": one.owner.user, "pid": one.owner.pid,
            "recipe": one.recipe, "since": utc(one.since), "last_sign": utc(one.sign),
        } if one is not None else {}  # fmt: skip
        seen = None if self.sign is None else round(self.sign, 1)
        return {
            "holder": str(self), "waited": round(self.waited, 1), **said,
            "last_sign_seconds": seen, "takes_over_seconds": round(self.left, 1),
        }  # fmt: skip


class LeaseWatch:
    """Since when each lease has not changed, on the own clock that only goes forward.

    Args:
        wanted: The lease that this process wants; one that cannot be read is believed for as long.
    """

    def __init__(self, wanted: WantedLease) -> None:
        self._wanted = wanted
        self._since: dict[str, tuple[bytes, float]] = {}
        self._signs: dict[str, float] = {}  # when each was seen to change

    def waiting(self, seen: LeasesSeen, left: Mapping[str, float], waited: float) -> Waiting:
        """For whom to wait: of those that are to be believed one that holds, the one that is believed longest."""
        live = [path for path in left if left[path] > 0]
        path = max(live, key=lambda path: (seen.others[path].counts, left[path]))
        sign = self._wanted.clock.now() - self._signs[path] if path in self._signs else None
        return Waiting(seen.others[path].document, waited, sign, left[path])

    def left(self, seen: LeasesSeen) -> dict[str, float]:
        """Seconds that each lease of somebody else is still to be believed; 0 or less where its holder is dead."""
        now = self._wanted.clock.now()
        left = {}
        for path, held in seen.others.items():
            mark, since = self._since.get(path, (None, now))
            if mark is not None and mark != held.mark:
                since = self._signs[path] = now
            self._since[path] = (held.mark, since)
            left[path] = since + (held.document.believed if held.document else self._wanted.seconds) - now
            if held.document is not None and held.document.owner.is_dead():
                left[path] = 0.0
        return left


class Swapped:
    """One document, by compare-and-swap."""

    def __init__(self, wanted: WantedLease) -> None:
        self._wanted = wanted
        self._path = lease_path(wanted.key)
        self._seen = LeasesSeen("", None, {})

    def look(self, revision: str = "") -> LeasesSeen:
        """Look at the remote, at its present state or at a revision: one document; what has not changed is not read."""
        revision = revision or self._wanted.remote.revision()
        seen = self._seen
        if not revision or revision != seen.revision:
            held = self._wanted.read(self._path, revision)
            mine = held is not None and held.document is not None and held.document.owner.id == self._wanted.owner.id
            others = {self._path: held} if held is not None and not mine else {}
            self._seen = seen = LeasesSeen(revision, held if mine else None, others)
        return seen

    def take(self, seen: LeasesSeen, watch: LeaseWatch) -> HeldLease | None:
        """Try to take the lease, all others of which are dead; None where somebody else was faster.

        Raises:
            ConflictError: Somebody was faster, or the remote changed: look again.
            UncertainError: It may have been taken.
        """
        there = seen.others.get(self._path)
        known = there.document.generation if there is not None and there.document is not None else 0
        mine = self._wanted.document(min(known + 1, GENERATIONS))
        mine = structs.replace(mine, **self._wanted.terms(seen.revision))
        return self._write("takes", mine, ABSENT if there is None else there.token, seen.revision)

    def renew(self, held: HeldLease) -> HeldLease | None:
        """Give a sign of life; None where the lease is lost. Where a swap failed, it may still be the own one."""
        if held.document is None:
            return None
        try:
            revision = self._wanted.remote.revision()
            terms = self._wanted.terms(revision, asked=held.document.asked)
            mine = held.document.next(self._wanted.clock.wall(), **terms)
            return self._write(_SIGN, mine, held.token, revision)
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
        self._write("takes", mine.next(self._wanted.clock.wall(), held=True))
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
        renewed = Write(self._path, encode(held.document.next(self._wanted.clock.wall())), mine.token)
        self._wanted.commit(_SIGN, [renewed], self._remote.revision())
        if self._wanted.clock.now() - self._written > self._wanted.seconds:
            self._step_back()
            return None
        self._written = began
        return self.look().mine

    def _write(self, doing: str, mine: LeaseDocument) -> None:
        there = self._remote.read(self._path, self._remote.revision(), LARGEST)
        write = Write(self._path, encode(mine), ABSENT if there is None else there.token)
        self._wanted.commit(doing, [write], self._remote.revision())
