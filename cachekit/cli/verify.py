"""`cachekit verify`: is the store what its records say?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "verify"
SHOWN = 20  # problems, for people

Quick = Annotated[bool, typer.Option("--quick", help="Only look which files there are and how large; hash nothing.")]
Repair = Annotated[bool, typer.Option("--repair", help="Bring back what is bad, from the shared caches too.")]


def command(
    quick: Quick = False,
    repair: Repair = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    trust_all: options.TrustAll = False,
) -> int:
    """Check every record and every file of the store. Exit 5 names what is bad.

    Digests, and compiled graphs. --repair takes good bytes from the shared caches, and exits 0 when all is good again.

    Example:  cachekit verify --quick

    Example:  cachekit verify --repair --cache local:rw,hf://team/cache:r
    """
    from cachekit.verbs.verify import verify

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, cache=cache, trust_all=trust_all)
    with options.session(config, None, NAME if repair else "", offline=offline) as session:
        done = verify(session, quick=quick, repair=repair)
    error = done.error()
    out.data(done.as_dict(), human, quiet_lines, fails=error is not None)
    if error is not None:
        raise error
    return 0


def quiet_lines(document: dict[str, Any]) -> str:
    """Keys of records that are bad still, for scripts."""
    return "\n".join(sorted({key for one in document["problems"] if not one["mended"] for key in one["keys"]}))


def human(document: dict[str, Any]) -> list[str]:
    """A check for people."""
    looked = "looked at" if document["quick"] else "hashed"
    problems = document["problems"]
    lines = [
        f"{out.count(document['records'], 'record')}, {out.count(document['blobs'], 'file')}, "
        f"{out.size(document['bytes'])} {looked} in {out.duration(document['seconds'])}: "
        + (f"{len(problems)} bad" if problems else "all good")
    ]
    repaired = [one for one in problems if one["mended"]]
    bad = [one for one in problems if not one["mended"]]
    for one in repaired[:SHOWN]:
        lines += out.labelled("repaired  ", f"{_name(one)}: from {one['mended']}")
    for one in bad[:SHOWN]:
        why = f"; not repaired: {one['left']}" if one["left"] else ""
        lines += out.labelled("bad       ", f"{_name(one)}: {one['reason']}{why}")
    if more := max(len(bad) - SHOWN, 0) + max(len(repaired) - SHOWN, 0):
        lines.append(f"          … and {more} more (--format json)")
    for note in document["notes"][:SHOWN]:
        lines += out.labelled("odd       ", note)
    if document["of_later_versions"]:
        lines.append(f"unknown   {out.count(document['of_later_versions'], 'record')} of a later cachekit")
    for name, words in (("orphans", "of no record"), ("garbage", "left by processes that are gone")):
        if document[name]["files"]:
            size = out.size(document[name]["bytes"])
            lines.append(f"spare     {out.count(document[name]['files'], 'file')}, {size}, {words}: cachekit gc")
    if document["quarantined"]["files"]:
        size = out.size(document["quarantined"]["bytes"])
        lines.append(f"aside     {out.count(document['quarantined']['files'], 'file')}, {size}, in quarantine")
    return lines


def _name(one: dict[str, Any]) -> str:
    more = f" and {len(one['keys']) - 1} more" if len(one["keys"]) > 1 else ""
    recipe = f" {one['recipe']}" if one["recipe"] else ""
    return f"{one['keys'][0][:12]}{more}{recipe} {one['file']}"
