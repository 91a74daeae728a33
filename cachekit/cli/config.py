"""`cachekit config`: every setting, its value, and where it came from."""

from __future__ import annotations

import re
from typing import Any

from cachekit.cli import options, out

NAME = "config"
_IN_ADDRESS = re.compile(r"//[^/@,\s]+@")  # a token in an address, which every other verb refuses


def command(
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Print every setting with its value and its origin.

    Flag > CACHEKIT_<NAME> > cachekit.toml (or [tool.cachekit]) > the user's config.toml > default.

    Example:  cachekit config --format quiet
    """
    out.setup(format, quiet=quiet, verbose=verbose)
    settings = options.load_config(home).settings
    rows = [{"name": s.name, "value": _without_tokens(s.value), "origin": s.origin, "help": s.help} for s in settings]
    out.data(rows, _human, lambda found: "\n".join(f"{row['name']}={_text(row['value'])}" for row in found))
    return 0


def _without_tokens(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_tokens(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tokens(one) for one in value]
    return _IN_ADDRESS.sub("//***@", value) if isinstance(value, str) else value


def _human(rows: list[dict[str, Any]]) -> list[str]:
    return out.table([[row["name"], _text(row["value"]), row["origin"]] for row in rows], ["setting", "value", "from"])


def _text(value: Any) -> str:
    """A value as a variable would hold it."""
    if isinstance(value, dict):
        return ",".join(f"{name}={table['url']}" for name, table in value.items())
    if value is None:
        return "none"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)
