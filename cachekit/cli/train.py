"""`cachekit train`: the fine-tune, with every compile skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import fleet, options, out
from cachekit.cli.plan import shown
from cachekit.cli.verb import Shown, verb
from cachekit.cli.warm import MaxDollars, On, Spot, bypassed
from cachekit.errors import UsageError
from cachekit.text import typed

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Trained

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
    str,
    typer.Option(
        "--resume",
        metavar="auto|CHECKPOINT",
        help="Resume from this checkpoint; auto: from the last one, if there is one.",
    ),
]
OutputDir = Annotated[
    Optional[Path],
    typer.Option("--output-dir", "-o", metavar="DIR", help="Where the model goes; runs/<recipe> by default."),
]

CheckpointDir = Annotated[
    Optional[Path],
    typer.Option("--checkpoint-dir", metavar="DIR", help="Where checkpoints go; with the model by default."),
]


@verb(
    "home", "compiler", "wait", "cache", "trust", "nodes", "machine",
    answers="Trained, Planned, FleetState, FleetPlan",
)  # fmt: skip
def command(
    cache: Cache,
    recipe: RecipeOrLast = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    output_dir: OutputDir = None,
    checkpoint_dir: CheckpointDir = None,
    resume: Resume = "",
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    on: On = None,
    spot: Spot = False,
    max_dollars: MaxDollars = None,
    price: options.Price = None,
    dry_run: options.DryRun = False,
) -> Shown:
    """Run a recipe's fine-tune; nothing that was warmed compiles.

    Warms the recipe first if it is not warm.

    The result, with its metrics, also goes to cachekit-result.json in the output folder.

    With --on, a machine of an engine trains, and `cachekit fleet` follows it.

    Example:  cachekit train recipes/bert.yaml --resume auto

    Example:  cachekit train bert --on sagemaker:ml.trn1.32xlarge --dry-run
    """
    changes = overrides or []
    api.check_contradiction(require_warm=require_warm, recache=recache)
    if on is not None and recipe is None:
        raise UsageError("no recipe was named", hint="cachekit train RECIPE --on ENGINE")
    if on is not None:
        ran = cache.train_on(
            on,
            Variant(str(recipe), changes, tiny),
            output_dir=output_dir,
            checkpoint_dir=checkpoint_dir,
            resume=resume or "auto",
            spot=spot,
            max_dollars=max_dollars,
            price=price or (),
            require_warm=require_warm,
            recache=recache,
            dry_run=dry_run,
        )
        return fleet.answered(ran)
    fleet.check_here(cache, spot=spot, max_dollars=max_dollars, price=price)
    if recipe is None:
        last = cache.last()
        recipe, changes, tiny = last.recipe, [*last.overrides, *changes], tiny or last.tiny
        cache = replace(cache, compiler=cache.compiler or last.compiler)
        out.note(f"training {typed(recipe, last.overrides, {}, tiny=tiny)}")
    variant = Variant(recipe, changes, tiny)
    if dry_run:
        planned = cache.plan_train(variant, output_dir=output_dir, checkpoint_dir=checkpoint_dir, resume=resume)
        return shown(planned, require_warm=require_warm)
    done = cache.train(
        variant,
        output_dir=output_dir,
        checkpoint_dir=checkpoint_dir,
        resume=resume,
        recache=recache,
        require_warm=require_warm,
    )
    warnings = out.write_result(Path(done.output_dir) / RESULT, done)
    return Shown(done, human, lambda found: found.output_dir, warnings=warnings)


def human(answer: Trained) -> list[str]:
    """What a training did, for people."""
    compiled, built = answer.compiled, answer.built
    if compiled or built:
        graphs = f"{out.count(compiled, 'graph')} compiled ({', '.join(answer.surprises)}), {answer.found} found"
    else:
        graphs = f"compiled nothing: {out.count(answer.found, 'graph')} found"
    taken = f"{answer.steps_taken:,} of " if answer.resumed_from else ""
    did = f"trained {taken}{out.count(answer.steps, 'step')}"
    if answer.resumed_from and not answer.steps_taken:  # it may be of a longer training
        did = f"nothing left to train: {Path(answer.resumed_from).name} has {out.count(answer.steps, 'step')}"
    lines = [f"{answer.recipe}: {did}  key {answer.key[:16]}", f"  {graphs}"]
    if (steps := answer.speed.steps_per_second) and (rows := answer.speed.rows_per_second):
        lines.append(f"  {out.rate(steps)} steps a second, {out.rate(rows)} rows, by the median step")
    for split, figures in answer.metrics.items():
        seconds = answer.speed.evaluation_seconds.get(split)
        took = f" in {out.duration(seconds)}" if seconds is not None else ""
        lines.append(f"  {split}: {out.figures(figures)} on {figures['rows']:,.0f} rows{took}")
    if reason := answer.lacks.get("evaluation"):
        lines += out.labelled("", reason, 2)
    lines += out.labelled(
        "",
        f"saved {out.duration(answer.saved_seconds)} of compiling, tracing not counted; "
        f"cachekit itself took {out.duration(answer.overhead_seconds)}",
        2,
    )
    lines.append(f"  took {out.duration(answer.seconds)} in all; the model is in {answer.output_dir}")
    return [*lines, *bypassed(answer)]
