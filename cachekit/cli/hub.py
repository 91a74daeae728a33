"""`cachekit hub`: a team's cache repo on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "hub"
app = typer.Typer(
    add_completion=False,
    help="Set up and look at a team's cache on the Hugging Face Hub.\n\n"
    "Example:  cachekit hub use team/neuron-cache --read-only",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repo.", show_default=False)]
Dataset = Annotated[bool, typer.Option("--dataset", help="A dataset repo instead of a model repo.")]
Public = Annotated[bool, typer.Option("--public", help="Anybody may read it.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Take hits from it, and put nothing there.")]


@app.command("create")
def create(
    repo: Repo,
    dataset: Dataset = False,
    public: Public = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Make a private cache repo, and use it in this directory.

    Example:  cachekit hub create team/neuron-cache
    """
    from cachekit.verbs import hub

    out.setup(format, quiet=quiet, verbose=verbose)
    kind = "dataset" if dataset else "model"
    file = Path.cwd() / hub.FILE
    hub.check_settings(file, repo, kind=kind, may="rw")  # before there is a repo that nobody uses
    place = hub.make(repo, kind=kind, public=public)
    used = hub.Used(place, hub.write_settings(file, place, "rw"), "rw")
    out.data(used.as_dict(), _human, lambda found: str(found["url"]))
    return 0


@app.command("use")
def use(
    repo: Repo,
    dataset: Dataset = False,
    read_only: ReadOnly = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """Name a cache repo in this directory's cachekit.toml.

    A team keeps that file with its code.

    Example:  cachekit hub use team/neuron-cache --read-only
    """
    from cachekit.verbs import hub

    out.setup(format, quiet=quiet, verbose=verbose)
    kind = "dataset" if dataset else "model"
    used = hub.use(repo, Path.cwd(), kind=kind, may="r" if read_only else "rw")
    out.data(used.as_dict(), _human, lambda found: str(found["url"]))
    return 0


@app.command("ls")
def ls(
    cache: options.Cache = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Count what the shared caches hold, by compiler and model.

    Example:  cachekit hub ls --cache local:rw,hf://team/neuron-cache
    """
    from cachekit.verbs import hub

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, cache=cache)
    with options.session(config, None, NAME) as session:
        options.need_chain(session.chain, "read")
        found = []
        for remote in session.chain.readable:
            remote.retry()
            with remote.call() as tier:
                found.append({"tier": remote.name, "records": hub.contents(tier)})
    out.data(found, _listed)
    return 0


def _human(document: dict[str, Any]) -> list[str]:
    who = "private" if document["private"] else "PUBLIC: anybody can read it"
    return [
        f"{document['repo']}: {'made' if document['new'] else 'there already'}, {who}  {document['url']}",
        f'  {document["file"]} has cache = "{document["cache"]}"',
        "  next: cachekit warm RECIPE",
    ]


def _listed(found: list[dict[str, Any]]) -> list[str]:
    lines = []
    for one in found:
        lines.append(f"{one['tier']}: {out.count(sum(row['records'] for row in one['records']), 'record')}")
        rows = [[row["directory"], row["model_type"], str(row["records"])] for row in one["records"]]
        lines += [f"  {line}" for line in out.table(rows, ["compiler", "model", "records"])] if rows else []
    return lines
