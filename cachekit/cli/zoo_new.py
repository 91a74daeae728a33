"""`cachekit zoo new`: a recipe out of what somebody has."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from cachekit import api
from cachekit.cli import out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

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


@verb()
def command(
    words: Words = None,
    source: Source = None,
    goal: Goal = None,
    force: Force = False,
) -> Shown:
    """Turn a command line or another trainer's YAML into a recipe.

    What could not be carried over is listed on stderr, and in the recipe as comments.

    Example:  cachekit zoo new -o recipe.yaml -- torchrun --nproc_per_node=2 run_glue.py --task_name mrpc

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
                f"{goal} cannot be written", cause=error.strerror or str(error), hint="name another file with --output"
            ) from error
    document: dict[str, Any] = {
        "name": made.recipe.name,
        "task": made.recipe.task,
        "source": str(source or shlex.join(words or ())),
        "path": str(goal) if goal else "",
        "text": made.text,
        "not_carried_over": [{"what": note.what, "why": note.why} for note in made.notes if not note.todo],
        "to_do": [{"what": note.what, "why": note.why} for note in made.notes if note.todo],
    }
    notes = [*_grouped("to be done", document["to_do"]), *_grouped("not carried over", document["not_carried_over"])]
    return Shown(document, _human, lambda found: found["path"] or found["name"], notes=tuple(notes))


def _grouped(title: str, notes: list[dict[str, str]]) -> list[str]:
    """Notes for people: those with one reason together."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(note["why"], []).append(note["what"])
    return [f"{title}: {', '.join(whats)}: {why}" for why, whats in groups.items()]


def _human(document: dict[str, Any]) -> list[str]:
    if not document["path"]:
        return str(document["text"]).rstrip("\n").split("\n")
    left = out.count(len(document["not_carried_over"]), "thing")
    lines = [f"{document['path']}: {document['task']}, {left} not carried over"]
    if document["to_do"]:
        lines.append(f"  to be done first: {', '.join(note['what'] for note in document['to_do'])}")
    return [*lines, f"  next: cachekit plan {document['path']}"]
