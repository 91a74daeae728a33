"""`cachekit warm`: compile a recipe's graphs once, and keep them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import fleet, options, out
from cachekit.cli.plan import shown
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.events import REASONS

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import CheckedBuild, Trained, Warmed, WarmedAll

SHOWN = 12  # parts that differ, for people
# Why a run bypassed a part of the cache, and no summary says so: whoever gave the command wanted that, or a warning
# told it as it happened.
UNSAID = frozenset({
    "recache", "remote-offline", "remote-read-only", "remote-write-only",
    "push-failed", "not-kept",
    "remote-failed", "remote-skipped", "remote-refused", "remote-untrusted", "remote-damaged",
})  # fmt: skip

Recipe = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE]", help="A YAML file, or a name from `cachekit zoo`.", autocompletion=options.complete_recipe
    ),
]
Matrix = Annotated[
    Optional[Path],
    typer.Option("--matrix", metavar="FILE", help="Warm a list of recipes: YAML with {recipe, set} entries."),
]
CheckBuild = Annotated[
    bool,
    typer.Option(
        "--check-build", help="Compile even if a record is stored, keep nothing, and exit 5 if the result differs."
    ),
]
On = Annotated[
    Optional[str],
    typer.Option(
        "--on",
        metavar="ENGINE[:QUEUE]",
        help="Run on the machines of an engine: slurm:PARTITION, sagemaker:ml.TYPE, ray, or local.",
        show_default=False,
    ),
]  # fmt: skip
For = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="TYPE",
        help="Compile for this instance type, on a machine without its device.",
        show_default=False,
        autocompletion=options.complete_instance,
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="How many machines work at once (with --on).")]
Spot = Annotated[bool, typer.Option("--spot", help="Rent Spot machines, with --on sagemaker:ml.TYPE.")]
MaxDollars = Annotated[
    Optional[float],
    typer.Option("--max-dollars", metavar="N", min=0, help="The budget for all that is submitted (with --on)."),
]


@verb(
    "home", "compiler", "wait", "cache", "trust", "nodes", "machine",
    answers="Warmed, Planned, WarmedAll, CheckedBuild, FleetState, FleetPlan",
)  # fmt: skip
def command(
    cache: Cache,
    recipe: Recipe = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    matrix: Matrix = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    check_build: CheckBuild = False,
    on: On = None,
    compile_for: For = "",
    jobs: Jobs = 1,
    spot: Spot = False,
    max_dollars: MaxDollars = None,
    price: options.Price = None,
    dry_run: options.DryRun = False,
) -> Shown:
    """Compile what a recipe's fine-tune needs, once, and keep it.

    A second warm finds everything and compiles nothing. Nothing is left in your output folder. With --matrix, one
    failure does not stop the rest, and --set changes every entry.

    With --on, the machines of an engine compile, and share what they compiled through the remotes; `cachekit fleet`
    follows them. --toolchain and --instance describe these machines if they differ from this one. With --for, a machine
    without a device compiles for an instance type that has one, if the compiler can.

    Example:  cachekit warm recipes/bert.yaml

    Example:  cachekit warm --matrix list.yaml --dry-run

    Example:  cachekit warm --matrix list.yaml --on slurm:trn1 --jobs 8

    Example:  cachekit warm bert --on slurm:cpu --for trn1.2xlarge
    """
    if check_build and (recache or require_warm or dry_run or matrix):
        raise UsageError(
            "--check-build was given with options that contradict it",
            cause="it compiles one recipe and keeps nothing: no --recache, --require-warm, --dry-run or --matrix",
            hint="leave out one of them",
        )
    if recipe is not None and matrix is not None:
        raise UsageError("a recipe and --matrix were both given", hint="put the recipe into the list")
    changes = overrides or ()
    if on is not None:
        if check_build:
            raise UsageError("--check-build works on this machine only, and keeps nothing", hint="leave out --on")
        if recipe is None and matrix is None:
            raise UsageError("no recipe was named", hint="cachekit warm RECIPE --on ENGINE, or --matrix FILE")
        ran = cache.warm_on(
            on,
            matrix if matrix is not None else [Variant(str(recipe))],
            changes,
            tiny=tiny,
            jobs=jobs,
            spot=spot,
            max_dollars=max_dollars,
            price=price or (),
            compile_for=compile_for,
            require_warm=require_warm,
            recache=recache,
            dry_run=dry_run,
        )
        return fleet.answered(ran)
    fleet.check_here(cache, jobs=jobs, spot=spot, max_dollars=max_dollars, price=price)
    if matrix is not None:
        every = cache.warm_all(
            matrix,
            changes,
            tiny=tiny,
            compile_for=compile_for,
            recache=recache,
            require_warm=require_warm,
            dry_run=dry_run,
        )
        return Shown(every, partial(listed, verb="planned" if dry_run else "warmed"), _keys)
    if recipe is None:
        raise UsageError("no recipe was named", hint="cachekit warm RECIPE, or --matrix FILE")
    variant = Variant(recipe, changes, tiny)
    if dry_run:
        api.check_contradiction(require_warm=require_warm, recache=recache)
        return shown(cache.plan(variant, compile_for=compile_for), require_warm=require_warm)
    if check_build:
        if compile_for:
            raise UsageError("--check-build compiles for this machine", hint="leave out --for")
        done = cache.check_build(variant)
        return Shown(done, human_checked, lambda answer: str(answer.status))
    warmed = cache.warm(variant, compile_for=compile_for, recache=recache, require_warm=require_warm)
    return Shown(warmed, human, lambda answer: str(answer.key))


def _keys(answer: WarmedAll) -> str:
    return "\n".join(entry.key for entry in answer.entries if entry.key)


def human_checked(answer: CheckedBuild) -> list[str]:
    """A comparison for people."""
    graphs, differ = out.count(answer.compiled, "graph"), answer.differ
    same = f"{out.count(answer.same, 'part')} {'is' if answer.same == 1 else 'are'} the same"
    lines = [
        f"{answer.recipe}: {answer.status}  {answer.directory}  key {answer.key[:16]}",
        f"  compiled {graphs} again; {same}, {len(differ)} {'differs' if len(differ) == 1 else 'differ'}",
    ]
    lines += out.some([f"    differs  {name}" for name in differ], SHOWN, 4)
    if gone := answer.not_rebuilt:
        lines.append(f"  {out.count(len(gone), 'part')} of the record were not built this time, and not compared")
    if new := answer.not_in_record:
        lines.append(f"  {out.count(len(new), 'part')} built this time are not in the record, and not compared")
    return [*lines, f"  took {out.duration(answer.seconds)}; none of it is kept"]


def listed(answer: WarmedAll, verb: str) -> list[str]:
    """What became of a list, for people."""
    rows = [[entry.status, (entry.key or "")[:16], entry.name] for entry in answer.entries if entry.status != "failed"]
    lines = out.table(rows, ["", "key", verb]) if rows else []
    for entry in answer.entries:
        if (error := entry.error) is not None:
            why = ": ".join(part for part in (error.message, error.cause) if part)
            lines += out.labelled("failed  ", out.about(entry.name, why))
    counts = {"compiled": answer.compiled, "hit": answer.hit, "miss": answer.miss, "failed": answer.failed}
    return [*lines, ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)]


def human(answer: Warmed) -> list[str]:
    """What a warm did, for people."""
    head = f"{answer.recipe}: warm  {answer.directory}  key {answer.key[:16]}"
    stored = f"{out.count(len(answer.modules), 'module')}, {out.size(answer.bytes)}"
    if answer.compiled:
        graphs = out.count(answer.compiled, "graph")
        lines = [
            head,
            f"  compiled {graphs} in {out.duration(answer.compile_seconds)}; stored {stored}",
        ]
    elif answer.reused:
        lines = [head, f"  compiled nothing; stored {stored}"]
    else:
        lines = [
            head,
            f"  compiled nothing: all {answer.graphs} graphs were stored already ({stored})",
            f"  saved about {out.duration(answer.saved_seconds or 0)}",
        ]
    if near := answer.reused:
        kernels = f" and {out.count(near.kernels, 'kernel')}" if near.kernels else ""
        what = f"{near.graphs} of {out.count(near.of, 'graph')}{kernels}"
        lines.append(f"  {what} came from the nearest record, {near.key[:16]}")
    if answer.status == "compiled" or answer.fetch_bytes or answer.waited_seconds:  # else it only looked
        waited = f", of which {out.duration(answer.waited_seconds)} waiting" if answer.waited_seconds >= 1 else ""
        lines.append(f"  took {out.duration(answer.seconds)} in all{waited}")
    return [*lines, *bypassed(answer), f"  next: {answer.next}"]


def bypassed(answer: Warmed | Trained) -> list[str]:
    """Sentences of a run's summary, where the run bypassed a part of the cache and nobody said so, nor wanted it."""
    lines = []
    for reason, count in answer.bypassed.items():
        if reason not in UNSAID:
            times = "" if count == 1 else f" ({count} times)"
            lines += out.labelled("bypassed: ", f"{REASONS.get(reason, reason)}{times}", 2)
    return lines
