"""`cachekit ls`: what the store holds."""

from __future__ import annotations

from typing import Any

from cachekit.cli import options, out

NAME = "ls"


def command(
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """List the records of the store, youngest first.

    Example:  cachekit ls --format json
    """
    from cachekit.verbs.inspect import ls
    from cachekit.verbs.open_session import open_store

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home)
    with open_store(config, NAME, follow=out.following) as store:
        found = ls(store)
    out.data(found, lambda rows: human(rows, str(config.home)), lambda rows: "\n".join(row["key"] for row in rows))
    return 0


def human(found: list[dict[str, Any]], home: str) -> list[str]:
    """Records as a table; they are taken out of the list, so that of 100,000 no two forms lie in memory."""
    if not found:
        return [f"the store at {home} has no records; next: cachekit warm RECIPE"]
    found.reverse()
    rows, same = [], dict[str, str]()
    while found:
        row = found.pop()
        cells = [
            row["key"][:12],
            row["recipe"],
            row["directory"],
            str(row["graphs"]),
            out.size(row["bytes"]),
            out.duration(row["compile_seconds"]),
            row["created"][:10],
        ]
        rows.append([cells[0], *(same.setdefault(cell, cell) for cell in cells[1:])])
    return out.table(rows, ["key", "recipe", "compiler", "graphs", "size", "compile", "made"], cut=(1, 2))
