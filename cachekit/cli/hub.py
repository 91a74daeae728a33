"""`cachekit hub`: a team's cache repo on the Hugging Face Hub."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, group, verb
from cachekit.text import cut, first_of, not_asked

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import RemoteContents, RemoteRecord, Used

NAME = 10  # characters of who made a record
SHOWN = 12  # names of recipes
LONGEST = 30  # of any other name: a stranger's may have hundreds

app = group(
    "Set up and look at a team's cache on the Hugging Face Hub.\n\n"
    "Example:  cachekit hub use team/neuron-cache --read-only"
)
Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repo.", show_default=False)]
Dataset = Annotated[bool, typer.Option("--dataset", help="A dataset repo instead of a model repo.")]
Public = Annotated[bool, typer.Option("--public", help="Let anybody read the repo.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Read from the repo, and never write to it.")]


@app.command("create")
@verb(answers="Used")
def create(
    cache: Cache,
    repo: Repo,
    dataset: Dataset = False,
    public: Public = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Make a private cache repo, and use it in this directory.

    Example:  cachekit hub create team/neuron-cache
    """
    return Shown(cache.hub_create(repo, dataset=dataset, public=public, dry_run=dry_run), _human, _url)


@app.command("use")
@verb(answers="Used")
def use(
    cache: Cache,
    repo: Repo,
    dataset: Dataset = False,
    read_only: ReadOnly = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Name a cache repo in this directory's cachekit.toml.

    A team keeps that file with its code. If the repo belongs to somebody else, cachekit only
    reads it, as with --read-only.

    Example:  cachekit hub use team/neuron-cache --read-only
    """
    done = cache.hub_use(repo, dataset=dataset, read_only=read_only, dry_run=dry_run)
    return Shown(done, _human, _url)


@app.command("ls")
@verb("home", "cache", answers="list[RemoteContents]")
def ls(
    cache: Cache,
    recipe: Annotated[str, typer.Option("--recipe", metavar="NAME", help="Only the records of this recipe.")] = "",
    compiler: Annotated[
        str, typer.Option("--compiler", metavar="NAME", help="Only this compiler's: neuron, or neuronxcc-2.26.")
    ] = "",
) -> Shown:
    """List the records of the remotes, newest first.

    In the column "trust", "says alice" means that the remote's index names alice as the record's signer. Anybody who
    can write to the remote can have written that name: the signature is checked when the record is used.

    Example:  cachekit hub ls --cache local:rw,team:r --recipe bert
    """
    found = cache.remote_contents(recipe=recipe, compiled_with=compiler)
    silent = next((one.unanswered for one in found if one.unanswered), None)
    return Shown(found, partial(_listed, asked=recipe), _lines, error=silent)


def _url(answer: Used) -> str:
    return str(answer.url)


def _human(answer: Used) -> list[str]:
    who = "private" if answer.private else "PUBLIC: anybody can read it"
    made = "would make" if answer.dry_run else "made"
    lines = [
        f"{answer.repo}: {made if answer.new else 'already there'}, {who}  {answer.url}".rstrip(),
        f'  {answer.file} {"would have" if answer.dry_run else "has"} cache = "{answer.cache}"',
    ]
    owner = answer.repo.partition("/")[0]
    if not (answer.owned and answer.private):
        whose = "it is public" if answer.owned else f"this one belongs to {owner}"
        lines += [
            f"  a compiler cache is code, and {whose}:",
            "  only records signed by somebody you trust are used: cachekit trust add NAME KEY",
        ]
    elif answer.team:
        lines.append(f"  a compiler cache is code: what members of {owner} put there runs as you")
    return lines if answer.dry_run else [*lines, "  next: cachekit warm RECIPE"]


def _lines(found: list[RemoteContents]) -> str:
    return "\n".join(f"{one.remote} {row.key}" for one in found for row in one.records)


def _listed(found: list[RemoteContents], asked: str = "") -> list[str]:
    lines: list[str] = []
    silent = next((one for one in found if one.unanswered), None)
    for one in found:
        if one.unanswered:  # the first one's reason is the command's error
            lines += out.labelled("", not_asked(one.remote, one.unanswered.said)) if one is not silent else []
            continue
        if one.recipes:
            there = first_of((cut(name, LONGEST) for name in one.recipes), SHOWN)
            lines += out.labelled(
                "", f"{one.remote}: no record of a recipe named {asked!r}; there are records of {there}"
            )
        else:
            lines.append(f"{one.remote}: {out.count(len(one.records), 'record')}")
        if one.demands:
            lines += out.labelled("", f"used only if signed by somebody you trust: {one.demands}", 2)
        machines = any(row.instance for row in one.records)
        header = ["  key", "recipe", "model", *(["machine"] if machines else []), "size", "made", "by", "trust"]
        rows = [_row(row, one, machines=machines) for row in one.records]
        table = iter(out.table(rows, header, shrink=(1, 2, len(header) - 2, len(header) - 1)))
        head = next(table)
        by_compiler: dict[str, list[str]] = {}
        for row, line in zip(one.records, table, strict=True):
            by_compiler.setdefault(row.directory, [head]).append(line)
        for directory, below in by_compiler.items():
            lines += [directory, *below]
        if one.unread:
            lines += out.labelled("", f"and {one.unread:,} more that its index lacks: the next pushes add them", 2)
    return lines


def _row(row: RemoteRecord, where: RemoteContents, *, machines: bool) -> list[str]:
    who, _, _ = row.by.partition("@")
    trust = "no signer" if where.demands else "anybody's" if where.mode == "all" else "yours"
    if row.said_signers:
        trust = f"says {', '.join(row.said_signers)}"
    made = row.created[:10]
    names = [cut(name, LONGEST) for name in (row.recipe, row.model_type, *([row.instance or "-"] if machines else []))]
    return [f"  {row.key[:12]}", *names, out.size(row.bytes), made, cut(who, NAME), cut(trust, LONGEST)]
