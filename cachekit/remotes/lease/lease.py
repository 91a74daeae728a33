"""One compile per fleet: of all machines that want one key, one compiles, and the others wait and pull.

A lease lies on the tier that they share. It saves work and guards nothing: two compiles of one key publish the same
record twice, which is harmless, so whenever a lease cannot be had or kept the compile goes on without it.

Clocks of machines are never compared. A holder that lives changes its lease every third of its length; whoever has
seen one unchanged for its whole length, by the own clock that only goes forward, takes it. On tiers whose commits are
scarce there are no signs of life: there a lease must be longer than the compile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError, WaitedTooLongError
from cachekit.remotes.lease.claim import Claim, myself
from cachekit.remotes.lease.seats import Claimed, Found, Seat, Seen, Swapped, Watch, changing
from cachekit.remotes.port import BusyError, ConflictError, Tier, UncertainError, Write

SETTLE = 2.0  # seconds until all see a claim, on tiers without compare-and-swap
SCARCE_POLL = 20.0  # seconds between two looks where requests are counted
PATIENCE = 60.0  # seconds that a tier may be busy, or away while one waits for somebody
_BRIEFLY = 5.0  # seconds that it may fail to take a lease
_LONGEST_WAIT = 60.0  # seconds that one answer "too many requests" makes this one wait
_RELEASES = 5  # tries

OnWait = Callable[[Claim | None, float], None]


class Lead:
    """What `Lease.lead` yields.

    Attributes:
        waited: Seconds that this process waited.
        finished: The caller's `done` said yes: there is nothing to compile, and no lease.
        trouble: Why there is no lease although there is something to compile; None where there is one.
    """

    def __init__(self, tier: Tier, seat: Seat, key: str, seconds: float) -> None:
        self.waited = 0.0
        self.finished = False
        self.trouble: CachekitError | None = None
        self._tier = tier
        self._seat = seat
        self._key = key
        self._seconds = seconds
        self._found: Found | None = None
        self._alive = 0.0
        self._lost = False
        self._maybe = False
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether the lease is this process's, as far as it knows: False after it slept for longer than the lease."""
        return self._found is not None and not self._lost and time.monotonic() - self._alive <= self._seconds

    def release_write(self, revision: str = "") -> Write | None:
        """What removes the lease, for the commit that publishes what was compiled; signs of life end.

        Say `removed` after the commit. Where it did not happen, say `kept`, and ask again.

        Args:
            revision: That the commit is built on; the present one where it is not given.

        Returns:
            None where there is no lease to remove, or the tier cannot be asked.
        """
        self._end_heart()
        if self._found is None or self._lost:
            return None
        try:
            mine = self._seat.look(revision).mine
        except (RemoteError, AuthError, IntegrityError):
            return None
        return None if mine is None else self._seat.removal(mine)

    def kept(self) -> None:
        """Know that the caller's own commit did not remove the lease: signs of life go on until the next one."""
        if self._found is not None and not self._lost and self._stop.is_set():
            self._stop = threading.Event()
            self._begin_heart()

    def removed(self) -> None:
        """Know that the caller's own commit removed the lease: leaving the block asks the tier nothing then."""
        self._end_heart()
        self._found, self._maybe = None, False

    def release(self) -> bool:
        """Remove the lease, if it is there and this process's; what cannot be removed runs out by itself.

        Returns:
            Whether nothing of it is left.
        """
        self._end_heart()
        if self._lost or (self._found is None and not self._maybe):
            return True
        for attempt in range(_RELEASES):
            try:
                seen = self._seat.look()
                if seen.mine is None:
                    self._found = None
                    return True
                change = changing("releases", self._key, [self._seat.removal(seen.mine)])
                self._tier.commit(change, seen.revision)
            except (ConflictError, BusyError, UncertainError) as error:
                time.sleep(random.uniform(0.5, 1) * min(5.0, max(0.05 * 2**attempt, getattr(error, "wait", 0.0))))  # noqa: S311
            except CachekitError:
                return False
            else:
                self._found = None
                return True
        return False

    def _hold(self, found: Found, began: float) -> None:
        self._found, self._alive = found, began
        self._begin_heart()

    def _begin_heart(self) -> None:
        if not self._tier.scarce:
            self._heart = threading.Thread(target=self._beat, args=(self._stop,), name="cachekit-lease", daemon=True)
            self._heart.start()

    def _beat(self, stop: threading.Event) -> None:
        pause = max(0.0, self._alive + self._seconds / 3 - time.monotonic())
        while not stop.wait(pause) and self._found is not None:
            began = time.monotonic()
            try:
                found = self._seat.renew(self._found)
            except CachekitError:  # cut off: tried again sooner, and meanwhile `held` runs out
                pause = self._seconds / 6
                continue
            if found is None:
                self._lost = True
                return
            self._found, self._alive, pause = found, began, self._seconds / 3

    def _end_heart(self) -> None:
        self._stop.set()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join(min(10.0, self._seconds))


