"""`cachekit zoo`: the recipes, models, instances and toolchains that come along."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import structs

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.plan import figure
from cachekit.cli.verb import Shown, group, verb
from cachekit.errors import UsageError
from cachekit.text import argument, dollars, span
from cachekit.values import builtins

if TYPE_CHECKING:
    from cachekit.api.answers import (
        Checked,
        InstanceRow,
        ModelRow,
        NewRecipe,
        Note,
        RecipeEntry,
        RecipeRow,
        ToolchainRow,
        ZooCompiling,
        ZooExpected,
        ZooModel,
    )

app = group(
    "List, show and check recipes, models and instances.\n\nWithout a command, lists the recipes.\n\n"
    "Example:  cachekit zoo show bert",
    invoke_without_command=True,
)

# What follows the command's first word is the command's, whatever it looks like.
WORDS_FOLLOW = {"allow_interspersed_args": False}
EMPTY: tuple[Any, ...] = (None, [], (), {}, "")  # what an entry leaves open is not printed
PACKAGES = ("neuronx-cc", "torch-neuronx")  # of a toolchain's; the JSON has them all

Topic = Annotated[str, typer.Argument(metavar="[TOPIC]", help="recipes, models, instances or toolchains.")]
InstanceName = Annotated[
    str, typer.Option("--instance", metavar="TYPE", help="Only this type or family: trn1.2xlarge, or trn1.")
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
Words = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[COMMAND...]", help="A call of run_glue.py or a similar script, as you would type it."),
]
Source = Annotated[
    Optional[Path],
    typer.Option(
        "--from",
        metavar="FILE",
        help="A YAML file of metaflow-trainium or NxD Training, or a shell script with one command.",
    ),
]
Goal = Annotated[
    Optional[Path], typer.Option("--output", "-o", metavar="FILE", help="Where the recipe goes; stdout by default.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


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
            "options must come after the command", hint=f"cachekit zoo {context.invoked_subcommand} --format ..."
        )
    return 0


@app.command("ls")
@verb(answers="list[RecipeRow], list[ModelRow], list[InstanceRow], list[ToolchainRow]")
def ls(
    topic: Topic = "recipes",
    task: options.Task = "",
    model: options.ModelName = "",
    instance: InstanceName = "",
    max_price: options.MaxPrice = None,
    price: OwnPrice = None,
) -> Shown:
    """List recipes, models, instances or toolchains, by task and price.

    Example:  cachekit zoo ls --task token-classification --max-price 2

    Example:  cachekit zoo ls models --model roberta
    """
    rows = api.zoo_rows(topic, task=task, model=model, instance=instance, max_price=max_price, price=price or ())
    return Shown(rows, partial(listed, topic), lambda found: "\n".join(row.name for row in found))


@app.command("show")
@verb(answers="RecipeEntry, ZooModel, InstanceRow, ToolchainRow")
def show(name: Name, price: OwnPrice = None) -> Shown:
    """Show one entry in full, with what it is expected to cost.

    Example:  cachekit zoo show bert --price trn1.2xlarge=0.40
    """
    found = api.zoo_entry(name, price=price or ())
    return Shown(found, in_full, lambda found: found.path if found.kind == "recipe" else found.name)


@app.command("check")
@verb(answers="Checked")
def check(files: Files = None) -> Shown:
    """Check recipes and registry entries, without the network.

    Checks their fields, whether lengths and layout fit the model, and their references to each other.
    Exits 2 if something is wrong.

    Example:  cachekit zoo check my-recipe.yaml
    """
    found = api.check_recipes(files or ())
    return Shown(found, checked, lambda _: "\n".join(out.about(one.where, one.problem) for one in found.wrong) or "ok")


@app.command("new", context_settings=WORDS_FOLLOW)
@verb(answers="NewRecipe")
def new(
    words: Words = None,
    source: Source = None,
    goal: Goal = None,
    force: Force = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Turn a command line or another trainer's YAML into a recipe.

    What could not be carried over is listed on stderr, and in the recipe as comments.

    Example:  cachekit zoo new -o my.yaml -- python run_glue.py --task_name mrpc

    Example:  cachekit zoo new --from nxdt.yaml --output recipe.yaml
    """
    if bool(words) is (source is not None):
        raise UsageError(
            "give a command line or --from FILE",
            cause="both were given" if words else "neither was given",
            hint="cachekit zoo new --from nxdt.yaml, or cachekit zoo new -- COMMAND",
        )
    goal = None if goal == Path("-") else goal
    if goal is not None and goal.exists() and not force:
        raise UsageError(f"{goal} exists already", hint="name another file with --output, or add --force")
    done = api.new_recipe(source or words or ())
    if goal is not None and not dry_run:
        out.write_file(goal, done.text)
    done = structs.replace(done, path=str(goal or ""), dry_run=dry_run)
    notes = [*_grouped("to do", done.to_do), *_grouped("not carried over", done.not_carried_over)]
    return Shown(done, made, lambda found: found.path or found.recipe.name, notes=tuple(notes))


