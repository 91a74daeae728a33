"""`cachekit why`: what differs from the nearest record, between two recipes or records, and why a run compiled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import options, why_text
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Compared, Why


First = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE|KEY]",
        help="A recipe, as for `cachekit plan`, or the first digits of a key.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
Second = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[OTHER]",
        help="Compare the first with this one; each is a recipe, the first digits of a key, or a file with a record.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
RunName = Annotated[
    Optional[str],
    typer.Option(
        "--run", metavar="last|RUN", help="Show why a run compiled: the last one, or one by its name in the journal."
    ),
]


@verb("home", "compiler", "cache", "trust", "machine", answers="Why, Compared, RunWhy")
def command(
    cache: Cache,
    recipe: First = None,
    other: Second = None,
    run: RunName = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
) -> Shown:
    """Show what differs from the nearest record, here or on a remote.

    On a hit, says so. For a key, says what differs from the nearest other record. For two recipes or records, says what
    differs between them; --set and the like change the second.

    Example:  cachekit why bert --set training.max_seq_length=384

    Example:  cachekit why bert 3f2a91c0

    Example:  cachekit why --run last
    """
    changed = bool(overrides or tiny or cache.toolchain or cache.target or cache.instance)
    if run is not None:
        if recipe or changed:
            raise UsageError("--run and a recipe were both given", hint="leave one of them out")
        return Shown(cache.why_run(run), why_text.of_run, lambda said: "\n".join(one.name for one in said.modules))
    if recipe is None:
        raise UsageError("neither a recipe nor a run was named", hint="cachekit why RECIPE, or cachekit why --run last")
    if other is not None:
        if changed and api.is_record(other):
            raise UsageError(
                f"--set and options like it change the second recipe, and {other} is a key",
                hint=f"cachekit why {other} {recipe} ...",
            )
        return _compared(cache.compare(recipe, Variant(other, overrides or (), tiny)))
    if api.is_record(recipe) and not Path(recipe).expanduser().is_file():
        if changed:
            raise UsageError(
                f"--set and options like it change a recipe, and {recipe} is a key",
                hint=f"cachekit why {recipe} compares its record with the nearest one",
            )
        return _compared(cache.why_key(recipe))
    found = cache.why(Variant(recipe, overrides or (), tiny))
    # Of a remote that was never reached something has been told.
    unsearched = [one for one in found.looked if one.records and one.problem]
    notes = tuple(f"{one.remote} was not searched to the end: {one.problem}" for one in unsearched)
    return Shown(found, why_text.of_recipe, lambda said: _names(said) or said.status, notes=notes)


def _compared(found: Compared) -> Shown:
    return Shown(found, why_text.of_two, lambda said: _names(said) or "same")


def _names(answer: Why | Compared) -> str:
    return "\n".join(change.name for change in answer.changes)
