"""`cachekit warm`: compile a recipe's graphs once, and keep them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import options, out, why_text
from cachekit.cli import plan as plan_verb
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache

SHOWN = 12  # parts that differ, for people

Recipe = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE]", help="A YAML file, or a name from `cachekit zoo`.", autocompletion=options.complete_recipe
    ),
]
Matrix = Annotated[
    Optional[Path],
    typer.Option("--matrix", metavar="FILE", help="Warm a list: YAML of {recipe, set}."),
]
CheckBuild = Annotated[
    bool, typer.Option("--check-build", help="Compile even if a record is stored, keep nothing, exit 5 if it differs.")
]


@verb("home", "compiler", "wait", "cache", "trust", "nodes", answers="Warmed, Planned, WarmedAll, CheckedBuild")
def command(
    cache: Cache,
    recipe: Recipe = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    matrix: Matrix = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    check_build: CheckBuild = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Compile what a recipe's fine-tune needs, once, and keep it.

    A second warm finds it all and compiles nothing. Nothing is left in your output folder. With --matrix, one failure
    does not stop the rest, and --set changes every entry.

    Example:  cachekit warm recipes/bert.yaml

    Example:  cachekit warm --matrix list.yaml --dry-run
    """
    if check_build and (recache or require_warm or dry_run or matrix):
        raise UsageError(
            "--check-build was given with an option that contradicts it",
            cause="it compiles one recipe and keeps nothing: no --recache, --require-warm, --dry-run or --matrix",
            hint="leave out one of them",
        )
    if recipe is not None and matrix is not None:
        raise UsageError("a recipe and --matrix were both given", hint="put the recipe into the list")
    changes = overrides or ()
    if matrix is not None:
        every = cache.warm_all(matrix, changes, tiny=tiny, recache=recache, require_warm=require_warm, dry_run=dry_run)
        return Shown(every, partial(listed, verb="planned" if dry_run else "warmed"), _keys)
    if recipe is None:
        raise UsageError("no recipe was named", hint="cachekit warm RECIPE, or --matrix FILE")
    variant = Variant(recipe, changes, tiny)
    if dry_run:
        api.check_contradiction(require_warm=require_warm, recache=recache)
        return plan_verb.shown(cache.plan(variant), require_warm=require_warm)
    if check_build:
        done = cache.check_build(variant)
        return Shown(done, human_checked, lambda document: str(document["status"]))
    warmed = cache.warm(variant, recache=recache, require_warm=require_warm)
    return Shown(warmed, human, lambda document: str(document["key"]))


def _keys(document: dict[str, Any]) -> str:
    return "\n".join(entry["key"] for entry in document["entries"] if entry["key"])


def human_checked(document: dict[str, Any]) -> list[str]:
    """A comparison for people."""
    graphs, differ = out.count(document["compiled"], "graph"), document["differ"]
    same = f"{out.count(document['same'], 'part')} {'is' if document['same'] == 1 else 'are'} the same"
    lines = [
        f"{document['recipe']}: {document['status']}  {document['directory']}  key {document['key'][:16]}",
        f"  compiled {graphs} anew; {same}, {len(differ)} {'differs' if len(differ) == 1 else 'differ'}",
    ]
    lines += out.some([f"    differs  {name}" for name in differ], SHOWN, 4)
    if gone := document["not_rebuilt"]:
        lines.append(f"  {out.count(len(gone), 'part')} of the record were not made anew, and not compared")
    if new := document["not_in_record"]:
        lines.append(f"  {out.count(len(new), 'part')} made anew are not in the record, and not compared")
    return [*lines, f"  took {out.duration(document['seconds'])}; nothing of it is kept"]


def listed(document: dict[str, Any], verb: str) -> list[str]:
    """What became of a list, for people."""
    rows = [
        [entry["status"], (entry["key"] or "")[:16], entry["name"]]
        for entry in document["entries"]
        if entry["status"] != "failed"
    ]
    lines = out.table(rows, ["", "key", verb]) if rows else []
    for entry in document["entries"]:
        if entry["status"] == "failed":
            error = entry["error"]
            why = ": ".join(part for part in (error["message"], error["cause"]) if part)
            lines += out.labelled("failed  ", f"{entry['name']}: {why}")
    counts = [f"{document[kind]} {kind}" for kind in ("compiled", "hit", "miss", "failed") if document[kind]]
    return [*lines, ", ".join(counts)]


def human(document: dict[str, Any]) -> list[str]:
    """What a warm did, for people."""
    head = f"{document['recipe']}: warm  {document['directory']}  key {document['key'][:16]}"
    stored = f"{out.count(len(document['modules']), 'module')}, {out.size(document['bytes'])}"
    if document["compiled"]:
        graphs = out.count(document["compiled"], "graph")
        lines = [
            head,
            f"  compiled {graphs} in {out.duration(document['compile_seconds'])}; stored {stored}",
        ]
    elif document["reused"]:
        lines = [head, f"  compiled nothing; stored {stored}"]
    else:
        lines = [
            head,
            f"  compiled nothing: all {document['graphs']} graphs were stored already ({stored})",
            f"  saved about {out.duration(document['saved_seconds'])}",
        ]
    if near := document["reused"]:
        kernels = f" and {out.count(near['kernels'], 'kernel')}" if near["kernels"] else ""
        what = f"{near['graphs']} of {out.count(near['of'], 'graph')}{kernels}"
        lines.append(f"  {what} came from the nearest record, {near['key'][:16]}")
    waited = f", of which {out.duration(document['waited_seconds'])} waiting" if document["waited_seconds"] >= 1 else ""
    lines.append(f"  took {out.duration(document['seconds'])} in all{waited}")
    return [*lines, *why_text.bypassed(document), f"  next: {document['next']}"]
