"""Options that several verbs share, and what the shell offers to complete them with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.cli import out

if TYPE_CHECKING:
    from cachekit.api import Variant


def variants(names: Sequence[str] | None, overrides: Sequence[str] | None, *, tiny: bool) -> list[Variant]:
    """Recipes as they are named, with `--set` and `--tiny`; a key has no changes."""
    from cachekit.api import Variant

    return [Variant(name, tuple(overrides or ()), tiny) for name in names or ()]


def file_to_write(text: str) -> Path:
    """The file that an option names beside the answer, which has stdout."""
    if text == "-":
        raise typer.BadParameter("stdout has the answer; name a file")
    return out.writable(Path(text))


def _names(kind: str, incomplete: str) -> list[str]:
    from cachekit import api

    return [name for name in api.names(kind) if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Names of the zoo for the shell's completion, which adds files by itself where there are none."""
    return _names("recipes", incomplete)


def complete_key(incomplete: str) -> list[str]:
    """Keys of the store's records for the shell's completion."""
    from cachekit.api import Cache

    # A completion that fails prints over the line that somebody types.
    try:
        return Cache().keys(incomplete)
    except Exception:  # noqa: BLE001
        return []


def complete_recipe_or_key(incomplete: str) -> list[str]:
    """Both; keys only once something is typed, where they would bury the names."""
    return [*complete_recipe(incomplete), *(complete_key(incomplete) if incomplete else ())]


def complete_instance(incomplete: str) -> list[str]:
    """Instance types of the registry for the shell's completion."""
    return _names("instances", incomplete)


def complete_toolchain(incomplete: str) -> list[str]:
    """Toolchains of the registry for the shell's completion."""
    return _names("toolchains", incomplete)


def complete_format(incomplete: str) -> list[str]:
    """Output formats for the shell's completion."""
    return [name for name in out.FORMATS if name.startswith(incomplete)]


def complete_compiler(incomplete: str) -> list[str]:
    """Compilers for the shell's completion."""
    return _names("compilers", incomplete)


Overrides = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Change a field: training.per_device_train_batch_size=8. Repeatable."
    ),
]
Tiny = Annotated[
    bool,
    typer.Option("--tiny", help="Shrink the recipe: few layers, random weights, built-in rows; no Hub."),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", "-f", metavar="human|json|quiet", help="The format of stdout.", autocompletion=complete_format
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Print more; -vv adds tracebacks.")
]
Home = Annotated[Optional[str], typer.Option("--home", metavar="DIR", help="The store's folder.")]
CompilerName = Annotated[
    Optional[str],
    typer.Option(
        "--compiler",
        metavar="NAME",
        help="auto, inductor, neuron, or another compiler's name.",
        autocompletion=complete_compiler,
    ),
]
Toolchain = Annotated[
    Optional[str],
    typer.Option(
        "--toolchain",
        metavar="NAME",
        help="The release of Neuron's SDK to use.",
        autocompletion=complete_toolchain,
    ),
]
Instance = Annotated[
    Optional[str],
    typer.Option("--instance", metavar="TYPE", help="The instance type to use.", autocompletion=complete_instance),
]
Target = Annotated[Optional[str], typer.Option("--target", metavar="NAME", help="The chip to use: trn1, trn2 or inf2.")]
NodeCount = Annotated[
    Optional[int],
    typer.Option("--nnodes", metavar="N", min=1, help="How many machines train together (parallel.nodes)."),
]
NodeRank = Annotated[int, typer.Option("--node-rank", metavar="R", min=0, help="This machine's number, from 0.")]
MasterAddress = Annotated[str, typer.Option("--master-addr", metavar="HOST", help="The first machine's address.")]
MasterPort = Annotated[int, typer.Option("--master-port", metavar="PORT", help="The first machine's port.")]
Cache = Annotated[
    Optional[str],
    typer.Option(
        "--cache", metavar="local:rw,NAME:r", help="The store and the remotes in order, each with r, w or rw."
    ),
]
TrustAll = Annotated[
    bool,
    typer.Option(
        "--trust-all", help="Use records no matter who made them; a compiler cache is code that runs on this machine."
    ),
]
Trust = Annotated[
    Optional[str],
    typer.Option(
        "--trust",
        metavar="signed|owner",
        help="Require signatures everywhere (signed) or where others can write (owner); can only tighten the settings.",
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Open no network connection.")]
Wait = Annotated[
    Optional[str],
    typer.Option(
        "--wait", metavar="TIME", help="Wait this long for another process that is compiling the same key: 90s, 10m."
    ),
]
Recipes = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE...", help="YAML files, or names from `cachekit zoo`.", autocompletion=complete_recipe
    ),
]
RecipesOrKeys = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys by their first digits (`cachekit store ls`).",
        autocompletion=complete_recipe_or_key,
    ),
]
EveryRecipe = Annotated[bool, typer.Option("--all", help="Every recipe of the zoo.")]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Only recipes of this task, such as summarization.")]
ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Only this model id, part of an id, or model type: bert.")
]
MaxPrice = Annotated[
    Optional[float],
    typer.Option("--max-price", metavar="DOLLARS", help="Only recipes whose machine costs at most this much per hour."),
]
Price = Annotated[
    Optional[list[str]],
    typer.Option(
        "--price",
        metavar="[TYPE=]DOLLARS",
        help="What you pay per hour, for a TYPE or any machine; a TYPE alone means the registry's price. Repeatable.",
    ),
]
LockFile = Annotated[
    Optional[Path], typer.Option("--lock-file", metavar="FILE", help="Use this file, not the nearest cachekit.lock.")
]
RequireWarm = Annotated[
    bool, typer.Option("--require-warm", help="Exit 3 instead of compiling, or 7 if a remote did not answer.")
]
Recache = Annotated[bool, typer.Option("--recache", help="Compile even if a record is stored, and replace it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