class Lease:
    """The lease of one key.

    Args:
        tier: Where it lies.
        key: The key.
        recipe: What this process works on, for those who wait.
        seconds: How long others must see it unchanged before they take it: three signs of life and more; where commits
            are scarce, more than the compile takes.
        poll: Seconds between two looks; 0 chooses.
        settle: On tiers without compare-and-swap, seconds until everybody sees a claim.
        patience: Seconds that the tier may be busy, or away while one waits for somebody.
    """

    def __init__(
        self,
        tier: Tier,
        key: str,
        recipe: str,
        seconds: float,
        *,
        poll: float = 0.0,
        settle: float = SETTLE,
        patience: float = PATIENCE,
    ) -> None:
        self._tier = tier
        self._key = key
        self._recipe = recipe
        self._allowed = patience
        self._seconds = seconds
        self._poll = poll or (min(SCARCE_POLL, seconds / 5) if tier.scarce else min(5.0, max(0.05, seconds / 10)))
        owner = myself()
        self._seat: Seat = (
            Swapped(tier, key, recipe, seconds, owner)
            if tier.compares
            else Claimed(tier, key, recipe, seconds, owner, settle=settle)
        )

    @contextmanager
    def lead(self, wait_seconds: float, on_wait: OnWait, done: Callable[[], bool]) -> Iterator[Lead]:
        """Hold the lease, or learn that there is nothing to do; wait for either as long as is allowed.

        Args:
            wait_seconds: How long to wait for another holder; 0 does not wait.
            on_wait: Called while waiting, with the holder (None where its lease cannot be read) and the seconds
                waited so far.
            done: Asked at each look: has somebody published what this process would compile? Errors of the tier count
                as "not known".

        Yields:
            Where it stands: `finished`, or to be compiled, with the lease or (`trouble`) without it. Leaving the block
            releases it.

        Raises:
            WaitedTooLongError: Somebody else holds it, and the deadline passed.
        """
        lead = Lead(self._tier, self._seat, self._key, self._seconds)
        try:
            self._acquire(lead, wait_seconds, on_wait, done)
            yield lead
        finally:
            lead.release()

    def _acquire(self, lead: Lead, wait_seconds: float, on_wait: OnWait, done: Callable[[], bool]) -> None:
        watch = Watch(self._seconds)
        start = well = time.monotonic()
        waiting: bool | None = None  # for somebody, by the last look that the tier answered
        while True:
            began = time.monotonic()
            lead.waited = began - start
            pause = random.uniform(0.5, 1.0) * self._poll  # noqa: S311 - spreads, guards nothing
            trouble: CachekitError | None = None
            try:
                seen = self._seat.look()
                left = watch.left(seen)
                waiting = max(left.values(), default=0.0) > 0
                if _is(done):
                    lead.finished = True
                    return
                if not waiting and self._take(lead, seen, watch, began):
                    self._look_again(lead, done)
                    return
            except (ConflictError, UncertainError) as error:  # the next look tells soon
                trouble = error
                pause *= 0.2
            except BusyError as error:
                trouble = error
                waiting = bool(waiting)
                pause = max(pause, random.uniform(1.0, 1.5) * min(error.wait, _LONGEST_WAIT))  # noqa: S311
            except RemoteError as error:
                trouble = error
                if waiting is None:  # it never answered
                    lead.trouble = error
                    return
            except (AuthError, IntegrityError) as error:  # asking again would not help
                lead.trouble = error
                return
            else:
                if waiting:
                    well = began
                    self._wait(lead, seen, left, wait_seconds, on_wait)
                    pause = min(pause, max(left.values()) + 0.01, max(0.0, wait_seconds - lead.waited))
            if trouble is not None and time.monotonic() + pause - well > self._patience(trouble, waiting=bool(waiting)):
                lead.trouble = trouble
                return
            time.sleep(pause)

    def _patience(self, trouble: CachekitError, *, waiting: bool) -> float:
        """How long a tier that answered before may give such answers, before one compiles without it."""
        again = isinstance(trouble, (ConflictError, BusyError, UncertainError))
        if again:
            return self._allowed
        return min(self._allowed, self._seconds) if waiting else min(_BRIEFLY, self._seconds)

    def _take(self, lead: Lead, seen: Seen, watch: Watch, began: float) -> bool:
        found = seen.mine  # there already where an answer was lost
        if found is None or not _holds(found):
            before = lead._maybe  # noqa: SLF001 - the two are one thing in two pieces
            lead._maybe = True  # noqa: SLF001 - also when this is interrupted
            try:
                found = self._seat.take(seen, watch)
            except UncertainError:
                raise
            except RemoteError:
                lead._maybe = before or not self._tier.compares  # noqa: SLF001 - it did not happen
                raise
        if found is None:
            return False
        lead._hold(found, began)  # noqa: SLF001
        return True

    def _look_again(self, lead: Lead, done: Callable[[], bool]) -> None:
        """Ask once more: the last holder may have published between the question and the taking.

        Where commits are scarce a tier has revisions, and taking fails if anything was published since.
        """
        if self._tier.scarce:
            return
        if _is(done):
            lead.finished = True
            lead.release()

    def _wait(self, lead: Lead, seen: Seen, left: dict[str, float], wait_seconds: float, on_wait: OnWait) -> None:
        live = [path for path in left if left[path] > 0]
        holder = seen.others[max(live, key=lambda path: (_holds(seen.others[path]), left[path]))].claim
        if lead.waited >= wait_seconds:
            raise WaitedTooLongError(
                f"another machine has been compiling {self._recipe} for longer than this one may wait",
                cause=f"{holder or 'an unknown process'}; waited {lead.waited:.0f} s",
                hint="wait longer with --wait SECONDS, or look at that process",
            )
        on_wait(holder, lead.waited)


def _is(done: Callable[[], bool]) -> bool:
    try:
        return done()
    except (RemoteError, AuthError, IntegrityError):  # not known
        return False


def _holds(found: Found) -> bool:
    return found.claim is None or found.claim.held
