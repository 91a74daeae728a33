"""`cachekit report`: a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from cachekit.cli import options, out

NAME = "report"

Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes, as HTML.")]
RunName = Annotated[
    str, typer.Option("--run", metavar="ID", help="Whose time line; by default the last that compiled.")
]
Instance = Annotated[
    str, typer.Option("--instance", metavar="TYPE", help="Whose price; by default this machine's, if known.")
]
OwnPrice = Annotated[
    Optional[list[str]], typer.Option("--price", metavar="[TYPE=]DOLLARS", help="What you pay for an hour. Repeatable.")
]


def command(
    output: Output = Path("cachekit-report.html"),
    run: RunName = "",
    instance: Instance = "",
    price: OwnPrice = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Write a page about the store: when what was compiled, what hit, what that saved.

    One file, to look at on a laptop or a phone, to mail, to keep: it loads nothing and runs nothing.

    Example:  cachekit report --output report.html
    """
    from cachekit.page import write_page
    from cachekit.verbs import price as prices

    out.setup(format, quiet=quiet, verbose=verbose)
    paid = prices.machine(prices.read(price or []), instance)
    config = options.load_config(home)
    with options.session(config, None, NAME) as session:
        written = write_page(session.store, output, run=run, price=paid)
    for problem in written.report.stats.problems:
        out.warning(f"not counted: {problem}")
    out.data(
        written.as_dict(),
        lambda said: [f"wrote {output} ({out.size(said['bytes'])}); look at it: {written.path.as_uri()}"],
        lambda said: str(said["path"]),
    )
    return 0
