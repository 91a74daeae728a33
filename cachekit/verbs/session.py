"""What every action works with: one bundle of collaborators, built once by the command line or by a caller.

What a look at the store never asks (fetching, pushing, a compiler cache dir) is loaded when it is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field

from cachekit.errors import CachekitError, IntegrityError
from cachekit.events import Journal, bypass
from cachekit.remotes.chain import Chain
from cachekit.store import Store
from cachekit.store.layout import temporary_home
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.compilers import Compiler, Observed
    from cachekit.compilers.cachedir import CacheDir
    from cachekit.compilers.keep import Keeping
    from cachekit.compilers.prepare import Prepared
    from cachekit.config import Config
    from cachekit.recipe import Recipe
    from cachekit.remotes.lease import Lease
    from cachekit.remotes.remote import Found
    from cachekit.store.record import Record
    from cachekit.training import ProcessLauncher


class Session(Struct, frozen=True):
    """One run's collaborators.

    Attributes:
        config: Settings.
        journal: Told what happens.
        store: The local store.
        compiler: The compiler chosen for the recipe.
        launcher: Runs workers.
        chain: The remotes.
    """

    config: Config
    journal: Journal
    store: Store
    compiler: Compiler
    launcher: ProcessLauncher
    chain: Chain = field(default_factory=Chain)

    __hash__ = by_value

    def fetch(self, found: Found) -> Record | None:
        """A record from a remote, in the store; None where it cannot be had, which has been told.

        Raises:
            StoreError: The store cannot be written.
        """
        from cachekit.compilers import registry
        from cachekit.remotes.fetch import try_fetch

        return try_fetch(self.store, self.chain, found, registry.judge(found.shared.record.directory))

    def push(self, record: Record, *, lease: Lease[Found] | None = None, replaces: bool = False) -> None:
        """Put a record on every remote that may be written; see `remotes.push`."""
        from cachekit.remotes.push import push

        push(self.store, self.chain, [record], lease=lease, replaces=replaces)

    def keep(self, keeping: Keeping, seen: Observed, *, fetched: bool) -> tuple[Record | None, str]:
        """Keep what a run compiled, and push it; never fails that run, which has worked.

        Args:
            keeping: What the run had.
            seen: What the compiler did.
            fetched: The run's record comes from a remote: as it was it need not go there.

        Returns:
            The record that there is now, None where there is none; and why what compiled could not be kept.
        """
        kept, problem = keeping.keep(seen)
        if kept is None or problem or (kept == keeping.record and fetched):
            return kept, problem
        try:
            self.push(kept, replaces=keeping.replaces)
        except CachekitError as error:
            self.journal.emit("train.not-kept", reason=str(error))
            bypass(self.journal, "not-kept", str(error))
            return kept, str(error)
        return kept, ""

    def cache_dir(
        self, key: str, record: Record | None, shared: Path | None = None
    ) -> AbstractContextManager[CacheDir]:
        """A compiler cache dir of this run, filled from a record; see `compilers.cachedir`."""
        from cachekit.compilers.cachedir import cache_dir

        return cache_dir(self.store, self.compiler, record, key=key, base=self.config.compiler_cache_dir, shared=shared)

    @contextmanager
    def filled(
        self, prepared: Prepared, record: Record | None, again: Callable[[IntegrityError], Record | None]
    ) -> Iterator[tuple[CacheDir, Record | None]]:
        """The compiler cache dir of a recipe or a command, filled from its record, and which record it is in the end.

        Args:
            prepared: The recipe.
            record: What to restore.
            again: Looks for another record where this one proves damaged, and has been set aside; asked once.
        """
        with ExitStack() as stack:
            shared = self.own_root(prepared.recipe)
            try:
                live = stack.enter_context(self.cache_dir(prepared.key, record, shared))
            except IntegrityError as error:
                record = again(error)
                live = stack.enter_context(self.cache_dir(prepared.key, record, shared))
            yield live, record

    def own_root(self, recipe: Recipe) -> Path | None:
        """The compiler's own folder on this host, where a run must have that; see `compilers.cachedir`."""
        from cachekit.compilers.cachedir import own_root

        return own_root(self.compiler, recipe, self.journal)

    @property
    def log(self) -> Path:
        """The file that this run's workers print to."""
        folder = self.store.layout.logs
        if not _writable(folder):
            folder = temporary_home() / "logs"
        return folder / f"{self.journal.run}.log"


P = ParamSpec("P")
R = TypeVar("R")


def holding(action: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Session, P], R]:
    """For an action that uses records: what it looks up stays in the store until it is done, beside any removal."""

    @wraps(action)
    def held(session: Session, /, *args: P.args, **named: P.kwargs) -> R:
        with session.store.holding():
            return action(session, *args, **named)

    return held


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True
