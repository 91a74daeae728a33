"""`cachekit zoo`: the recipes, models, instances and toolchains that come along."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from cachekit.cli import options, out, zoo_new, zoo_text
from cachekit.errors import RecipeError, UsageError

NAME = "zoo"

app = typer.Typer(
    add_completion=False,
    help="List, show and check recipes, models and instances.\n\nWithout a command: lists the recipes.\n\n"
    "Example:  cachekit zoo show bert",
    rich_markup_mode=None,
    invoke_without_command=True,
)

Topic = Annotated[str, typer.Argument(metavar="[TOPIC]", help="recipes, models, instances or toolchains.")]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Only what is for it: text-classification.")]
ModelName = Annotated[str, typer.Option("--model", metavar="NAME", help="An id, a part of one, or a type: bert.")]
InstanceName = Annotated[str, typer.Option("--instance", metavar="TYPE", help="As trn1.2xlarge, or trn1.")]
MaxPrice = Annotated[
    Optional[float], typer.Option("--max-price", metavar="DOLLARS", min=0, help="An hour costs that at the most.")
]
OwnPrice = Annotated[
    Optional[list[str]],
    typer.Option("--price", metavar="TYPE=DOLLARS", help="What you pay for an hour of it. Repeatable."),
]
Files = Annotated[
    Optional[list[Path]], typer.Argument(metavar="[FILE...]", help="Recipes; without any, all of the zoo.")
]


@app.callback()
def _top(
    context: typer.Context,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """List the recipes where no command is given."""
    if context.invoked_subcommand is None:
        return ls(format=format, quiet=quiet, verbose=verbose)
    if format != "human" or quiet or verbose:
        raise UsageError(
            "options stand after the command", hint=f"cachekit zoo {context.invoked_subcommand} --format ..."
        )
    return 0


@app.command("ls")
def ls(
    topic: Topic = "recipes",
    task: Task = "",
    model: ModelName = "",
    instance: InstanceName = "",
    max_price: MaxPrice = None,
    price: OwnPrice = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """List recipes, models, instances or toolchains, by task and price.

    Example:  cachekit zoo ls --task token-classification --max-price 2

    Example:  cachekit zoo ls models --model roberta
    """
    from cachekit.verbs import zoo_list

    out.setup(format, quiet=quiet, verbose=verbose)
    wanted = zoo_list.Filter(task, model, instance, max_price, _prices(price))
    rows = zoo_list.rows(topic, wanted)
    out.data(rows, lambda found: zoo_text.listed(topic, found), lambda found: "\n".join(row["name"] for row in found))
    return 0


def _listing(topic: str) -> None:
    """`cachekit zoo models`, which was there before `zoo ls models`."""

    @app.command(topic, hidden=True, help=f"As `zoo ls {topic}`.")
    def listing(
        format: options.Format = "human",  # noqa: A002
        quiet: options.Quiet = False,
        verbose: options.Verbose = 0,
    ) -> int:
        return ls(topic, format=format, quiet=quiet, verbose=verbose)


for _topic in ("recipes", "models", "instances", "toolchains"):
    _listing(_topic)


@app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Of a recipe, a model, an instance or a toolchain.",
            show_default=False,
            autocompletion=options.complete_recipe,
        ),
    ],
    price: OwnPrice = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Show one of them in full, with what it is expected to cost.

    Example:  cachekit zoo show bert --price trn1.2xlarge=0.40
    """
    from cachekit.verbs import zoo_list

    out.setup(format, quiet=quiet, verbose=verbose)
    document = zoo_list.show(name, zoo_list.Filter(prices=_prices(price)))
    out.data(document, zoo_text.in_full, lambda found: str(found.get("path", found["name"])))
    return 0


@app.command("check")
def check(
    files: Files = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Check recipes and registry entries, without the network.

    What they say, whether lengths and layout fit the model, and the names by which they refer to each other. Exits 2
    if something is wrong.

    Example:  cachekit zoo check my-recipe.yaml
    """
    from cachekit.recipe import zoo
    from cachekit.verbs import zoo_check

    out.setup(format, quiet=quiet, verbose=verbose)
    paths = [zoo.recipe_path(str(file)) for file in files or ()]
    checked = zoo_check.check_files(paths) if paths else zoo_check.check_zoo()
    wrong = len(checked.wrong)
    out.data(checked.as_dict(), zoo_text.checked, lambda found: str(found["status"]), fails=bool(wrong))
    if wrong:
        what = {0: "the zoo", 1: "this recipe"}.get(len(paths), "these recipes")
        raise RecipeError(
            f"{out.count(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong with {what}",
            cause=f"{checked.wrong[0].where}: {checked.wrong[0].problem}",
            hint=checked.wrong[0].hint,
        )
    return 0


@app.command("schema")
def schema(
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Print the JSON schema of a recipe, for your editor.

    Example:  cachekit zoo schema > recipe.schema.json
    """
    import json

    from cachekit.recipe import json_schema

    out.setup(format, quiet=quiet, verbose=verbose)
    out.text(json.dumps(json_schema(), indent=2))
    return 0


app.command(zoo_new.NAME, context_settings=zoo_new.CONTEXT)(zoo_new.command)


def _prices(given: list[str] | None) -> dict[str, float]:
    from cachekit.recipe import price

    prices = price.read(given or ())
    if prices.instance or "" in prices.own:
        raise UsageError(
            f"--price {prices.instance or prices.own['']}: not of the form TYPE=DOLLARS",
            hint="--price trn1.2xlarge=0.40",
        )
    return prices.own
