"""`cachekit store pin` and `unpin`: records that stay whatever `gc` is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Pinned


Names = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys by their first digits (`cachekit store ls`).",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
List = Annotated[bool, typer.Option("--list", "-l", help="Only list what is pinned.")]


@verb("home", "compiler", answers="list[Pinned]")
def command(
    cache: Cache,
    names: Names = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    listing: List = False,
) -> Shown:
    """Keep a recipe's record, whatever limits `cachekit store gc` has.

    Pins the recipe's current key: after an upgrade or an edit the recipe has another key. If the key is not warm yet,
    what is made for it later is kept.

    Example:  cachekit store pin bert

    Example:  cachekit store pin --list
    """
    if not names and not listing:
        raise UsageError("nothing to pin", hint="name a recipe or a key, or --list")
    if names and listing:
        raise UsageError("names and --list were both given", hint="leave out one of them")
    if listing:
        return Shown(cache.pins(), listed, keys)
    return Shown(cache.pin(*options.variants(names, overrides, tiny=tiny)), human, keys)


def keys(found: list[Pinned]) -> str:
    """Keys for scripts."""
    return "\n".join(one.key for one in found)


def listed(found: list[Pinned]) -> list[str]:
    """All pins, for people."""
    if not found:
        return ["nothing is pinned; next: cachekit store pin RECIPE"]
    rows = [
        [
            "-" if one.bytes is None else out.size(one.bytes),
            one.key[:12],
            one.recipe,
            one.directory or "(no record yet)",
            one.pinned[:10],
        ]
        for one in found
    ]
    return out.table(rows, ["size", "key", "recipe", "compiler", "pinned"], right=(0,), cut=(2, 3))


def human(found: list[Pinned]) -> list[str]:
    """What was pinned, for people."""
    lines = []
    for one in found:
        name = " ".join(filter(None, [one.key[:12], one.recipe]))
        size = "no record yet: it is kept once it is made" if one.bytes is None else out.size(one.bytes)
        lines.append(f"{'pinned' if one.changed else 'was pinned already:'} {name}, {size}")
    return lines


@verb("home", "compiler", answers="list[Pinned]")
def unpin(
    cache: Cache,
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
) -> Shown:
    """Let `cachekit store gc` remove a pinned record again.

    Example:  cachekit store unpin bert
    """
    return Shown(cache.unpin(*options.variants(names, overrides, tiny=tiny)), unpinned, keys)


def unpinned(found: list[Pinned]) -> list[str]:
    """What was let go, for people."""
    names = (" ".join(filter(None, [one.key[:12], one.recipe])) for one in found)
    return [
        f"{'unpinned' if one.changed else 'was not pinned:'} {name}" for name, one in zip(names, found, strict=True)
    ]
