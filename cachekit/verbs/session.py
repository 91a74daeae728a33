"""What every verb works with: one bundle of collaborators, built once from the settings.

What a look at the store never asks (adapters, fetching, pushing, the trainer) is loaded when it is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from msgspec import Struct, field, structs

from cachekit import config as settings
from cachekit.calls import ending
from cachekit.errors import (
    AuthError,
    CachekitError,
    CompilerUnavailableError,
    IntegrityError,
    RemoteError,
    StoreError,
    UsageError,
)
from cachekit.events import Journal, Listener, bypass, prune
from cachekit.host import product
from cachekit.private import NotPrivateError, new_folder, private_folder
from cachekit.remotes.remotes import Remotes, remotes_of
from cachekit.store import Store
from cachekit.store.access import check_home
from cachekit.store.layout import Layout, Place, temporary_folder
from cachekit.text import cause_of
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit import spot
    from cachekit.compilers import Observed
    from cachekit.compilers.cachedir import CacheDir
    from cachekit.compilers.keep import Keeping
    from cachekit.compilers.prepare import Prepared
    from cachekit.config import Config
    from cachekit.remotes.lease import Lease
    from cachekit.remotes.remote import Found
    from cachekit.store.record import Record
    from cachekit.training import ProcessLauncher

# The switches of the Hub's client; workers inherit them.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
LAST_PUSH = 20.0  # seconds for the push that a run was ended in; schedulers kill after 30, docker after 10
# Verbs whose runs have a journal.
WRITING = frozenset({"warm", "train", "run", "import", "pull", "push", "gc", "rm", "verify"})


def process_launcher() -> ProcessLauncher:
    """Runs workers as child processes of this one."""
    from cachekit.training import ProcessLauncher

    return ProcessLauncher()


class Session(Struct, frozen=True):
    """One run's collaborators.

    Attributes:
        config: Settings.
        journal: Told what happens.
        store: The local store.
        remotes: The remotes.
        launcher: Gives what runs workers.
    """

    config: Config
    journal: Journal
    store: Store
    remotes: Remotes = field(default_factory=Remotes)
    launcher: Callable[[], ProcessLauncher] = process_launcher

    __hash__ = by_value

    def fetch(self, found: Found) -> Record | None:
        """A record from a remote, in the store; None where it cannot be fetched, which has been told.

        Raises:
            StoreError: The store cannot be written.
        """
        from cachekit.compilers import registry
        from cachekit.remotes.fetch import fetch

        judge = registry.judge(found.shared.record.directory)
        try:
            return fetch(self.store, self.remotes, found, judge, instead=True).record
        except (RemoteError, AuthError, IntegrityError):  # told; then the record is compiled, as if nobody had it
            return None

    def push(self, record: Record, *, lease: Lease[Found] | None = None, replaces: bool = False) -> None:
        """Put a record on every remote that may be written; see `remotes.push`."""
        if not (self.remotes.writable or self.remotes.offline):
            return
        from cachekit.remotes.push import push

        try:
            push(self.store, self.remotes, [record], lease=lease, replaces=replaces)
        except KeyboardInterrupt:  # asked to end while hours of work are on their way; what was sent is not sent again
            self.push_last(record, lease=lease, replaces=replaces)
            raise

    def push_last(self, record: Record, *, lease: Lease[Found] | None = None, replaces: bool = False) -> None:
        """As `push`, for a run that is to end: within `LAST_PUSH` seconds."""
        if not (self.remotes.writable or self.remotes.offline):
            return
        from cachekit.remotes.push import push

        self.journal.emit("push.last", key=record.key, seconds=LAST_PUSH, lease=lease is not None)
        with ending(LAST_PUSH):
            push(self.store, self.remotes, [record], lease=lease, replaces=replaces)

    @contextmanager
    def until_notice(
        self, lease: Lease[Found] | None = None, finished: Callable[[Session], Record | None] = lambda _: None
    ) -> Iterator[None]:
        """While the block compiles or trains: if EC2 takes this Spot instance away, let go of what others may have.

        What is finished is pushed, and the lease is given back, so that another machine goes on at once; then what
        could not be pushed before is pushed. The work itself goes on: it may be done in time.

        Args:
            lease: What others wait for.
            finished: Keeps what is finished of the work, in the store of a session; None where that is nothing.
        """

        def gone(notice: spot.Notice) -> None:
            self.journal.emit("spot.notice", action=notice.action, at=notice.time)
            store = Store(self.config.home, self.journal, self.remotes.trust.asked)  # an index is one thread's
            mine = structs.replace(self, store=store)
            with suppress(CachekitError):
                if record := finished(mine):
                    mine.push_last(record)
            if lease is not None:
                lease.release()
            kept = {key for remote in self.remotes.writable for key in remote.pending()}
            records = list(store.records(lambda one: one.key in kept)) if kept else []
            if records:
                from cachekit.remotes.push import push

                for remote in self.remotes.writable:
                    remote.retry()  # there is no later
                with suppress(CachekitError):  # a file of theirs is damaged, say: they stay pending
                    push(store, self.remotes, records)

        from cachekit.spot import watching

        with watching(gone):
            yield

    def keep(self, keeping: Keeping, seen: Observed, *, fetched: bool, last: bool = False) -> tuple[Record | None, str]:
        """Keep what a run compiled, and push it; never fails that run, which has worked.

        Args:
            keeping: What the run had.
            seen: What the compiler did.
            fetched: The run's record comes from a remote: as it was it need not go there.
            last: The run is to end: see `push_last`.

        Returns:
            The record that there is now, None where there is none; and why what was compiled could not be kept.
        """
        kept, problem = keeping.keep(seen)
        if kept is None or problem or (kept == keeping.record and fetched):
            return kept, problem
        try:
            (self.push_last if last else self.push)(kept, replaces=keeping.replaces and keeping.ended)
        except CachekitError as error:
            self.journal.emit("train.not-kept", reason=str(error))
            bypass(self.journal, "not-kept", str(error))
            return kept, str(error)
        return kept, ""

    def cache_dir(
        self, prepared: Prepared, record: Record | None, shared: Path | None = None, *, anew: Place | None = None
    ) -> AbstractContextManager[CacheDir]:
        """A compiler cache dir of this run, filled from a record; see `compilers.cachedir`."""
        from cachekit.compilers.cachedir import cache_dir
        from cachekit.recipe.ingredients import worker_variables

        return cache_dir(
            self.store,
            prepared.compiler,
            record,
            key=prepared.key,
            base=self.config.compiler_cache_dir,
            shared=shared,
            anew=anew,
            variables=worker_variables(prepared.recipe),
        )

    @contextmanager
    def filled(
        self,
        prepared: Prepared,
        record: Record | None,
        again: Callable[[IntegrityError], Record | None],
        *,
        anew: bool = False,
    ) -> Iterator[tuple[CacheDir, Record | None]]:
        """The compiler cache dir of a recipe or a command, filled from its record, and which record it is in the end.

        Args:
            prepared: The recipe.
            record: What to restore.
            again: Looks for another record where this one proves damaged, and has been set aside; asked once.
            anew: Everything compiles anew: what came from elsewhere for the key leaves the compiler's own folder.
        """
        place = prepared.place if anew else None
        with ExitStack() as stack:
            shared = self.own_root(prepared)
            try:
                cache_dir = stack.enter_context(self.cache_dir(prepared, record, shared, anew=place))
            except IntegrityError as error:
                record = again(error)
                cache_dir = stack.enter_context(self.cache_dir(prepared, record, shared, anew=place))
            yield cache_dir, record

    def own_root(self, prepared: Prepared) -> Path | None:
        """The compiler's own folder on this host, where a run must have that; see `compilers.cachedir`."""
        from cachekit.compilers.cachedir import own_root

        return own_root(prepared.compiler, prepared.recipe, self.journal, self.config.trust.salt)

    @property
    def log(self) -> Path:
        """The file that this run's workers print to.

        Raises:
            StoreError: No folder can be had that only this user can look into.
        """
        folder = self.store.layout.logs
        if not _writable(folder):
            try:
                folder = temporary_folder("logs")
            except OSError as error:
                closes = error.standing.mend if isinstance(error, NotPrivateError) else ""
                raise StoreError(
                    "the log of this run cannot be written",
                    cause=cause_of(error),
                    hint=closes or new_folder("TMPDIR"),
                ) from error
        return folder / f"{self.journal.run}.log"


