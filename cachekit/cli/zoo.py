"""`cachekit zoo`: the recipes, models, instances and toolchains that come along."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from cachekit import api
from cachekit.cli import options, out, zoo_new, zoo_text
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

app = typer.Typer(
    add_completion=False,
    help="List, show and check recipes, models and instances.\n\nWithout a command, lists the recipes.\n\n"
    "Example:  cachekit zoo show bert",
    rich_markup_mode=None,
    invoke_without_command=True,
)

Topic = Annotated[str, typer.Argument(metavar="[TOPIC]", help="recipes, models, instances or toolchains.")]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Only for this task: text-classification.")]
ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Only this id, a part of one, or a type: bert.")
]
InstanceName = Annotated[
    str, typer.Option("--instance", metavar="TYPE", help="Only this type or family: trn1.2xlarge, or trn1.")
]
MaxPrice = Annotated[
    Optional[float],
    typer.Option("--max-price", metavar="DOLLARS", min=0, help="Only what costs at most this per hour."),
]
OwnPrice = Annotated[
    Optional[list[str]],
    typer.Option("--price", metavar="TYPE=DOLLARS", help="What you pay for an hour of TYPE. Repeatable."),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of a recipe, a model, an instance or a toolchain.",
        show_default=False,
        autocompletion=options.complete_recipe,
    ),
]
Files = Annotated[Optional[list[Path]], typer.Argument(metavar="[FILE...]", help="Recipes; by default all of the zoo.")]


@app.callback()
def _top(
    context: typer.Context,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """List the recipes where no command is given."""
    if context.invoked_subcommand is None:
        return ls(topic="recipes", task="", model="", instance="", max_price=None, price=None,
                  format=format, quiet=quiet, verbose=verbose)  # fmt: skip
    if format != "human" or quiet or verbose:
        raise UsageError(
            "options must stand after the command", hint=f"cachekit zoo {context.invoked_subcommand} --format ..."
        )
    return 0


@app.command("ls")
@verb(answers="list[RecipeRow], list[ModelRow], list[InstanceRow], list[ToolchainRow]")
def ls(
    topic: Topic = "recipes",
    task: Task = "",
    model: ModelName = "",
    instance: InstanceName = "",
    max_price: MaxPrice = None,
    price: OwnPrice = None,
) -> Shown:
    """List recipes, models, instances or toolchains, by task and price.

    Example:  cachekit zoo ls --task token-classification --max-price 2

    Example:  cachekit zoo ls models --model roberta
    """
    rows = api.zoo_rows(topic, task=task, model=model, instance=instance, max_price=max_price, price=price or ())
    return Shown(rows, partial(zoo_text.listed, topic), lambda found: "\n".join(row.name for row in found))


@app.command("show")
@verb(answers="RecipeEntry, ZooModel, InstanceRow, ToolchainRow")
def show(name: Name, price: OwnPrice = None) -> Shown:
    """Show one entry in full, with what it is expected to cost.

    Example:  cachekit zoo show bert --price trn1.2xlarge=0.40
    """
    found = api.zoo_entry(name, price=price or ())
    return Shown(found, zoo_text.in_full, lambda found: found.path if found.kind == "recipe" else found.name)


@app.command("check")
@verb(answers="Checked")
def check(files: Files = None) -> Shown:
    """Check recipes and registry entries, without the network.

    Checks what they say, whether lengths and layout fit the model, and the names by which they refer to each other.
    Exits 2 if something is wrong.

    Example:  cachekit zoo check my-recipe.yaml
    """
    return Shown(api.check_recipes(files or ()), zoo_text.checked, lambda found: str(found.status))


@app.command("schema")
@verb()
def schema() -> int:
    """Print the JSON schema of a recipe, for your editor.

    Example:  cachekit zoo schema > recipe.schema.json
    """
    out.text(json.dumps(api.recipe_schema(), indent=2))
    return 0


app.command(zoo_new.NAME, context_settings=zoo_new.CONTEXT)(zoo_new.command)
