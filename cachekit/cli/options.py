"""Options that several verbs share; what they make is made by `actions.open_session`, for the library too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.verbs.open_session import (
    check_contradiction,
    check_output,
    key_of,
    load_config,
    load_recipe,
    need_chain,
    open_session,
    output_folder,
    shared,
)

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.recipe import Recipe
    from cachekit.verbs.pins import Named
    from cachekit.verbs.session import Session

KEY_DIGITS = 64

__all__ = [
    "check_contradiction", "check_output", "key_of", "load_config", "load_recipe", "need_chain", "output_folder",
    "shared",
]  # fmt: skip


def complete_recipe(incomplete: str) -> list[str]:
    """Names of the zoo for the shell's completion, which adds files by itself where there are none."""
    from cachekit.recipe import zoo

    return [name for name in zoo.recipes() if name.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    """Keys of the store's records for the shell's completion, from the names of their files."""
    from cachekit.store.layout import Layout

    # A completion that fails prints over the line that somebody types.
    try:
        names = (path.stem for path in Layout(load_config().home).records.rglob(f"{incomplete}*.json"))
        return sorted(name for name in names if len(name) == KEY_DIGITS)
    except Exception:  # noqa: BLE001
        return []


def complete_recipe_or_key(incomplete: str) -> list[str]:
    """Both; keys only once something is typed, where they would bury the names."""
    return [*complete_recipe(incomplete), *(complete_key(incomplete) if incomplete else ())]


def complete_instance(incomplete: str) -> list[str]:
    """Instance types of the registry for the shell's completion."""
    from cachekit.recipe import zoo

    return [name for name in zoo.instances() if name.startswith(incomplete)]


def complete_toolchain(incomplete: str) -> list[str]:
    """Toolchains of the registry for the shell's completion."""
    from cachekit.recipe import zoo

    return [name for name in zoo.toolchains() if name.startswith(incomplete)]


def complete_format(incomplete: str) -> list[str]:
    """Output formats for the shell's completion."""
    from cachekit.cli import out

    return [name for name in out.FORMATS if name.startswith(incomplete)]


def complete_compiler(incomplete: str) -> list[str]:
    """Compilers for the shell's completion."""
    from cachekit.compilers.registry import NAMES

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
    typer.Option(
        "--compiler", metavar="NAME", help="auto, inductor, neuron, neuron-native.", autocompletion=complete_compiler
    ),
]
Toolchain = Annotated[
    Optional[str],
    typer.Option(
        "--toolchain",
        metavar="NAME",
        help="Plan for a release of Neuron's SDK.",
        autocompletion=complete_toolchain,
    ),
]
Instance = Annotated[
    Optional[str],
    typer.Option("--instance", metavar="TYPE", help="Plan for another machine type.", autocompletion=complete_instance),
]
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
TrustAll = Annotated[
    bool,
    typer.Option("--trust-all", help="Use what anybody made: a compiler cache is code, which runs on this machine."),
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
        autocompletion=complete_recipe_or_key,
    ),
]
RequireWarm = Annotated[bool, typer.Option("--require-warm", help="Exit 3 instead of compiling.")]
Recache = Annotated[bool, typer.Option("--recache", help="Compile although it is stored, and replace it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")]


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
    machine: Sequence[str] = (),
) -> str:
    """A recipe as the user would type it again, with what else the next command must be told to mean the same."""
    words = [recipe, *(["--tiny"] if tiny else []), *(word for text in overrides or () for word in ("--set", text))]
    return shlex.join([*words, *elsewhere(home, compiler), *machine])


def machine_words(toolchain: str | None, target: str | None, instance: str | None) -> list[str]:
    """The options that say which other machine was meant, as they were given."""
    said = {"--toolchain": toolchain, "--target": target, "--instance": instance}
    return [word for option, value in said.items() if value for word in (option, value)]


def elsewhere(home: Path | None, compiler: str | None = None) -> list[str]:
    """The options that say which store and compiler were meant, as they were given."""
    return [*(["--home", str(home)] if home else []), *(["--compiler", compiler] if compiler else [])]


def named_key(config: Config, name: str, overrides: list[str] | None, *, tiny: bool = False) -> Named:
    """What a person means by a recipe, a key, or the first digits of one; see `key_of`."""
    from cachekit.verbs.pins import Named

    key = key_of(config, name, overrides, tiny=tiny)
    return Named(key) if key == name.lower() else Named(key, name)


def session(config: Config, recipe: Recipe | None, verb: str, **options: Any) -> AbstractContextManager[Session]:
    """The collaborators of one run, whose events are shown; see `open_session`."""
    from cachekit.cli import out

    return open_session(config, recipe, verb, follow=out.following, **options)
