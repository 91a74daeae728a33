"""How a lease is taken, kept and given up on a tier: with compare-and-swap, and without.

With it, a lease is one document, and of all who swap it on one state one succeeds. Without it, each process puts a
claim of its own beside the others, waits until all have seen all, and the smallest id wins. That is as good as the
settling time is long: a claim that becomes visible later than that lets two processes compile, which is harmless.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cachekit.remotes.layout import LEASES, lease_path
from cachekit.remotes.lease.claim import GENERATIONS, LARGEST, Claim, Owner, claim, decode, encode
from cachekit.remotes.port import ABSENT, Change, ConflictError, Tier, TooLargeError, UncertainError, Write

_MANY = 64  # claims of one key that are looked at


@dataclass(frozen=True, slots=True)
class Found:
    """A lease or claim that lies on the tier.

    Attributes:
        token: As the tier has it.
        mark: What changes with each sign of life.
        claim: None where it cannot be read; somebody holds it all the same.
    """

    token: str
    mark: bytes
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the tier saw.

    Attributes:
        revision: That was looked at.
        mine: Of this process.
        others: By path.
    """

    revision: str
    mine: Found | None
    others: Mapping[str, Found]


@dataclass(slots=True)
class Watch:
    """Since when each lease has not changed, on the own clock that only goes forward.

    Args:
        seconds: After which a lease that cannot be read is taken for dead.
    """

    seconds: float
    _since: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def left(self, seen: Seen) -> dict[str, float]:
        """Seconds that each lease of somebody else is still to be believed; 0 or less where its holder is dead."""
        now = time.monotonic()
        left = {}
        for path, found in seen.others.items():
            mark, since = self._since.get(path, (None, now))
            if mark != found.mark:
                since = now
            self._since[path] = (found.mark, since)
            left[path] = since + (found.claim.seconds if found.claim else self.seconds) - now
            if found.claim is not None and found.claim.owner.is_dead():
                left[path] = 0.0
        return left


class Seat(Protocol):
    """What `Lease` asks of either way."""

    def look(self, revision: str = "") -> Seen:
        """Look at the tier, at its present state or at a revision."""
        ...

    def take(self, seen: Seen, watch: Watch) -> Found | None:
        """Try to take the lease, all others of which are dead; None where somebody else was faster.

        Raises:
            ConflictError: Somebody was faster, or the tier changed: look again.
            UncertainError: It may have been taken.
        """
        ...

    def renew(self, held: Found) -> Found | None:
        """Give a sign of life; None where the lease is lost."""
        ...

    def removal(self, held: Found) -> Write:
        """What removes the lease."""
        ...


def changing(what: str, key: str, writes: list[Write]) -> Change:
    """A change of leases, with a title that no other has."""
    return Change(f"cachekit: {what} the lease of {key[:16]} [{uuid.uuid4().hex}]", writes=writes)


def _read(tier: Tier, path: str, revision: str) -> Found | None:
    """What lies there; one that is too large to be a lease is held by somebody unknown, like any that says nothing."""
    try:
        document = tier.read(path, revision, LARGEST)
    except TooLargeError as error:
        return Found(error.token, error.token.encode(), None)
    return None if document is None else Found(document.token, document.data, decode(document.data))


class Swapped:
    """One document, by compare-and-swap."""

    def __init__(self, tier: Tier, key: str, recipe: str, seconds: float, owner: Owner) -> None:
        self._tier = tier
        self._key = key
        self._recipe = recipe
        self._seconds = seconds
        self._owner = owner
        self._path = lease_path(key)

    def look(self, revision: str = "") -> Seen:
        """Read the document."""
        revision = revision or self._tier.revision()
        found = _read(self._tier, self._path, revision)
        if found is None:
            return Seen(revision, None, {})
        if found.claim is not None and found.claim.owner.id == self._owner.id:
            return Seen(revision, found, {})
        return Seen(revision, None, {self._path: found})

    def take(self, seen: Seen, watch: Watch) -> Found | None:
        """Swap it."""
        there = seen.others.get(self._path)
        generation = (
            min(there.claim.generation + 1, GENERATIONS) if there is not None and there.claim is not None else 1
        )
        mine = claim(self._key, self._owner, self._seconds, self._recipe, generation)
        return self._write("takes", mine, ABSENT if there is None else there.token, seen.revision)

    def renew(self, held: Found) -> Found | None:
        """Swap it; where that was not possible, it may still be the own one."""
        if held.claim is None:
            return None
        try:
            return self._write("renews", held.claim.next(), held.token, self._tier.revision())
        except (ConflictError, UncertainError):
            return self.look().mine

    def _write(self, what: str, mine: Claim, token: str, revision: str) -> Found | None:
        change = changing(what, self._key, [Write(self._path, encode(mine), token)])
        return self.look(self._tier.commit(change, revision)).mine

    def removal(self, held: Found) -> Write:
        """The write on the token that is known."""
        return Write(self._path, None, held.token)


