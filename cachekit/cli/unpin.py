"""`cachekit unpin`: let records go that were pinned."""

from __future__ import annotations

from typing import Any

from cachekit.cli import options, out
from cachekit.cli.pin import keys

NAME = "unpin"


def command(
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
) -> int:
    """Let `cachekit gc` remove a pinned record again.

    Example:  cachekit unpin bert
    """
    from cachekit.verbs.pins import unpin

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler)
    with options.session(config, None, NAME) as session:
        done = unpin(session.store, [options.named_key(config, name, overrides, tiny=tiny) for name in names])
    out.data([one.as_dict() for one in done], human, keys)
    return 0


def human(found: list[dict[str, Any]]) -> list[str]:
    """What was let go, for people."""
    names = (" ".join(filter(None, [one["key"][:12], one["recipe"]])) for one in found)
    return [
        f"{'unpinned' if one['changed'] else 'was not pinned:'} {name}" for name, one in zip(names, found, strict=True)
    ]
