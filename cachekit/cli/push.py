"""`cachekit push`: put records of the store on the shared caches."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out

NAME = "push"
SHOWN = 12  # files, for people

Names = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys of `cachekit ls`; all records by default.",
        autocompletion=options.complete_recipe_or_key,
    ),
]
Pending = Annotated[bool, typer.Option("--pending", help="Only what could not be pushed before.")]
Public = Annotated[bool, typer.Option("--public", help="Push to a cache that anybody can read, too.")]
Replace = Annotated[bool, typer.Option("--replace", help="Put records in the place of others of the same keys.")]
Recheck = Annotated[
    bool, typer.Option("--recheck", help="Read what lies there, too, and put what is damaged there again.")
]


def command(
    names: Names = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    pending: Pending = False,
    public: Public = False,
    replace: Replace = False,
    recheck: Recheck = False,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
) -> int:
    """Put what is new in the store on the shared caches.

    On those that may be written. A cache that anybody can read needs --public, and what it would tell about this
    machine is shown first.

    Example:  cachekit push bert --cache local:rw,hf://team/cache:rw --dry-run
    """
    from cachekit.verbs.push_records import chosen, push_records

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler, cache=cache)
    with options.session(config, None, "" if dry_run else NAME, offline=offline) as session:
        options.need_chain(session.chain, "written")
        keys = [options.key_of(config, name, overrides, tiny=tiny) for name in names or ()]
        done = push_records(
            session,
            chosen(session, keys, pending=pending),
            public=public,
            replaces=replace,
            dry_run=dry_run,
            recheck=recheck,
        )
    document = {"dry_run": dry_run, "pushed": [one.as_dict() for one in done]}
    failure = next((one.pushed.error for one in done if one.pushed.error), None)
    out.data(
        document,
        human,
        lambda found: "\n".join(path for one in found["pushed"] for path in one["records"]),
        fails=failure is not None,
    )
    if failure is not None:
        raise failure
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """Pushes for people."""
    lines = []
    for one in document["pushed"]:
        if one["error"]:
            lines.append(f"{one['tier']}: failed: {one['error']['message']}")
            lines += [f"  would tell: {leak}" for leak in one["leaks"]]
            continue
        would = "would be " if document["dry_run"] else ""
        new = f"{out.count(len(one['records']), 'record')} and {out.count(len(one['files']), 'file')} {would}sent"
        lines.append(f"{one['tier']}: {new}, {out.size(one['bytes'])}; {one['unchanged']} there already")
        if document["dry_run"]:
            lines += [f"  tells: {leak}" for leak in one["leaks"]]
            lines += [f"  {out.size(file['bytes']):>9}  {file['path']}" for file in one["files"][:SHOWN]]
            if len(one["files"]) > SHOWN:
                lines.append(f"  ... and {len(one['files']) - SHOWN} more (--format json)")
            lines += [f"     record  {path}" for path in one["records"][:SHOWN]]
            if len(one["records"]) > SHOWN:
                lines.append(f"  ... and {len(one['records']) - SHOWN} more (--format json)")
            lines += [f"       card  {one['card']}"] if one["card"] else []
    return lines