@app.command("schema")
@verb()
def schema() -> int:
    """Print the JSON Schema of a recipe, for your editor.

    Example:  cachekit zoo schema > recipe.schema.json
    """
    out.text(json.dumps(api.recipe_schema(), indent=2))
    return 0


# What people read


def _recipe(row: RecipeRow) -> list[str]:
    price = "" if row.price_per_hour is None else dollars(row.price_per_hour)
    return [row.name, row.task, (row.instances or ("",))[0], price]


def _model(row: ModelRow) -> list[str]:
    return [row.type, _parameters(row), row.licence, row.name]


def _instance(row: InstanceRow) -> list[str]:
    cores = f"{row.chips} x {row.cores // row.chips}" if row.chips else ""
    return [row.name, row.accelerator, cores, f"{row.device_memory_gib:.0f} GiB", _price(row, month=True)]


def _toolchain(row: ToolchainRow) -> list[str]:
    versions = (row.packages.get(name, "").partition("+")[0] for name in PACKAGES)
    return [row.name, *versions, row.trains, " ".join(row.targets)]


# Of each topic: the header, and the cells of a row.
TABLES: dict[str, tuple[list[str], Callable[[Any], list[str]]]] = {
    "recipes": (["recipe", "task", "instance", "an hour"], _recipe),
    "models": (["type", "size", "licence", "model"], _model),
    "instances": (["instance", "accelerator", "cores", "memory", "price per hour"], _instance),
    "toolchains": (["toolchain", *PACKAGES, "trains", "targets"], _toolchain),
}


def listed(topic: str, rows: Sequence[RecipeRow | ModelRow | InstanceRow | ToolchainRow]) -> list[str]:
    """Rows of a topic."""
    if not rows:
        return [f"no {topic} of that kind"]
    header, cells = TABLES[topic]
    lines = out.table([cells(row) for row in rows], header)
    if topic == "recipes":
        lines += ["", "next: cachekit zoo show RECIPE, cachekit plan RECIPE, cachekit warm RECIPE"]
    if topic == "toolchains":
        lines += ["", "trains: seen on a device, said by its maker, or no (`cachekit zoo show NAME`)"]
    return lines


def _parameters(model: ModelRow) -> str:
    millions = model.parameters / 1e6
    return f"{millions:.0f}M" if millions < 1000 else f"{millions / 1000:.1f}B"  # noqa: PLR2004


def _price(row: InstanceRow, *, month: bool = False) -> str:
    """What an hour costs, and who says so; in a table only where and in which month."""
    quoted, paid = row.price, row.price_per_hour
    if paid is None:
        return "unknown"
    if quoted is None or quoted.per_hour != paid:
        return f"{dollars(paid)} (yours)"
    said = f"{dollars(paid)} ({quoted.region}, {quoted.date[:7] if month else quoted.date})"
    return said if month else f"{said}, {quoted.terms}; {quoted.source}"


