"""`cachekit zoo new`: a recipe out of what somebody has."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out
from cachekit.errors import UsageError

NAME = "new"

# What follows the command's first word is the command's, whatever it looks like.
CONTEXT = {"allow_interspersed_args": False}

Words = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[COMMAND...]", help="A call of run_glue.py or its like, as you would type it."),
]
Source = Annotated[
    Optional[Path],
    typer.Option("--from", metavar="FILE", help="A script that has such a call, or a YAML of another trainer."),
]
Target = Annotated[
    Optional[Path], typer.Option("--output", "-o", metavar="FILE", help="Where the recipe goes; stdout by default.")
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


def command(
    words: Words = None,
    source: Source = None,
    target: Target = None,
    force: Force = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Turn a command line or another trainer's YAML into a recipe.

    What could not be carried over is told on stderr, and stands in the recipe as comments.

    Example:  cachekit zoo new -o recipe.yaml -- torchrun --nproc_per_node=2 run_glue.py --task_name mrpc

    Example:  cachekit zoo new --from train.sh --output recipe.yaml
    """
    from cachekit.recipe.convert.draft import grouped
    from cachekit.verbs.new_recipe import new_recipe

    out.setup(format, quiet=quiet, verbose=verbose)
    if bool(words) is (source is not None):
        raise UsageError(
            "say a command line, or --from FILE",
            cause="both are given" if words else "neither is given",
            hint="cachekit zoo new --from train.sh, or cachekit zoo new -- COMMAND",
        )
    if target is not None and target.exists() and not force:
        raise UsageError(f"{target} is there already", hint="name another file with --output, or say --force")
    made = new_recipe(source or words or ())
    for title, todo in (("to be done", True), ("not carried over", False)):
        for told in grouped(note for note in made.notes if note.todo is todo):
            out.note(f"{title}: {told}")
    if target is not None:
        try:
            target.write_text(made.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{target} cannot be written",
                cause=error.strerror or str(error),
                hint="name another file with --output",
            ) from error
    document: dict[str, Any] = {
        "name": made.recipe.name,
        "task": made.recipe.task,
        "source": str(source or shlex.join(words or ())),
        "path": str(target) if target else "",
        "text": made.text,
        "not_carried_over": [{"what": note.what, "why": note.why} for note in made.notes if not note.todo],
        "to_do": [{"what": note.what, "why": note.why} for note in made.notes if note.todo],
    }
    out.data(document, _human, lambda found: found["path"] or found["name"])
    return 0


def _human(document: dict[str, Any]) -> list[str]:
    if not document["path"]:
        return str(document["text"]).rstrip("\n").split("\n")
    left = out.count(len(document["not_carried_over"]), "thing")
    lines = [f"{document['path']}: {document['task']}, {left} not carried over"]
    if document["to_do"]:
        lines.append(f"  to be done first: {', '.join(note['what'] for note in document['to_do'])}")
    return [*lines, f"  next: cachekit plan {document['path']}"]
