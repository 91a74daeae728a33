"""Options that several verbs share, and the session that they make."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from cachekit.actions.pins import Named
    from cachekit.actions.session import Session
    from cachekit.compilers import Node
    from cachekit.config import Config
    from cachekit.journal import Journal
    from cachekit.recipe import Recipe
    from cachekit.tiers.chain import Chain


def complete_recipe(incomplete: str) -> list[str]:
    """Names of the zoo for the shell's completion, which adds files by itself where there are none."""
    from cachekit import zoo

    return [name for name in zoo.recipes() if name.startswith(incomplete)]


def complete_format(incomplete: str) -> list[str]:
    """Output formats for the shell's completion."""
    from cachekit.cli import out

    return [name for name in out.FORMATS if name.startswith(incomplete)]


def complete_compiler(incomplete: str) -> list[str]:
    """Compilers for the shell's completion."""
    from cachekit.compilers.select import NAMES

    return [name for name in ("auto", *NAMES) if name.startswith(incomplete)]


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A YAML file, or a name of `cachekit zoo`.",
        show_default=False,
        autocompletion=complete_recipe,
    ),
]
Overrides = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Change a field: training.per_device_train_batch_size=8. Repeatable."
    ),
]
Tiny = Annotated[
    bool, typer.Option("--tiny", help="The recipe in small: few layers, a few rows of its own, random weights; no Hub.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format", "-f", metavar="human|json|quiet", help="What stdout carries.", autocompletion=complete_format
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="More; -vv with tracebacks.")
]
Home = Annotated[Optional[Path], typer.Option("--home", metavar="DIR", help="The store's folder.")]
CompilerName = Annotated[
    Optional[str],
    typer.Option("--compiler", metavar="NAME", help="auto, inductor or neuron.", autocompletion=complete_compiler),
]
Toolchain = Annotated[
    Optional[str], typer.Option("--toolchain", metavar="NAME", help="Plan for a release of Neuron's SDK.")
]
Instance = Annotated[Optional[str], typer.Option("--instance", metavar="TYPE", help="Plan for another machine type.")]
Target = Annotated[Optional[str], typer.Option("--target", metavar="NAME", help="Plan for a chip: trn1, trn2 or inf2.")]
NodeCount = Annotated[
    Optional[int], typer.Option("--nnodes", metavar="N", min=1, help="Machines that train together: parallel.nodes.")
]
NodeRank = Annotated[int, typer.Option("--node-rank", metavar="R", min=0, help="This machine's number, from 0.")]
MasterAddress = Annotated[str, typer.Option("--master-addr", metavar="HOST", help="The first machine's address.")]
MasterPort = Annotated[int, typer.Option("--master-port", metavar="PORT", help="There.")]
Cache = Annotated[
    Optional[str],
    typer.Option("--cache", metavar="local:rw,NAME:r", help="The caches in order, and what may be done there."),
]
Offline = Annotated[bool, typer.Option("--offline", help="Open no connection.")]
Wait = Annotated[
    Optional[float],
    typer.Option("--wait", metavar="SECONDS", help="Wait that long for another process that compiles the same."),
]
RecipesOrKeys = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys by their first digits (`cachekit ls`).",
        show_default=False,
        autocompletion=complete_recipe,
    ),
]
RequireWarm = Annotated[bool, typer.Option("--require-warm", help="Exit 3 instead of compiling.")]
Recache = Annotated[bool, typer.Option("--recache", help="Compile although it is stored, and replace it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")]


def load_config(
    home: Path | None = None,
    compiler: str | None = None,
    wait: float | None = None,
    cache: str | None = None,
) -> Config:
    """Settings with these flags."""
    from cachekit import config

    return config.load({"home": home, "compiler": compiler, "wait_seconds": wait, "cache": cache})


def with_nodes(overrides: list[str] | None, count: int | None) -> list[str]:
    """Overrides with `--nnodes` as what it stands for."""
    return [*(overrides or ()), *([f"parallel.nodes={count}"] if count is not None else ())]


def named(
    recipe: str,
    overrides: list[str] | None,
    home: Path | None = None,
    compiler: str | None = None,
    *,
    tiny: bool = False,
) -> str:
    """A recipe as the user would type it again, with what else the next command must be told to mean the same."""
    words = [recipe, *(["--tiny"] if tiny else []), *(word for text in overrides or () for word in ("--set", text))]
    return shlex.join([*words, *elsewhere(home, compiler)])


def elsewhere(home: Path | None, compiler: str | None = None) -> list[str]:
    """The options that say which store and compiler were meant, as they were given."""
    return [*(["--home", str(home)] if home else []), *(["--compiler", compiler] if compiler else [])]


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


def load_recipe(name: str, overrides: list[str] | None, *, tiny: bool = False) -> tuple[Recipe, str]:
    """A recipe by path or name, and the path it was read from; in small, with the overrides on top of that."""
    from cachekit import recipe, zoo

    path = zoo.recipe_path(name)
    loaded = recipe.load(path, overrides or ())
    if tiny:
        from cachekit import tiny as small

        loaded = recipe.load(path, [*small.overrides(loaded), *(overrides or ())])
    return loaded, str(path)


def cache_folder(text: str) -> Path:
    """The local folder that somebody names, as a path or as `file://…`, which is how Neuron's own variables name it.

    Raises:
        UsageError: It is somewhere else, in a bucket for one.
    """
    from cachekit.compilers.neuron.root import local_path
    from cachekit.errors import UsageError

    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is None:
        return Path(text)
    url = text if "://" in text else text.replace(":", "://", 1)
    path, why = local_path(url)
    if path is None:
        raise UsageError(
            f"{text} is no local folder", cause=why[0], hint=f"name a folder on a local disk, or ./{text} for one here"
        )
    return path


