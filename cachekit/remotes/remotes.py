"""The remotes of a run, in order: the first that has a record serves it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from cachekit.config import ONLY_HERE, flag_from_environment
from cachekit.errors import (
    AuthError,
    CachekitError,
    Helps,
    IntegrityError,
    RemoteError,
    SkippedError,
    UntrustedError,
    UsageError,
)
from cachekit.events import Journal, bypass
from cachekit.remotes.judging import Trust
from cachekit.remotes.patience import Patience
from cachekit.store.layout import Layout, Place
from cachekit.store.record import DamagedRecordError
from cachekit.text import about

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.remotes import address
    from cachekit.remotes.remote import Found, Remote

ONLINE = "omit --offline, and unset HF_HUB_OFFLINE"


class Remotes:
    """The remotes of a run, nearest first.

    Args:
        remotes: Without the local store.
        journal: Told once about each that fails.
        push_seconds: The longest that a push may take, with waiting for a busy cache.
        patience: How long this run asks again what failed; the remotes have the same.
        offline: Those that are left out, because no connection may be opened: names, and what makes them.
        trust: What this run asks of records.
    """

    def __init__(
        self,
        remotes: Sequence[Remote] = (),
        journal: Journal | None = None,
        offline: Mapping[str, Callable[[], Remote]] | None = None,
        *,
        trust: Trust | None = None,
        push_seconds: float = 120.0,
        patience: Patience | None = None,
    ) -> None:
        self.push_seconds = push_seconds
        self.patience = patience or Patience()
        self.offline = dict(offline or {})
        self._remotes = tuple(remotes)
        self._journal = journal or Journal(None, "")
        self._told: set[str] = set()
        self._counted: set[tuple[str, str]] = set()
        self._failure: RemoteError | AuthError | None = None
        self._problems: dict[str, dict[str, CachekitError]] = {}  # by key, then by remote: why nothing came from there
        self.trust = trust or Trust()

    def __bool__(self) -> bool:
        return bool(self._remotes)

    @property
    def readable(self) -> tuple[Remote, ...]:
        """The remotes that hits are taken from."""
        return tuple(remote for remote in self._remotes if remote.readable)

    @property
    def writable(self) -> tuple[Remote, ...]:
        """The remotes that new records are pushed to."""
        return tuple(remote for remote in self._remotes if remote.writable)

    def postpone(self, key: str) -> None:
        """Note a key as pending for the remotes that are left out now."""
        for make in self.offline.values():
            with suppress(CachekitError):  # a package that it needs is missing, say: it is not used now
                remote = make()
                if remote.writable:
                    remote.keep_pending(key)

    def above(self, remote: Remote) -> tuple[Remote, ...]:
        """The writable remotes before this one, which a hit fills."""
        return tuple(other for other in self._remotes[: self._remotes.index(remote)] if other.writable)

    def find(self, place: Place, *, anew: bool = False) -> Found | None:
        """The record at a place, as `find_all` finds it.

        Args:
            place: Where it lies.
            anew: Ask, whatever is remembered.
        """
        return self.find_all([place], anew=anew).get(place.key)

    def find_all(self, places: Sequence[Place], *, anew: bool = False) -> dict[str, Found]:
        """The records of many keys, each from the first remote that has it; a remote that fails is skipped.

        Each remote is asked which of them it has, and again only for what no other one has; see `ask_each`.

        Args:
            places: Where records lie.
            anew: Ask, whatever is remembered.
        """
        found: dict[str, Found] = {}
        failures: dict[Remote, dict[Place, RemoteError | AuthError]] = {}

        def left(remote: Remote) -> list[Place]:
            asked = failures.get(remote, dict.fromkeys(places))
            return [place for place in asked if place.key not in found]

        def ask(remote: Remote) -> Collection[RemoteError | AuthError]:
            asked = left(remote)
            before = {place: error for place, error in failures.get(remote, {}).items() if place not in asked}
            failures[remote] = before | self._ask(remote, asked, found, anew=anew)
            return failures[remote].values()

        self.ask_each(ask, lambda remote: bool(left(remote)))
        for remote, failed in failures.items():
            for place, error in failed.items():
                self.failed(remote, error, place.key)
        return found

    def ask_each(
        self, ask: Callable[[Remote], Collection[RemoteError | AuthError]], wanted: Callable[[Remote], bool]
    ) -> None:
        """Ask each remote once, nearest first; then those that failed once more, with this run's patience.

        So what a good remote has is not waited for behind a dead one.

        Args:
            ask: Asks one; returns what it failed with, nothing where it did not.
            wanted: Whether its answer is still wanted.
        """
        others = len(self.readable) > 1
        failed = []
        for remote in self.readable:
            if wanted(remote):
                with self.patience.once() if others else nullcontext():
                    errors = ask(remote)
                failed += [(remote, errors)] if errors else []
        for remote, errors in failed:
            if others and wanted(remote) and self._may_ask_again(remote, errors):
                ask(remote)

    def _ask(
        self, remote: Remote, places: Sequence[Place], found: dict[str, Found], *, anew: bool
    ) -> dict[Place, RemoteError | AuthError]:
        """Add the records that a remote has to what was found; returns why it could not be asked for the others."""
        try:
            outcomes = remote.find_all(places, anew=anew)
        except (RemoteError, AuthError) as error:
            return dict.fromkeys(places, error)
        failed: dict[Place, RemoteError | AuthError] = {}
        for place in places:
            outcome = outcomes.get(place.key)
            if isinstance(outcome, DamagedRecordError | UntrustedError):
                self._not_used(remote, place.key, outcome)
            elif isinstance(outcome, RemoteError | AuthError):
                failed[place] = outcome
            elif outcome is not None:
                found[place.key] = outcome
        return failed

    def _may_ask_again(self, remote: Remote, errors: Iterable[RemoteError | AuthError]) -> bool:
        """Wait until a remote that failed may be asked again; False where it may not."""
        # What the failure itself made the run skip says nothing.
        told = [error for error in errors if isinstance(error, RemoteError) and not isinstance(error, SkippedError)]
        if not told or not self.patience.again(remote.name, told[0], 1, self.patience.clock.now()):
            return False
        remote.retry()
        return True

    def find_on(self, remote: Remote, place: Place) -> Found | None:
        """The record at a place on one remote, asked anew; what keeps it from being used is told.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        try:
            return remote.find(place, anew=True)
        except (DamagedRecordError, UntrustedError) as error:
            self._not_used(remote, place.key, error)
            return None

    def _not_used(self, remote: Remote, key: str, why: DamagedRecordError | UntrustedError) -> None:
        """Tell that a remote's record of a key may not be used."""
        if isinstance(why, UntrustedError):
            self.refused(remote, key, why)
            return
        self._journal.emit("remote.damaged", remote=remote.name, key=key, reason=str(why))
        bypass(self._journal, "remote-damaged", remote.name)
        self.noted(remote, key, IntegrityError(f"{remote.name} has a damaged record", cause=str(why)))

    def tell_time(self) -> None:
        """Note how long this run asked remotes."""
        if asked := self.patience.asked:
            self._journal.emit("remote.time", asked=round(asked, 3), lost=round(self.patience.lost, 3))

    def need(self, verb: str, *, offline: bool = False) -> None:
        """Raise where no remote may be read, or written.

        Args:
            verb: `read` or `written`.
            offline: One that is left out, as no connection may be opened, is enough: see `unasked`.

        Raises:
            UsageError: There is none.
        """
        remotes = self.readable if verb == "read" else self.writable
        if not remotes and self.offline:
            if offline:
                return
            raise UsageError(
                f"no remote can be {verb} offline",
                cause=f"{', '.join(self.offline)} need{'s' if len(self.offline) == 1 else ''} the network",
                hint=ONLINE,
            )
        if not remotes:
            raise UsageError(
                f"no remote that can be {verb} is configured" if self._remotes else "no remote is configured",
                hint="configure one: --cache local:rw,hf://OWNER/NAME:rw, or `cachekit hub use OWNER/NAME`",
            )

    def unasked(self, what: str) -> RemoteError | None:
        """What to raise where no remote has a thing, and some were not asked, because no connection may be opened."""
        if not self.offline:
            return None
        return RemoteError(
            f"it is unknown whether a remote has {what}: no connection may be opened",
            cause=f"not asked: {', '.join(self.offline)}" + ("; no other remote has it" if self.readable else ""),
            hint=ONLINE,
        )

    def problems(self, key: str) -> Mapping[str, CachekitError]:
        """By remote, why none of its record of a key came from there, although nobody knows that it has none."""
        return self._problems.get(key, {})

    def noted(self, remote: Remote, key: str, error: CachekitError) -> None:
        """Note why a record does not come from a remote: the first reason is the one to tell."""
        self._problems.setdefault(key, {}).setdefault(remote.name, error)

    def untrusted(self, key: str) -> tuple[str, ...]:
        """One sentence for each remote that has a record of a key which may not be used."""
        found = self.problems(key).items()
        return tuple(f"{remote}: {error.cause}" for remote, error in found if isinstance(error, UntrustedError))

    def helps(self, key: str) -> Iterator[Helps]:
        """What helps with each of those."""
        return (error.helps for error in self.problems(key).values() if isinstance(error, UntrustedError))

    def raise_failure(self, key: str = "") -> None:
        """Raise the error of the first remote that failed in this run, or had a record of a key that may not be used.

        Returns where neither was.
        """
        if self._failure is not None:
            raise self._failure
        for error in self.problems(key).values():
            raise error

    def refused(self, remote: Remote, key: str, error: UntrustedError) -> None:
        """Report, once in a run, that a record on a remote may not be used."""
        if isinstance(self.problems(key).get(remote.name), UntrustedError):
            return
        self.noted(remote, key, error)
        self._journal.emit(
            "remote.untrusted", remote=remote.name, key=key, reason=error.cause, message=error.message, hint=error.hint
        )
        self._bypassed(remote, "untrusted")

    def failed(self, remote: Remote, error: RemoteError | AuthError, key: str = "") -> None:
        """Report, once in a run, that a remote is not used; for each key, that it could not be asked for it."""
        self._failure = self._failure or error
        if key:
            self.noted(remote, key, error)
        if remote.name in self._told:
            return
        self._told.add(remote.name)
        remote.told = error.said
        self._journal.emit(
            "remote.failed",
            remote=remote.name,
            code=error.code,
            reason=about(remote.name, error.said),
            hint=error.hint,
            skipped=isinstance(error, SkippedError),
        )
        kinds = ((SkippedError, "skipped"), (UntrustedError, "untrusted"), (AuthError, "refused"))
        kind = next((word for cls, word in kinds if isinstance(error, cls)), "failed")
        self._bypassed(remote, kind)

    def _bypassed(self, remote: Remote, kind: str) -> None:
        """Count, once in a run, why a remote is not used."""
        if (remote.name, kind) not in self._counted:
            self._counted.add((remote.name, kind))
            bypass(self._journal, f"remote-{kind}", remote.name)


