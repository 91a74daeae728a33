"""`cachekit store ls`: what the store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache


@verb("home", answers="list[Listed]")
def command(cache: Cache) -> Shown:
    """List the records of the store, newest first.

    Example:  cachekit store ls --format json
    """
    where = str(next(one.value for one in cache.settings() if one.name == "home"))
    return Shown(cache.ls(), lambda rows: human(rows, where), lambda rows: "\n".join(row.key for row in rows))


def human(found: list[Any], home: str) -> list[str]:
    """Records as a table; they are taken out of the list, so that of 100,000 no two forms lie in memory."""
    if not found:
        return [f"the store at {home} has no records; next: cachekit warm RECIPE"]
    found.reverse()
    rows, same = [], dict[str, str]()
    while found:
        row = found.pop()
        cells = [
            row.key[:12],
            row.recipe,
            row.directory,
            str(row.graphs),
            out.size(row.bytes),
            out.duration(row.compile_seconds),
            row.created[:10],
        ]
        rows.append([cells[0], *(same.setdefault(cell, cell) for cell in cells[1:])])
    return out.table(rows, ["key", "recipe", "compiler", "graphs", "size", "compile", "made"], cut=(1, 2))
