"""One compile per fleet: of all machines that want one key, one compiles, and the others wait and fetch.

A lease lies on the remote that the machines share. It saves work and guards nothing: two compiles of one key publish
the same record twice, which is harmless, so whenever a lease cannot be taken or kept the compile goes on without it.

Clocks of machines are never compared. A holder that lives changes its lease before its length has passed
(`WantedLease.sign`); whoever has seen one unchanged for its whole length, by the own clock that only goes forward,
takes it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, TypeVar

from cachekit.calls import ending
from cachekit.errors import (
    AuthError,
    BusyError,
    CachekitError,
    ConflictError,
    IntegrityError,
    RemoteError,
    UncertainError,
    WaitedTooLongError,
)
from cachekit.remotes.budget import CLOCK, Clock, Retry
from cachekit.remotes.lease.backends import (
    HeldLease,
    LeasesSeen,
    LeaseWatch,
    SideBySide,
    Swapped,
    Waiting,
    WantedLease,
)
from cachekit.remotes.lease.document import myself
from cachekit.remotes.port import Storage, Write
from cachekit.text import duration

T = TypeVar("T")
SETTLE = 2.0  # seconds until all see a new document, on remotes without compare-and-swap
SCARCE_POLL = 10.0  # seconds between two looks where requests are counted; one request, while nothing has changed
LISTEN = 30.0  # seconds between two looks of a holder that gives signs of life when it is asked
PATIENCE = 60.0  # seconds that a remote may be busy, or away while one waits for somebody
TAKING = 20.0  # seconds that taking it may take: a compile waits for that
_BRIEFLY = 5.0  # seconds that it may fail to take a lease
_RELEASE = Retry(seconds=10.0, first=0.05, factor=2.0, most=5.0)

Told = Callable[[Waiting], None]


@contextmanager
def lease(
    remote: Storage,
    key: str,
    what: str,
    seconds: float,
    *,
    wait: float,
    told: Told,
    done: Callable[[], T | None],
    crowded: float = 0.0,
    rarely: Callable[[float], object] = lambda _: None,
    poll: float = 0.0,
    settle: float = SETTLE,
    patience: float = PATIENCE,
    clock: Clock = CLOCK,
) -> Iterator[Lease[T]]:
    """Hold the lease of a key, or learn that there is nothing to do; wait for either as long as is allowed.

    Args:
        remote: Where it lies.
        key: The key.
        what: What this process works on, for those who wait.
        seconds: How long others must see the lease unchanged before they take it.
        wait: Seconds to wait for another holder; 0 does not wait.
        crowded: As `seconds`, see `WantedLease`.
        rarely: Called, once, with the seconds for which others believe the lease now, where those are more than
            `seconds`: others make so many commits that signs of life are rare.
        told: Called while waiting, with what is known of the holder.
        done: Asked at each look: what somebody has published that this process would compile; None where there is no
            such thing. Errors of the remote count as None.
        poll: Seconds between two looks; 0 chooses.
        settle: On remotes without compare-and-swap, seconds until everybody sees a new document.
        patience: Seconds that the remote may be busy, or away while one waits for somebody.
        clock: For waiting.

    Yields:
        Where it stands. Leaving the block gives the lease back.

    Raises:
        WaitedTooLongError: Somebody else holds it, and the deadline passed.
    """
    # Who asks beside others stays silent until all have settled, and must not count as dead meanwhile.
    seconds = seconds if remote.compares else max(seconds, 3 * settle)
    wanted = WantedLease(remote, key, what, seconds, settle, myself(), clock, crowded)
    mine = Lease[T](wanted, rarely)
    poll = poll or (min(SCARCE_POLL, seconds / 5) if remote.scarce else min(5.0, max(0.05, seconds / 10)))
    try:
        mine.acquire(wait, told, done, poll, patience)
        yield mine
    finally:
        mine.release()


class Lease(Generic[T]):
    """Where one key stands in the fleet.

    Args:
        wanted: The lease that is asked for; None where nobody is asked: then there is none, and nothing to give back.
        rarely: See `lease`.

    Attributes:
        state: `held`: this process is to compile, and others wait. `finished`: somebody has compiled. `without`: this
            process is to compile, and there is no lease.
        found: What `done` answered, where it is finished.
        trouble: Why there is no lease although there is something to compile; None where nothing went wrong.
        waited: Seconds that this process waited.
    """

    def __init__(self, wanted: WantedLease | None = None, rarely: Callable[[float], object] = lambda _: None) -> None:
        self.state: Literal["held", "finished", "without"] = "without"
        self.found: T | None = None
        self.trouble: CachekitError | None = None
        self.waited = 0.0
        self._asked = wanted
        self._rarely: Callable[[float], object] | None = rarely
        self._held: HeldLease | None = None
        self._alive = 0.0  # when it was last taken or renewed, or a moment before
        self._maybe = False  # it may lie there although nobody said so
        self._lost: UncertainError | None = None  # the answer to taking it, last
        self._first_lost = 0.0  # when the first of these takings in a row began
        self._done_at = ""  # the revision at which `done` answered last
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None
        if wanted is not None:
            self._backend = Swapped(wanted) if wanted.remote.compares else SideBySide(wanted)
            self._clock = wanted.clock

    @property
    def remote(self) -> Storage | None:
        """Where it lies; None where nobody is asked."""
        return self._asked.remote if self._asked else None

    @property
    def _wanted(self) -> WantedLease:
        assert self._asked is not None  # or nothing is held, and nothing done
        return self._asked

    @property
    def _seconds(self) -> float:
        """For how long others believe what lies there."""
        lies = self._held.document if self._held is not None else None
        return lies.seconds if lies is not None else self._wanted.seconds

    @property
    def held(self) -> bool:
        """Whether it is this process's, as far as it knows: False after it slept for longer than the lease."""
        return self._held is not None and self._clock.now() - self._alive <= self._seconds

    def give_back(self, revision: str = "") -> Write | None:
        """What removes the lease, for the commit that publishes what was compiled; signs of life end.

        Say `settled` after that commit, or when it failed.

        Args:
            revision: That the commit is built on; the present one where it is not given.

        Returns:
            None where there is no lease to remove, or the remote cannot be asked.
        """
        self._end_heart()
        if self._held is None:
            return None
        try:
            mine = self._backend.look(revision).mine
        except (RemoteError, AuthError, IntegrityError):
            return None
        return None if mine is None else mine.removal

    def settled(self, *, removed: bool) -> None:
        """Know what became of the commit that was to remove the lease.

        Args:
            removed: The lease is gone: leaving the block asks the remote nothing. Otherwise signs of life go on.
        """
        if removed:
            self._end_heart()
            self._held, self._maybe = None, False
        elif self._held is not None and self._stop.is_set():
            self._stop = threading.Event()
            self._begin_heart()

    def release(self) -> bool:
        """Remove the lease, if it is there and this process's; what cannot be removed runs out by itself.

        Returns:
            Whether nothing of it is left.
        """
        self._end_heart()
        if self._held is None and not self._maybe:
            return True
        began, attempt = self._clock.now(), 0
        while True:
            try:
                with ending(_RELEASE.seconds):
                    seen = self._backend.look()
                    if seen.mine is not None:
                        self._wanted.commit("releases", [seen.mine.removal], seen.revision)
            except (ConflictError, BusyError, UncertainError) as error:
                attempt += 1
                pause = _RELEASE.pause(error, attempt, self._clock.now() - began)
                if pause is None:
                    return False
                self._clock.sleep(pause)
            except CachekitError:
                return False
            else:
                self._held, self._maybe = None, False
                return True

    def acquire(self, wait: float, told: Told, done: Callable[[], T | None], poll: float, patience: float) -> None:
        """Get the lease, or learn why not; see `lease`.

        Raises:
            WaitedTooLongError: Somebody else holds it, and the deadline passed.
        """
        watch = LeaseWatch(self._wanted)
        start = well = self._clock.now()
        waiting: bool | None = None  # for somebody, by the last look that the remote answered
        attempt = 0
        while True:
            began = self._clock.now()
            self.waited = began - start
            try:
                seen = self._backend.look()
                left = watch.left(seen)
                waiting = max(left.values(), default=0.0) > 0
                if self._is_finished(done, seen.revision) or (not waiting and self._take(seen, watch, began, done)):
                    return
            except (AuthError, IntegrityError) as error:  # asking again would not help
                self.trouble = error
                return
            except RemoteError as error:
                attempt += 1
                retry = self._retry(error, poll, patience, waiting=bool(waiting))
                # One that never answered may have failed for a moment; but not again for as long as it hangs.
                spent = (self._clock.now() if waiting is None else began) - well
                trouble_pause = None if error.lasting else retry.pause(error, attempt, spent)
                if trouble_pause is None:
                    self.trouble = error
                    return
                self._clock.sleep(trouble_pause)
                continue
            pause = random.uniform(0.5, 1.0) * poll  # noqa: S311 - spreads, guards nothing
            if waiting:
                well, attempt, self._lost = began, 0, None
                self._tell(watch.waiting(seen, left, self.waited), wait, told)
                self._wanted.ask(seen)
                pause = min(pause, max(left.values()) + 0.01, max(0.0, wait - self.waited))
            self._clock.sleep(pause)

    def _retry(self, trouble: RemoteError, poll: float, patience: float, *, waiting: bool) -> Retry:
        """How long a remote may give such answers, before one compiles without it."""
        if isinstance(trouble, (ConflictError, UncertainError)):  # the next look tells soon
            return Retry(patience, 0.15 * poll, 1.0, poll)
        if isinstance(trouble, BusyError):
            return Retry(patience, 0.75 * poll, 1.0, poll)
        limit = min(patience if waiting else _BRIEFLY, patience, self._wanted.seconds)
        return Retry(limit, 0.1 * poll, 2.0, poll)

    def _take(self, seen: LeasesSeen, watch: LeaseWatch, began: float, done: Callable[[], T | None]) -> bool:
        """Take the lease; whether there is no more to wait for."""
        held = seen.mine  # there already where an answer was lost
        if held is None or not held.counts:
            tried = self._clock.now() - self._first_lost if self._lost is not None else 0.0
            if self._lost is not None and tried >= TAKING:  # it did not land, and the time is up
                raise RemoteError(self._lost.message, cause=self._lost.cause)
            before, self._maybe = self._maybe, True  # also when this is interrupted
            try:
                with ending(TAKING - tried):
                    held = self._backend.take(seen, watch)
            except UncertainError as error:
                self._first_lost = began if self._lost is None else self._first_lost
                self._lost = error
                raise
            except RemoteError:
                self._maybe = before or not self._wanted.remote.compares  # it did not happen
                raise
        if held is None:
            return False
        self._held, self._alive, self.state = held, began, "held"
        self._tell_terms()
        self._begin_heart()
        # The last holder may have published between the question and the taking. Where commits are scarce a remote
        # has revisions, and taking fails if anything was published since.
        if not self._wanted.remote.scarce and self._is_finished(done):
            self.release()
        return True

    def _is_finished(self, done: Callable[[], T | None], revision: str = "") -> bool:
        """Whether there is nothing to compile any more; at a revision that was asked before, the answer is the same."""
        if revision and revision == self._done_at:
            return False
        try:
            self.found = done()
        except (RemoteError, AuthError, IntegrityError):  # not known
            return False
        self._done_at = revision
        if self.found is not None:
            self.state = "finished"
        return self.found is not None

    def _tell(self, waiting: Waiting, wait: float, told: Told) -> None:
        if self.waited >= wait:
            holder = f"{waiting}, taken over in {duration(waiting.left)} if no sign of life comes"
            raise WaitedTooLongError.of("machine", self._wanted.what, holder, self.waited)
        told(waiting)

    def _tell_terms(self) -> None:
        if self._rarely is not None and self._seconds > self._wanted.seconds:
            self._rarely(self._seconds)
            self._rarely = None

    # Signs of life.

    def _begin_heart(self) -> None:
        stop = self._stop
        self._heart = self._clock.start(lambda: self._beat(stop), "cachekit-lease")

    def _beat(self, stop: threading.Event) -> None:
        pause = self._alive + self._wanted.sign(self._seconds) - self._clock.now()
        while not self._is_ended(stop, max(0.0, pause)) and self._held is not None:
            began = self._clock.now()
            asked = 0.0
            try:
                held = self._backend.renew(self._held)
            except CachekitError as error:  # cut off, say
                held, asked = self._held, getattr(error, "wait", 0.0)
            if held is None:  # lost
                self._held, self._maybe = None, False
                return
            if held.mark != self._held.mark:
                self._held, self._alive = held, began
                self._tell_terms()
                pause = self._wanted.sign(self._seconds)
            else:  # no sign: another one soon, as long as others still believe the last one
                left = self._alive + self._seconds - self._clock.now()
                pause = max(asked, left / 6, self._seconds / (100 if left > 0 else 6))

    def _is_ended(self, stop: threading.Event, pause: float) -> bool:
        """Wait for the next sign, or until somebody asks for one; whether signs end."""
        end = self._clock.now() + pause
        while (left := end - self._clock.now()) > 0:
            lies = self._held.document if self._held is not None else None
            quiet = lies is not None and lies.answers > 0
            if self._clock.wait(stop, min(left, LISTEN) if quiet else left):
                return True
            if quiet and self._is_asked():
                break
        return stop.is_set()

    def _is_asked(self) -> bool:
        """Whether somebody asks for signs of life, or has taken the lease."""
        try:
            mine = self._backend.look().mine
        except CachekitError:  # cut off, say
            return False
        if mine is not None:
            self._held = mine
        return mine is None or (mine.document is not None and mine.document.asked)

    def _end_heart(self) -> None:
        self._stop.set()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join(min(10.0, self._wanted.seconds))
