"""`cachekit train`: the fine-tune, with every compile skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import options, out, why_text
from cachekit.cli import plan as plan_verb
from cachekit.cli.verb import Shown, verb
from cachekit.text import typed

if TYPE_CHECKING:
    from cachekit.api import Cache

RESULT = "cachekit-result.json"  # in the output folder: what is printed

RecipeOrLast = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE]",
        help="A recipe, as for warm; by default the one warmed last in this directory.",
        autocompletion=options.complete_recipe,
    ),
]
Resume = Annotated[
    Optional[str],
    typer.Option("--resume", metavar="auto|CHECKPOINT", help="Resume from the last checkpoint, or from this one."),
]
OutputDir = Annotated[
    Optional[Path],
    typer.Option("--output-dir", "-o", metavar="DIR", help="Where the model goes; runs/<recipe> by default."),
]


@verb("home", "compiler", "wait", "cache", "trust", "nodes", answers="Trained, Planned")
def command(
    cache: Cache,
    recipe: RecipeOrLast = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    output_dir: OutputDir = None,
    resume: Resume = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Run a recipe's fine-tune; nothing that was warmed compiles.

    What is not warm is warmed first. The figures also go to cachekit-result.json in the output folder.

    Example:  cachekit train recipes/bert.yaml --resume auto
    """
    changes = overrides or []
    api.check_contradiction(require_warm=require_warm, recache=recache)
    if recipe is None:
        last = cache.last()
        recipe, changes, tiny = last.recipe, [*last.overrides, *changes], tiny or last.tiny
        cache = replace(cache, compiler=cache.compiler or last.compiler)
        out.note(f"training {typed(recipe, last.overrides, {}, tiny=tiny)}")
    variant = Variant(recipe, changes, tiny)
    if dry_run:
        return plan_verb.shown(cache.plan(variant), require_warm=require_warm)
    done = cache.train(
        variant,
        output_dir=output_dir,
        resume=resume or "",
        recache=recache,
        require_warm=require_warm,
    )
    document = done.as_dict()
    result = Path(document["output_dir"]) / RESULT
    warnings: tuple[str, ...] = ()
    try:
        result.parent.mkdir(parents=True, exist_ok=True)
        result.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:  # the training has worked, and its figures are printed below
        warnings = (f"{result} could not be written: {error.strerror or error}",)
    return Shown(done, human, lambda found: str(found["output_dir"]), warnings=warnings)


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
