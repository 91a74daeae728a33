"""`cachekit store unpin`: let records go that were pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cachekit.cli import options
from cachekit.cli.pin import keys
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache


@verb("home", "compiler", answers="list[Pinned]")
def command(
    cache: Cache,
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
) -> Shown:
    """Let `cachekit store gc` remove a pinned record again.

    Example:  cachekit store unpin bert
    """
    return Shown(cache.unpin(*options.variants(names, overrides, tiny=tiny)), human, keys)


def human(found: list[dict[str, Any]]) -> list[str]:
    """What was let go, for people."""
    names = (" ".join(filter(None, [one["key"][:12], one["recipe"]])) for one in found)
    return [
        f"{'unpinned' if one['changed'] else 'was not pinned:'} {name}" for name, one in zip(names, found, strict=True)
    ]
