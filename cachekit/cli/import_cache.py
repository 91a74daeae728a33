"""`cachekit import`: take an existing Neuron cache into the store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "import"
SHOWN = 12  # lines of each kind, for people

Folder = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A cache's root, or a neuronxcc-<version> folder in it.", show_default=False),
]


def command(
    folder: Folder,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Take the finished modules of an existing Neuron cache.

    The cache stays as it is, and may be in use. What is failed, locked, unfinished or damaged is left, and reported.

    Example:  cachekit import /var/tmp/neuron-compile-cache
    """
    from cachekit.actions.neuron_import import import_cache
    from cachekit.compilers.neuron.fit import check

    out.setup(format, quiet=quiet, verbose=verbose)
    source = options.cache_folder(folder)
    verb = NAME if not dry_run else ""
    with options.session(options.load_config(home), None, verb) as session:
        show = session.journal.show
        imported = import_cache(session.store, source, check, dry_run=dry_run, tell=lambda event: show(**event))
        session.journal.emit("import.end", **imported.as_dict())
    out.data(imported.as_dict(), human, lambda found: str(found["added"]))
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """An import for people."""
    would = "would be " if document["dry_run"] else ""
    added = f"{out.count(document['added'], 'module')} {would}added, {out.size(document['bytes'])}"
    rest = f"{document['known']} known already, {len(document['left'])} left"
    lines = [f"{document['folder']}: {added}; {rest}"]
    for record in document["records"]:
        counts = f"{out.count(len(record['added']), 'module')} {would}added, {len(record['known'])} known"
        key = f", key {record['key'][:16]}" if record["key"] else ""
        lines.append(f"  {record['compiler']}: {counts}{key}")
    lines += _some("left", [f"{item['module']}: {item['reason']}" for item in document["left"]])
    lines += _some("not modules", [f"{item['path']}: {item['reason']}" for item in document["strangers"]])
    return lines


def _some(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"    ... and {len(lines) - SHOWN} more (--format json)"] if len(lines) > SHOWN else []
    return [f"  {title}:", *(f"    {line}" for line in lines[:SHOWN]), *more]
