"""`cachekit warm`: compile a recipe's graphs once, and keep them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out, why_text
from cachekit.cli import plan as plan_verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachekit.recipe.matrix import Entry
    from cachekit.verbs.prepare import Prepared
    from cachekit.verbs.session import Session

NAME = "warm"
SHOWN = 12  # parts that differ, for people

Recipe = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE]", help="A YAML file, or a name of `cachekit zoo`.", autocompletion=options.complete_recipe
    ),
]
Matrix = Annotated[
    Optional[Path],
    typer.Option("--matrix", metavar="FILE", help="Warm a list: YAML of {recipe, set}."),
]
CheckBuild = Annotated[
    bool, typer.Option("--check-build", help="Compile although it is stored, keep nothing, exit 5 where it differs.")
]


def command(
    recipe: Recipe = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    matrix: Matrix = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    check_build: CheckBuild = False,
    dry_run: options.DryRun = False,
    wait: options.Wait = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    trust_all: options.TrustAll = False,
    nnodes: options.NodeCount = None,
    node_rank: options.NodeRank = 0,
    master_addr: options.MasterAddress = "",
    master_port: options.MasterPort = 29500,
) -> int:
    """Compile what a recipe's fine-tune needs, once, and keep it.

    A second warm finds it all and compiles nothing. Nothing is left in your output folder. With --matrix one failure
    does not keep the rest from being warmed, and --set changes every entry.

    Example:  cachekit warm recipes/bert.yaml

    Example:  cachekit warm --matrix list.yaml --dry-run
    """
    from cachekit.compilers import Node
    from cachekit.data.shapes import check_data
    from cachekit.errors import UsageError
    from cachekit.verbs.last import Last, remember
    from cachekit.verbs.plan import Searching, plan
    from cachekit.verbs.prepare import prepare
    from cachekit.verbs.warm import warm

    out.setup(format, quiet=quiet, verbose=verbose)
    options.check_contradiction(require_warm=require_warm, recache=recache)
    overrides = options.with_nodes(overrides, nnodes)
    if check_build and (recache or require_warm or dry_run or matrix):
        raise UsageError(
            "--check-build compiles one recipe, and keeps nothing",
            cause="--recache, --require-warm, --dry-run and --matrix want something else",
            hint="leave them out",
        )
    node = Node(node_rank, master_addr, master_port)
    config = options.load_config(home, compiler, wait, cache, trust_all=trust_all)
    if matrix is not None:
        if recipe is not None:
            raise UsageError("a recipe and --matrix are both given", hint="put the recipe into the list")

        def one(entry: Entry) -> dict[str, Any]:
            given = [*entry.overrides, *overrides]
            loaded, _ = options.load_recipe(entry.recipe, given, tiny=tiny)
            verb = "plan" if dry_run else NAME
            with options.session(config, loaded, verb, offline=offline, node=node) as session:
                called = options.named(entry.recipe, given, home, compiler, tiny=tiny)
                prepared = prepare(loaded, session.compiler, called)
                if dry_run:
                    check_data(loaded, absent_ok=True)
                    return plan(prepared, session.store, session.chain).as_dict()
                return warm(session, prepared, recache=recache, require_warm=require_warm).as_dict()

        return _all(matrix, one, verb="planned" if dry_run else "warmed")
    if recipe is None:
        raise UsageError("no recipe was named", hint="cachekit warm RECIPE, or --matrix FILE")
    loaded, path = options.load_recipe(recipe, overrides, tiny=tiny)
    with options.session(config, loaded, "plan" if dry_run else NAME, offline=offline, node=node) as session:
        prepared = prepare(loaded, session.compiler, options.named(recipe, overrides, home, compiler, tiny=tiny))
        if dry_run:
            check_data(loaded, absent_ok=True)
            searching = Searching.as_warm(session.config)
            planned = plan(prepared, session.store, session.chain, searching=searching)
            return plan_verb.show(planned, require_warm=require_warm)
        if check_build:
            return _checked(session, prepared)
        done = warm(session, prepared, recache=recache, require_warm=require_warm)
        place = str(Path(path).absolute())
        remember(session.store, Path.cwd(), Last(place, tuple(overrides or ()), compiler or "auto", tiny))
    next_words = shlex.join(["cachekit", "train", *options.elsewhere(home)])
    out.data(
        done.as_dict(),
        lambda document: [*human(document), f"  next: {next_words}"],
        lambda document: str(document["key"]),
    )
    return 0


def _checked(session: Session, prepared: Prepared) -> int:
    from cachekit.verbs.check_build import check_build

    done = check_build(session, prepared)
    problem = done.error()
    out.data(done.as_dict(), human_checked, lambda document: str(document["status"]), fails=problem is not None)
    if problem is not None:
        raise problem
    return 0


def human_checked(document: dict[str, Any]) -> list[str]:
    """A comparison for people."""
    graphs, differ = out.count(document["compiled"], "graph"), document["differ"]
    same = f"{out.count(document['same'], 'part')} {'is' if document['same'] == 1 else 'are'} the same"
    lines = [
        f"{document['recipe']}: {document['status']}  {document['directory']}  key {document['key'][:16]}",
        f"  compiled {graphs} anew; {same}, {len(differ)} {'differs' if len(differ) == 1 else 'differ'}",
    ]
    lines += [f"    differs  {name}" for name in differ[:SHOWN]]
    if len(differ) > SHOWN:
        lines.append(f"    ... and {len(differ) - SHOWN} more (--format json)")
    if gone := document["not_rebuilt"]:
        lines.append(f"  {out.count(len(gone), 'part')} of the record were not made anew, and not compared")
    if new := document["not_in_record"]:
        lines.append(f"  {out.count(len(new), 'part')} made anew are not in the record, and not compared")
    return [*lines, f"  took {out.duration(document['seconds'])}; nothing of it is kept"]


def _all(matrix: Path, one: Callable[[Entry], dict[str, Any]], *, verb: str) -> int:
    from cachekit.recipe.matrix import read
    from cachekit.verbs import warm_matrix

    entries = read(matrix)
    outcomes = warm_matrix.warm_matrix(
        entries, one, lambda number, entry: out.note(f"{number} of {len(entries)}: {entry.name}")
    )
    failure = warm_matrix.failure(outcomes, verb)
    out.data(
        warm_matrix.summary(outcomes),
        lambda document: listed(document, verb),
        lambda document: "\n".join(entry["key"] for entry in document["entries"] if entry["key"]),
        fails=failure is not None,
    )
    if failure is not None:
        raise failure
    return 0


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
    return [*lines, *why_text.bypassed(document)]