class Claimed:
    """A claim of each process, beside those of the others.

    Args:
        settle: Seconds until everybody sees what was written; more than the slowest look takes.
    """

    def __init__(self, tier: Tier, key: str, recipe: str, seconds: float, owner: Owner, *, settle: float) -> None:
        self._tier = tier
        self._key = key
        self._recipe = recipe
        self._seconds = seconds
        self._owner = owner
        self._settle = settle
        self._folder = f"{LEASES}/{key}"
        self._path = f"{self._folder}/{owner.id}.json"
        self._written = 0.0  # when the own claim was last written, or a moment before

    def look(self, revision: str = "") -> Seen:
        """List and read the claims."""
        revision = revision or self._tier.revision()
        mine, others = None, {}
        paths = sorted(entry.path for entry in self._tier.list(self._folder, revision))
        for path in paths[:_MANY]:
            found = _read(self._tier, path, revision)
            if found is None:
                continue
            if path == self._path:
                mine = found
            else:
                others[path] = found
        return Seen(revision, mine, others)

    def take(self, seen: Seen, watch: Watch) -> Found | None:
        """Put a claim, wait, and look who is there: who holds goes first, then the smallest id."""
        dead = list(seen.others)
        mine = claim(self._key, self._owner, self._seconds, self._recipe, held=False)
        self._write("claims", mine)
        time.sleep(self._settle)
        if self._is_beaten(watch, held=False):
            self._step_back()
            return None
        mine = mine.next(held=True)
        self._written = time.monotonic()
        self._write("takes", mine)
        if self._is_beaten(watch, held=True):
            self._step_back()
            return None
        if dead:
            removals = [Write(path, None, seen.others[path].token) for path in dead]
            self._tier.commit(changing("clears", self._key, removals), self._tier.revision())
        return self.look().mine

    def _is_beaten(self, watch: Watch, *, held: bool) -> bool:
        seen = self.look()
        left = watch.left(seen)
        live = {path: found.claim for path, found in seen.others.items() if left[path] > 0}
        holds = [path for path, one in live.items() if one is None or one.held]
        if held:
            return any(path < self._path for path in holds)
        return bool(holds) or any(path < self._path for path in live)

    def _step_back(self) -> None:
        mine = self.look().mine
        if mine is not None:
            change = changing("leaves", self._key, [self.removal(mine)])
            self._tier.commit(change, self._tier.revision())

    def renew(self, held: Found) -> Found | None:
        """Write the own claim again, unless somebody took it for dead and removed it.

        Nothing compares: a process that is stopped after its look, and goes on when the claim was removed, would write
        it once more, and take the lease for its own. So it counts for nothing what was written that late.
        """
        began = time.monotonic()
        mine = self.look().mine
        if mine is None or mine.claim is None or held.claim is None:
            return None
        renewed = Write(self._path, encode(held.claim.next()), mine.token)
        self._tier.commit(changing("renews", self._key, [renewed]), self._tier.revision())
        if time.monotonic() - self._written > self._seconds:
            self._step_back()
            return None
        self._written = began
        return self.look().mine

    def _write(self, what: str, mine: Claim) -> None:
        there = self._tier.read(self._path, self._tier.revision(), LARGEST)
        write = Write(self._path, encode(mine), ABSENT if there is None else there.token)
        self._tier.commit(changing(what, self._key, [write]), self._tier.revision())

    def removal(self, held: Found) -> Write:
        """The write that removes the own claim."""
        return Write(self._path, None, held.token)