def load_config(
    *, trust_only: str | None = None, trust_all: bool = False, mending: bool = False, **said: Any
) -> Config:
    """Settings with these flags, `said` by the settings' names; None is "not said". `mending`: see `config.load`.

    Raises:
        UsageError: A setting cannot be used, or two flags contradict each other.
    """
    found = settings.load(said, mending=mending)
    only: Literal["", "owner", "signed"] = "signed" if trust_only == "signed" else "owner" if trust_only else ""
    if trust_only not in {None, "signed", "owner"}:
        raise UsageError(f"--trust {trust_only} is not usable", hint="--trust signed, or --trust owner")
    if trust_only and trust_all:
        raise UsageError(
            f"--trust {trust_only} and --trust-all contradict each other",
            cause="one tightens what the settings require, the other lifts it",
            hint="leave one of them out",
        )
    return structs.replace(found, trust_all=trust_all, trust_only=only)


@contextmanager
def open_session(
    config: Config,
    verb: str,
    *,
    offline: bool = False,
    follow: Listener | None = None,
) -> Iterator[Session]:
    """Build the collaborators of one run, once.

    Args:
        config: Settings.
        verb: What is done: one of `WRITING` leaves a journal.
        offline: Open no connection; nor does a worker that is started meanwhile.
        follow: Is told the journal's events.

    Raises:
        UsageError: The remotes cannot be made as named, or no compiler is called as the settings say.
        StoreError: The store's place is taken by something else.
    """
    from cachekit.compilers import registry

    registry.check_name(config.compiler)
    with environment(OFFLINE if offline else {}):
        layout = Layout(config.home)
        check_home(layout)
        # Looking leaves no trace: only runs that change something write a journal.
        writes = verb in WRITING
        journal = Journal(layout.journal if writes else None, verb, layout.inside, product())
        if writes:
            from cachekit.store.history import retire

            retire(layout, config.keep_logs)
            prune(layout.logs, config.keep_logs, inside=layout.inside)
        if follow is not None:
            journal.listen(follow)
        if config.trust_all:
            journal.emit("trust.all")
        try:
            remotes = remotes_of(config, journal, offline=offline)
            store = Store(config.home, journal, remotes.trust.asked)
            try:
                yield Session(config, journal, store, remotes)
            finally:
                remotes.tell_time()
        except BaseException as error:
            if isinstance(error, CompilerUnavailableError):
                bypass(journal, "compiler-not-keyed", error.message)
            code = error.exit_code if isinstance(error, CachekitError) else 1
            journal.emit("run.failed", error=type(error).__name__, message=str(error), exit_code=code)
            raise
        finally:
            journal.close()
            if journal.failure and not isinstance(sys.exc_info()[1], StoreError):  # which says so itself
                journal.show("journal.lost", reason=journal.failure)


def store_at(home: Path, journal: Journal | None = None) -> Store:
    """The store of a folder, which need not be there yet.

    Raises:
        StoreError: The store's place is taken by something else.
    """
    check_home(Layout(home))
    return Store(home, journal or Journal(None, ""))


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Variables of this process that are set, or with None unset, until the block ends."""
    before = {name: os.environ.get(name) for name in changes}
    _change_environment(changes)
    try:
        yield
    finally:
        _change_environment(before)


def _change_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


P = ParamSpec("P")
R = TypeVar("R")


def using_store(action: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Session, P], R]:
    """For an action that uses records: what it looks up stays in the store until it is done, beside any removal."""

    @wraps(action)
    def used(session: Session, /, *args: P.args, **named: P.kwargs) -> R:
        with session.store.using():
            return action(session, *args, **named)

    return used


def _writable(folder: Path) -> bool:
    try:
        private_folder(folder)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True
