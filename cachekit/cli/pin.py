"""`cachekit pin`: records that stay whatever `gc` is told."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out

NAME = "pin"

Names = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys by their first digits (`cachekit ls`).",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
List = Annotated[bool, typer.Option("--list", "-l", help="Only say what is pinned.")]


def command(
    names: Names = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    listing: List = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
) -> int:
    """Keep a recipe's record, whatever limits `cachekit gc` has.

    The recipe's present key is pinned: after an upgrade or an edit it has another. One that is not warm yet keeps what
    is made for it.

    Example:  cachekit pin bert

    Example:  cachekit pin --list
    """
    from cachekit.errors import UsageError
    from cachekit.verbs.pins import pin, pins

    out.setup(format, quiet=quiet, verbose=verbose)
    if not names and not listing:
        raise UsageError("nothing to pin", hint="name a recipe or a key, or --list")
    if names and listing:
        raise UsageError("--list pins nothing", hint="leave it out, or the names")
    config = options.load_config(home, compiler)
    with options.session(config, None, NAME) as session:
        wanted = [options.named_key(config, name, overrides, tiny=tiny) for name in names or ()]
        done = pin(session.store, wanted) if wanted else pins(session.store)
    out.data([one.as_dict() for one in done], listed if listing else human, keys)
    return 0


def keys(found: list[dict[str, Any]]) -> str:
    """Keys for scripts."""
    return "\n".join(one["key"] for one in found)


def listed(found: list[dict[str, Any]]) -> list[str]:
    """All pins, for people."""
    if not found:
        return ["nothing is pinned; next: cachekit pin RECIPE"]
    rows = [
        [
            "-".rjust(9) if one["bytes"] is None else out.size(one["bytes"]).rjust(9),
            one["key"][:12],
            one["recipe"],
            one["directory"] or "(no record yet)",
            one["pinned"][:10],
        ]
        for one in found
    ]
    return out.table(rows, ["     size", "key", "recipe", "compiler", "pinned"], cut=(2, 3))


def human(found: list[dict[str, Any]]) -> list[str]:
    """What was pinned, for people."""
    lines = []
    for one in found:
        name = " ".join(filter(None, [one["key"][:12], one["recipe"]]))
        size = "no record yet: it is kept once it is made" if one["bytes"] is None else out.size(one["bytes"])
        lines.append(f"{'pinned' if one['changed'] else 'was pinned already:'} {name}, {size}")
    return lines
