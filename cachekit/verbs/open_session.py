"""The session of one run, built from settings and a recipe: what the command line and the library both begin with.

Imports nothing that costs: adapters, the Hub's client and the launcher are loaded when they are needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachekit.compilers import Node
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.config import Config
    from cachekit.events import Journal
    from cachekit.recipe import Recipe
    from cachekit.store import Store
    from cachekit.verbs.session import Session

# Verbs whose runs have a journal.
WRITING = frozenset({"warm", "train", "run", "import", "pull", "push", "gc", "rm", "verify"})


def load_config(
    home: Path | str | None = None,
    compiler: str | None = None,
    wait: float | None = None,
    cache: str | None = None,
    *,
    trust_all: bool = False,
    **said: Any,
) -> Config:
    """Settings with these flags, `said` by the settings' names; None is "not said"."""
    from msgspec import structs

    from cachekit import config

    found = config.load({"home": home, "compiler": compiler, "wait_seconds": wait, "cache": cache, **said})
    return structs.replace(found, trust_all=trust_all)


def check_contradiction(*, require_warm: bool, recache: bool) -> None:
    """Refuse to compile what must not be compiled.

    Raises:
        UsageError: Both were asked for.
    """
    from cachekit.errors import UsageError

    if require_warm and recache:
        raise UsageError(
            "--require-warm and --recache contradict each other",
            cause="the one forbids what the other asks for: to compile",
            hint="leave one of them out",
        )


def load_recipe(name: str, overrides: Sequence[str] | None, *, tiny: bool = False) -> tuple[Recipe, str]:
    """A recipe by path or name, and the path it was read from; in small, with the overrides on top of that."""
    from cachekit import recipe
    from cachekit.recipe import zoo

    path = zoo.recipe_path(name)
    words = list(overrides or ())
    if tiny:
        from cachekit.recipe import tiny as small

        return small.in_small(words, partial(recipe.load, path)), str(path)
    return recipe.load(path, words), str(path)


@contextmanager
def open_session(
    config: Config,
    recipe: Recipe | None,
    verb: str,
    *,
    compiler: str = "",
    offline: bool = False,
    toolchain: str | None = None,
    instance: str | None = None,
    node: Node | None = None,
    follow: Callable[[Journal], AbstractContextManager[None]] | None = None,
) -> Iterator[Session]:
    """Build the collaborators of one run, once.

    Args:
        config: Settings.
        recipe: Chooses the compiler, where the settings leave it open.
        compiler: Chooses it where there is no recipe.
        verb: What is done: one of `WRITING` leaves a journal.
        offline: Open no connection; nor does a worker that is started meanwhile.
        toolchain: With it, or an `instance`, for a machine that is not this one.
        instance: Of the registry.
        node: This machine's place, where several train together.
        follow: Shows the journal's events to somebody for as long as the session lasts.

    Raises:
        UsageError: The remotes, or the compiler, cannot be had as named.
        CompilerUnavailableError: The compiler is not on this machine.
        StoreError: The store's place is taken by something else.
    """
    from cachekit.compilers import select
    from cachekit.errors import CompilerUnavailableError, StoreError
    from cachekit.events import Journal, bypass, prune
    from cachekit.remotes.remotes import remotes_of
    from cachekit.store import Store
    from cachekit.store.access import check_home
    from cachekit.store.layout import Layout
    from cachekit.training import ProcessLauncher
    from cachekit.verbs.session import Session

    with offline_environment() if offline else nullcontext():
        wanted = recipe.compiler.name if recipe else compiler or None
        chosen = select(wanted, config.compiler, toolchain=toolchain or "", instance=instance or "", node=node)
        check_home(config.home)
        # Looking leaves no trace: only runs that change something write a journal.
        layout = Layout(config.home)
        writes = verb in WRITING
        journal = Journal(layout.journal if writes else None, verb)
        if writes:
            from cachekit.store.history import retire

            retire(layout, config.keep_logs)
            prune(layout.logs, config.keep_logs)
        with follow(journal) if follow else nullcontext():
            if config.trust_all:
                journal.emit("trust.all")
            try:
                remotes = remotes_of(config, journal, offline=offline)
                yield Session(config, journal, Store(config.home, journal), chosen, ProcessLauncher(), remotes)
            except BaseException as error:
                if isinstance(error, CompilerUnavailableError):
                    bypass(journal, "compiler-not-keyed", error.message)
                journal.emit("run.failed", error=type(error).__name__, message=str(error))
                raise
            finally:
                journal.close()
                if journal.failure and not isinstance(sys.exc_info()[1], StoreError):  # which says so itself
                    journal.show("journal.lost", reason=journal.failure)


@contextmanager
def open_store(
    config: Config, verb: str, *, follow: Callable[[Journal], AbstractContextManager[None]] | None = None
) -> Iterator[Store]:
    """The store alone, for who only looks at it: no compiler is chosen and no cache, which take time to load.

    Args:
        config: Settings.
        verb: What is done.
        follow: See `open_session`.

    Raises:
        StoreError: The store's place is taken by something else.
    """
    from cachekit.events import Journal

    journal = Journal(None, verb)
    with follow(journal) if follow else nullcontext():
        yield store_at(config.home, journal)


def store_at(home: Path, journal: Journal | None = None) -> Store:
    """The store of a folder, which need not be there yet.

    Raises:
        StoreError: The store's place is taken by something else.
    """
    from cachekit.events import Journal
    from cachekit.store import Store
    from cachekit.store.access import check_home

    check_home(home)
    return Store(home, journal or Journal(None, ""))


@contextmanager
def offline_environment() -> Iterator[None]:
    """The Hub client's own switches; the worker inherits them."""
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def key_of(
    config: Config,
    name: str,
    overrides: Sequence[str] | None,
    *,
    tiny: bool = False,
    machine: Elsewhere | None = None,
) -> str:
    """The key of a recipe; anything else is taken for the beginning of a key.

    Args:
        config: Settings.
        name: The recipe, or the key.
        overrides: Fields of the recipe that are changed.
        tiny: The recipe in small.
        machine: Which its key is for, where that is not this one.
    """
    from cachekit.compilers import select
    from cachekit.compilers.prepare import prepare
    from cachekit.errors import UnknownNameError
    from cachekit.key.canonical import FEWEST_DIGITS
    from cachekit.recipe import zoo

    try:
        zoo.recipe_path(name)
    except UnknownNameError as error:
        if name and not set(name.lower()) - set("0123456789abcdef"):
            if len(name) >= FEWEST_DIGITS:
                return name.lower()
            raise UnknownNameError(
                error.message,
                hint=f"if it is meant as a key, give {FEWEST_DIGITS} digits or more: `cachekit store ls`",
            ) from None
        raise
    loaded, _ = load_recipe(name, overrides, tiny=tiny)
    compiler = machine.select(loaded) if machine else select(loaded.compiler.name, config.compiler)
    return prepare(loaded, compiler, name).key


def output_folder(recipe: Recipe, said: Path | None) -> Path:
    """Where a training's model goes: as said, as the recipe says, or below the working directory."""
    return (said or Path(recipe.training.output_dir or Path("runs") / recipe.name)).expanduser().absolute()


def check_output(folder: Path) -> None:
    """Find out before training whether its result can be written.

    Raises:
        UsageError: It cannot.
    """
    from cachekit.disk import existing
    from cachekit.errors import UsageError

    # Made only by a training that starts: one that does not leaves nothing behind.
    try:
        probe = existing(folder) / f".cachekit-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"the output folder {folder} cannot be written",
            cause=error.strerror or str(error),
            hint="name another with --output-dir",
        ) from error
