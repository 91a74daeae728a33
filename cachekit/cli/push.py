"""`cachekit push`: put records of the store on the remotes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Pushed, Pushes

SHOWN = 12  # files, for people

Pending = Annotated[bool, typer.Option("--pending", help="Push only what could not be pushed before.")]
Public = Annotated[bool, typer.Option("--public", help="Also push to a remote that anybody can read.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace other records of the same keys.")]
Recheck = Annotated[bool, typer.Option("--recheck", help="Also read what is there, and push again what is damaged.")]


@verb("home", "compiler", "cache", answers="Pushes", tells=["push.failed"])
def command(
    cache: Cache,
    names: options.RecipesOrKeys = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    pending: Pending = False,
    public: Public = False,
    replace: Replace = False,
    recheck: Recheck = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Send new records of the store to the remotes.

    Pushes to every writable remote: all records, where none is named. A remote that anybody can read needs --public;
    what the records reveal about this machine is shown first.

    Example:  cachekit push bert --cache local:rw,hf://team/cache:rw --dry-run
    """
    done = cache.push(
        options.variants(names, overrides, tiny=tiny),
        pending=pending,
        public=public,
        replace=replace,
        recheck=recheck,
        dry_run=dry_run,
    )
    return Shown(
        done,
        human,
        lambda found: "\n".join(path for one in found.pushed for path in one.records),
    )


def human(answer: Pushes) -> list[str]:
    """Pushes for people."""
    lines = []
    for one in answer.pushed:
        if one.error:
            told = one.refused or one.error is answer.error()  # below, or as the error that follows
            lines += out.labelled("", f"{one.remote}: nothing sent" if told else out.about(one.remote, one.error.said))
            lines += _refused(one)
            lines += [f"  would reveal: {leak}" for leak in one.leaks]
            continue
        would = "would be " if answer.dry_run else ""
        done = []
        if one.records or one.files:
            new = f"{out.count(len(one.records), 'record')} and {out.count(len(one.files), 'file')}"
            done.append(f"{new} {would}sent, {out.size(one.bytes)}")
        if one.signatures:
            done.append(f"{out.count(len(one.signatures), 'record')} {would}signed")
        if one.unchanged:
            done.append(f"{out.count(one.unchanged, 'record')} already there")
        lines.append(f"{one.remote}: {'; '.join(done) or 'nothing to send'}")
        lines += _refused(one)
        if answer.dry_run:
            lines += [f"  reveals: {leak}" for leak in one.leaks]
            lines += out.some([f"  {out.size(file.bytes):>9}  {file.path}" for file in one.files], SHOWN)
            lines += out.some([f"     record  {path}" for path in one.records], SHOWN)
            lines += out.some([f"  signature  {path}" for path in one.signatures], SHOWN)
            lines += [f"       card  {one.card}"] if one.card else []
            lines += [f"      index  {one.index}"] if one.index else []
    return lines


def _refused(one: Pushed) -> list[str]:
    """The records that are not given to others."""
    refused = out.some([f"{it.recipe} ({it.key[:12]}): {it.reason}" for it in one.refused], SHOWN)
    return [line for words in refused for line in out.labelled("  held back: ", words)]
