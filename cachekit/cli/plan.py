"""`cachekit plan`: what will hit and what will compile, how long that takes and costs, before anything runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import options, out, plan_text
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Forecast, Planned


Recipes = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE...",
        help="YAML files, or names from `cachekit zoo`.",
        show_default=False,
        autocompletion=options.complete_recipe,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every recipe of the zoo.")]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Recipes for this task: text-classification.")]
ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Recipes of the zoo for an id, part of one, or a type: bert.")
]
MaxPrice = Annotated[
    Optional[float],
    typer.Option(
        "--max-price", metavar="DOLLARS", help="Recipes of the zoo whose machine costs at most this per hour."
    ),
]
HourPrice = Annotated[
    Optional[list[str]],
    typer.Option(
        "--price",
        metavar="[TYPE=]DOLLARS",
        help="What you pay per hour, for a TYPE or any machine; a TYPE alone takes the registry's price. Repeatable.",
    ),
]


@verb("home", "compiler", "cache", "trust", "machine", answers="Planned, Forecast")
def command(
    cache: Cache,
    recipes: Recipes = None,
    every: All = False,
    task: Task = "",
    model: ModelName = "",
    max_price: MaxPrice = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    require_warm: options.RequireWarm = False,
    price: HourPrice = None,
) -> Shown:
    """Show what will be found and what must compile; run nothing.

    Needs no accelerator, does not import PyTorch, and uses the network only for remotes. With --require-warm, exits 3
    on a miss. The compile time of a miss is estimated from records of the same compiler, and its cost from the price of
    the machine.

    Example:  cachekit plan bert --set training.per_device_train_batch_size=8

    Example:  cachekit plan bert --toolchain neuron-2.31 --instance trn1.2xlarge

    Example:  cachekit plan bert gpt2-clm roberta-mlm --price 0.40

    Example:  cachekit plan --all --toolchain neuron-2.32
    """
    names, paid = recipes or [], price or ()
    chosen = every or bool(task or model or max_price is not None)
    if chosen:
        if names:
            raise UsageError(
                "recipes and options that choose from the zoo were both given",
                hint="cachekit plan RECIPE..., or cachekit plan --all",
            )
        own = [one for one in paid if "=" in one]
        names = [row.name for row in api.zoo_rows(task=task, model=model, max_price=max_price, price=own)]
        if not names:
            raise UsageError("no recipe of the zoo matches these options", hint="`cachekit zoo ls` lists them")
    if not names:
        raise UsageError("no recipe was named", hint="cachekit plan RECIPE..., or --all for every recipe of the zoo")
    if chosen or len(names) > 1:
        found = cache.plan_all(options.variants(names, overrides, tiny=tiny), price=paid)
        missed = found.miss() if require_warm else None
        return Shown(found, plan_text.several, _each, error=found.error() or missed)
    return shown(cache.plan(Variant(names[0], overrides or (), tiny), price=paid), require_warm=require_warm)


def _each(answer: Forecast) -> str:
    return "\n".join(f"{row.status} {row.name}" for row in answer.plans)


def shown(planned: Planned, *, require_warm: bool) -> Shown:
    """A plan, for `--dry-run` as well."""
    modules = out.wants_more()
    return Shown(
        planned,
        partial(plan_text.one, modules=modules),
        lambda answer: str(answer.status),
        error=planned.miss() if require_warm else None,
    )
