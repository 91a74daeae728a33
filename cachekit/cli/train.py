"""`cachekit train`: the fine-tune, with every compile skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out, why_text
from cachekit.cli import plan as plan_verb

NAME = "train"
RESULT = "cachekit-result.json"  # in the output folder: what is printed

RecipeOrLast = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE]",
        help="As for warm; by default the one warmed last in this directory.",
        autocompletion=options.complete_recipe,
    ),
]
Resume = Annotated[
    Optional[str],
    typer.Option("--resume", metavar="auto|CHECKPOINT", help="Go on from the last checkpoint, or from this one."),
]
OutputDir = Annotated[
    Optional[Path],
    typer.Option("--output-dir", "-o", metavar="DIR", help="Where the model goes; runs/<recipe> by default."),
]


def command(
    recipe: RecipeOrLast = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    output_dir: OutputDir = None,
    resume: Resume = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
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
    """Run a recipe's fine-tune; nothing that was warmed compiles.

    What is not warm is warmed first. The figures also go to cachekit-result.json in the output folder.

    Example:  cachekit train recipes/bert.yaml --resume auto
    """
    from cachekit.compilers import Node
    from cachekit.data.shapes import check_data
    from cachekit.events import Journal
    from cachekit.store import Store
    from cachekit.verbs.last import recall
    from cachekit.verbs.plan import Searching, plan
    from cachekit.verbs.prepare import prepare
    from cachekit.verbs.train import train

    out.setup(format, quiet=quiet, verbose=verbose)
    options.check_contradiction(require_warm=require_warm, recache=recache)
    given = options.with_nodes(overrides, nnodes)
    node = Node(node_rank, master_addr, master_port)
    if recipe is None:
        last = recall(Store(options.load_config(home).home, Journal(None, NAME)), Path.cwd())
        recipe, given, compiler = last.recipe, [*last.overrides, *given], compiler or last.compiler
        tiny = tiny or last.tiny
        out.note(f"training {options.named(recipe, list(last.overrides), tiny=tiny)}")
    loaded, _ = options.load_recipe(recipe, given, tiny=tiny)
    config = options.load_config(home, compiler, wait, cache, trust_all=trust_all)
    target = options.output_folder(loaded, output_dir)
    with options.session(config, loaded, "plan" if dry_run else NAME, offline=offline, node=node) as session:
        prepared = prepare(loaded, session.compiler, options.named(recipe, given, home, compiler, tiny=tiny))
        if dry_run:
            check_data(loaded, absent_ok=True)
            searching = Searching.as_warm(session.config)
            planned = plan(prepared, session.store, session.chain, searching=searching)
            return plan_verb.show(planned, require_warm=require_warm)
        options.check_output(target)
        done = train(
            session, prepared, output_dir=target, resume=resume or "", recache=recache, require_warm=require_warm
        )
    document = done.as_dict()
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / RESULT).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:  # the training has worked, and its figures are printed below
        out.warning(f"{target / RESULT} could not be written: {error.strerror or error}")
    out.data(document, human, lambda found: str(found["output_dir"]))
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """What a training did, for people."""
    compiled, built = document["compiled"], document["built"]
    if compiled or built:
        graphs = (
            f"{out.count(compiled, 'graph')} compiled ({', '.join(document['surprises'])}), {document['found']} found"
        )
    else:
        graphs = f"compiled nothing: {out.count(document['found'], 'graph')} found"
    lines = [f"{document['recipe']}: trained {document['steps']} steps  key {document['key'][:16]}", f"  {graphs}"]
    for split, figures in document["metrics"].items():
        lines.append(f"  {split}: {out.figures(figures)} on {figures['rows']:,.0f} rows")
    if reason := document["lacks"].get("evaluation"):
        lines += out.labelled("", reason, 2)
    lines.append(
        f"  saved {out.duration(document['saved_seconds'])} of compiling; "
        f"cachekit itself took {out.duration(document['overhead_seconds'])}"
    )
    lines.append(f"  took {out.duration(document['seconds'])} in all; the model is in {document['output_dir']}")
    return [*lines, *why_text.bypassed(document)]