def remotes_of(config: Config, journal: Journal, *, offline: bool = False) -> Remotes:
    """The remotes that the settings name; offline without those beyond a network.

    Raises:
        UsageError: The list, or an address in it, cannot be used.
    """
    if config.cache == ONLY_HERE:
        return Remotes(journal=journal, trust=Trust(config.trust, {}, config.trust_only, everything=config.trust_all))
    from cachekit.remotes import address
    from cachekit.remotes.remote import Remote

    links = address.links_of(config)
    offline = offline or flag_from_environment("HF_HUB_OFFLINE")
    memory = Layout(config.home).remotes
    left = [link for link in links if offline and address.needs_network(link)]
    made = {link.name: address.make(link) for link in links if link not in left}
    # Where a record came from is said by the address, not by the name of a table.
    # Of two entries for one place the one that asks more stands.
    asked = sorted(links, key=lambda link: address.ASKS.index(link.trust))
    places = {made[link.name].name if link.name in made else link.address: link.trust for link in asked}
    said = {place: word for place, word in places.items() if word}
    trust = Trust(config.trust, said, config.trust_only, everything=config.trust_all)

    def told(name: str, error: RemoteError, pause: float) -> None:
        journal.show("remote.again", remote=name, reason=about(name, error.said), seconds=pause)

    patience = Patience(config.patience_seconds, told)

    def remote(link: address.Link) -> Remote:
        storage = made.get(link.name) or address.make(link)
        return Remote(storage, memory, readable=link.readable, writable=link.writable, trust=trust, patience=patience)

    return Remotes(
        [remote(link) for link in links if link not in left],
        journal,
        {link.name: partial(remote, link) for link in left},
        trust=trust,
        push_seconds=config.push_seconds,
        patience=patience,
    )