@contextmanager
def session(
    config: Config,
    recipe: Recipe | None,
    verb: str,
    *,
    offline: bool = False,
    toolchain: str | None = None,
    instance: str | None = None,
    node: Node | None = None,
) -> Iterator[Session]:
    """Build the collaborators of one run, once; with a toolchain or an instance for a machine that is not this one."""
    from cachekit.actions.session import Session
    from cachekit.bypass import bypass
    from cachekit.cli import out
    from cachekit.compilers import select
    from cachekit.errors import CompilerUnavailableError, StoreError
    from cachekit.journal import Journal, prune
    from cachekit.store import Store
    from cachekit.store.layout import Layout
    from cachekit.training import ProcessLauncher

    if offline:
        # The Hub client's own switch; the worker inherits it.
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_DATASETS_OFFLINE"] = "1"
    wanted = recipe.compiler.name if recipe else "auto"
    compiler = select(wanted, config.compiler, toolchain=toolchain or "", instance=instance or "", node=node)
    # Looking leaves no trace: only runs that change something write a journal.
    layout = Layout(config.home)
    problem = ""
    try:
        if not stat.S_ISDIR(config.home.stat().st_mode):
            problem = "it is not a folder"
    except (FileNotFoundError, NotADirectoryError):
        pass  # made by what writes first, or told by that
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", "") or str(error)
    if problem:
        raise StoreError(
            f"{str(config.home)[:200]} is no store", cause=problem, hint="set CACHEKIT_HOME or --home to a folder"
        )
    writes = verb in {"warm", "train", "run", "import", "pull", "push", "gc", "rm", "verify"}
    journal = Journal(layout.journal if writes else None, verb)
    if writes:
        from cachekit.actions.history import retire

        retire(layout, config.keep_logs)
        prune(layout.logs, config.keep_logs)
    with out.following(journal):
        try:
            chain = shared(config, journal, offline=offline)
            yield Session(config, journal, Store(config.home, journal), compiler, ProcessLauncher(), chain)
        except BaseException as error:
            if isinstance(error, CompilerUnavailableError):
                bypass(journal, "compiler-not-keyed", error.message)
            journal.emit("run.failed", error=type(error).__name__, message=str(error))
            raise
        finally:
            journal.close()


def shared(config: Config, journal: Journal, *, offline: bool = False) -> Chain:
    """The shared caches, as the chain in the settings says; offline without those beyond a network.

    Raises:
        UsageError: The chain, or an address in it, cannot be used.
    """
    from cachekit.config import flag_from_environment
    from cachekit.store.layout import Layout
    from cachekit.tiers import chain

    links = chain.parse(config.cache, config.tiers)[1:]
    offline = offline or flag_from_environment("HF_HUB_OFFLINE")
    if not links:
        return chain.Chain(journal=journal)
    from cachekit.tiers import select
    from cachekit.tiers.remote import Remote

    memory = Layout(config.home).remotes

    def remote(link: chain.Link) -> Remote:
        return Remote(select.make(link), memory, readable=link.readable, writable=link.writable)

    left = [link for link in links if offline and select.needs_network(link)]
    return chain.Chain(
        [remote(link) for link in links if link not in left],
        journal,
        {link.name: partial(remote, link) for link in left},
    )


def need_chain(chain: Chain, verb: str) -> None:
    """Raise where no shared cache may be read, or written.

    Raises:
        UsageError: There is none.
    """
    from cachekit.errors import UsageError

    remotes = chain.readable if verb == "read" else chain.writable
    if not remotes and chain.offline:
        raise UsageError(
            f"no shared cache can be {verb} offline",
            cause=f"{', '.join(chain.offline)} is beyond the network",
            hint="leave --offline out, and unset HF_HUB_OFFLINE",
        )
    if not remotes:
        raise UsageError(
            f"no shared cache is named that may be {verb}",
            hint="--cache local:rw,hf://OWNER/NAME:rw, or `cachekit hub use OWNER/NAME`",
        )


def named_key(config: Config, name: str, overrides: list[str] | None) -> Named:
    """What a person means by a recipe, a key, or the first digits of one; see `key_of`."""
    from cachekit.actions.pins import Named

    key = key_of(config, name, overrides)
    return Named(key.lower()) if key == name else Named(key, name)


def key_of(
    config: Config,
    name: str,
    overrides: list[str] | None,
    *,
    toolchain: str | None = None,
    instance: str | None = None,
) -> str:
    """The key of a recipe; anything else is taken for the beginning of a key."""
    from cachekit import zoo
    from cachekit.actions.prepare import prepare
    from cachekit.compilers import select
    from cachekit.errors import UnknownNameError

    try:
        zoo.recipe_path(name)
    except UnknownNameError:
        if len(name) >= 4 and not set(name.lower()) - set("0123456789abcdef"):  # noqa: PLR2004
            return name
        raise
    loaded, _ = load_recipe(name, overrides)
    compiler = select(loaded.compiler.name, config.compiler, toolchain=toolchain or "", instance=instance or "")
    return prepare(loaded, compiler, name).key


def check_output(folder: Path) -> None:
    """Find out before training whether its result can be written.

    Raises:
        UsageError: It cannot.
    """
    from cachekit.errors import UsageError

    # Made only by a training that starts: one that does not leaves nothing behind.
    try:
        place = folder
        while not place.exists():
            place = place.parent
        probe = place / f".cachekit-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"the output folder {folder} cannot be written",
            cause=error.strerror or str(error),
            hint="name another with --output-dir",
        ) from error
