"""`cachekit zoo new`: a recipe out of what somebody has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import structs

from cachekit import api
from cachekit.cli import out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import cause_of

if TYPE_CHECKING:
    from cachekit.api.answers import NewRecipe, Note

NAME = "new"

# What follows the command's first word is the command's, whatever it looks like.
CONTEXT = {"allow_interspersed_args": False}

Words = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[COMMAND...]", help="A call of run_glue.py or a similar script, as you would type it."),
]
Source = Annotated[
    Optional[Path],
    typer.Option("--from", metavar="FILE", help="A script that has such a call, or another trainer's YAML."),
]
Goal = Annotated[
    Optional[Path], typer.Option("--output", "-o", metavar="FILE", help="Where the recipe goes; stdout by default.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@verb(answers="NewRecipe")
def command(
    words: Words = None,
    source: Source = None,
    goal: Goal = None,
    force: Force = False,
) -> Shown:
    """Turn a command line or another trainer's YAML into a recipe.

    What could not be carried over is listed on stderr, and in the recipe as comments.

    Example:  cachekit zoo new -o my.yaml -- python run_glue.py --task_name mrpc

    Example:  cachekit zoo new --from train.sh --output recipe.yaml
    """
    if bool(words) is (source is not None):
        raise UsageError(
            "give a command line or --from FILE",
            cause="both were given" if words else "neither was given",
            hint="cachekit zoo new --from train.sh, or cachekit zoo new -- COMMAND",
        )
    if goal is not None and goal.exists() and not force:
        raise UsageError(f"{goal} exists already", hint="name another file with --output, or add --force")
    made = api.new_recipe(source or words or ())
    if goal is not None:
        try:
            goal.write_text(made.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{goal} cannot be written", cause=cause_of(error), hint="name another file with --output"
            ) from error
    made = structs.replace(made, path=str(goal or ""))
    notes = [*_grouped("to be done", made.to_do), *_grouped("not carried over", made.not_carried_over)]
    return Shown(made, _human, lambda found: found.path or found.recipe.name, notes=tuple(notes))


def _grouped(title: str, notes: Sequence[Note]) -> list[str]:
    """Notes for people: those with one reason together."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(note.why, []).append(note.what)
    return [f"{title}: {', '.join(whats)}: {why}" for why, whats in groups.items()]


def _human(made: NewRecipe) -> list[str]:
    if not made.path:
        return made.text.rstrip("\n").split("\n")
    left = out.count(len(made.not_carried_over), "thing")
    lines = [f"{made.path}: {made.recipe.task}, {left} not carried over"]
    if made.to_do:
        lines.append(f"  to be done first: {', '.join(note.what for note in made.to_do)}")
    return [*lines, f"  next: cachekit plan {made.path}"]