def in_full(entry: RecipeEntry | ZooModel | InstanceRow | ToolchainRow) -> list[str]:
    """One entry; of a recipe its file, which is made to be read."""
    lines = [f"{entry.kind} {entry.name}"]
    if entry.kind == "recipe":
        if (model := entry.model) is not None:
            size = f"{_parameters(model)} parameters"
            lines += out.labelled("  model    ", f"{model.name}, {model.type}, {size}, {model.licence}")
        for expected in entry.expect:
            lines += _expected(expected)
        for compiling in entry.compiling:
            lines += _compiling(compiling)
        return [*lines, f"  file     {entry.path}", "", *entry.text.rstrip("\n").split("\n")]
    fields = builtins(entry)
    width = max(map(len, fields)) + 2
    if entry.kind == "instance":
        lines += _field("price_per_hour", _price(entry), width)
    for field, value in fields.items():
        if field not in {"kind", "name", "price", "price_per_hour"} and value not in EMPTY:
            lines += _field(field, value, width)
    return lines


def _field(field: str, value: Any, width: int, indent: int = 2) -> list[str]:
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if item not in EMPTY}
        inner = max(map(len, value)) + 2
        deeper = (line for name, item in value.items() for line in _field(name, item, inner, indent + 2))
        return [" " * indent + field, *deeper]
    words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return out.labelled(field.ljust(width), words, indent)


def _expected(expected: ZooExpected) -> list[str]:
    said = [f"{name} {value:g}" for name, value in expected.metrics.items()]
    if expected.train_seconds is not None:
        said.append(f"trained in {out.duration(expected.train_seconds)}")
    if expected.machines > 1:
        said.append(f"on {expected.machines} machines")
    if expected.steps_per_second is not None:
        said.append(f"{expected.steps_per_second:g} steps a second")
    if expected.dollars is not None:
        said.append(f"the source paid {dollars(expected.dollars)}")
    if expected.cost is not None:
        said.append(f"that time costs {dollars(expected.cost)} now, at {dollars(expected.price_per_hour)} an hour")
    elif expected.price_per_hour is not None:
        said.append(f"{dollars(expected.price_per_hour)} an hour")
    source = ", ".join(part for part in (expected.source, expected.note) if part)
    return out.labelled(f"  {expected.instance.ljust(16)} ", "; ".join([*said, source]))


def _compiling(found: ZooCompiling) -> list[str]:
    """As `plan` says it."""
    known = found.expected
    said = [f"compiling takes {span(known.low, known.high)}"]
    if found.cost is not None:
        said.append(" to ".join(map(dollars, found.cost)))
    said.append(figure(known))
    if found.price is not None:
        said.append(f"at {dollars(found.price.per_hour)} an hour ({found.price.source})")
    return out.labelled(f"  {found.instance.ljust(16)} ", "; ".join(said))


def checked(answer: Checked) -> list[str]:
    """What a check found."""
    lines = []
    for finding in answer.findings:
        kind = "note" if finding.note else "WRONG"
        lines += out.labelled(f"{kind:<5}  ", out.about(finding.where, finding.problem))
        if finding.hint:
            lines += out.labelled("", finding.hint, indent=7)
    looked = ", ".join(out.count(number, what.removesuffix("s")) for what, number in answer.looked_at.items())
    return [*lines, f"{looked} checked{': nothing is wrong' if answer.status == 'ok' else ''}"]


def _grouped(title: str, notes: Sequence[Note]) -> list[str]:
    """Notes for people: those with one reason together."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(note.why, []).append(note.what)
    return [f"{title}: {', '.join(whats)}: {why}" for why, whats in groups.items()]


def made(answer: NewRecipe) -> list[str]:
    """A new recipe: its text, or where it was written."""
    if not answer.path:
        return answer.text.rstrip("\n").split("\n")
    left = answer.not_carried_over
    lost = f"{out.count(len(left), 'thing')} not carried over" if left else "everything carried over"
    would = "would write " if answer.dry_run else ""
    lines = [f"{would}{answer.path}: {answer.recipe.task}, {lost}"]
    if answer.to_do:
        lines.append(f"  to do first: {', '.join(note.what for note in answer.to_do)}")
    return lines if answer.dry_run else [*lines, f"  next: cachekit plan {argument(answer.path)}"]
