"""`cachekit store`: what looks after the store of this machine."""

from __future__ import annotations

import typer

from cachekit.cli.verbs import StoreVerbs

app = typer.Typer(
    cls=StoreVerbs,
    add_completion=False,
    help="List, show, check, pin, remove, export and import the records of the store.\n\nExample:  cachekit store ls",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _top() -> None:
    """The verbs below have all options."""
