"""`cachekit export`: write modules of the store as a Neuron cache."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out

NAME = "export"
SHOWN = 12  # lines, for people

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The cache's root; made if need be.", show_default=False)]
Records = Annotated[
    Optional[list[str]],
    typer.Option("--record", metavar="KEY", help="A record, by the first digits of its key. Repeatable."),
]
Compiler = Annotated[
    Optional[str], typer.Option("--all-of", metavar="DIR", help="All modules of a compiler: neuronxcc-<version>.")
]
Everything = Annotated[bool, typer.Option("--all", help="All modules of Neuron's.")]


def command(
    folder: Folder,
    record: Records = None,
    compiler: Compiler = None,
    everything: Everything = False,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Write modules of the store as a Neuron cache.

    Neuron and optimum-neuron read it. It may be in use: finished modules that are there stay, locked ones are left
    alone. Exit 5 if the store is damaged.

    Example:  cachekit export /var/tmp/neuron-compile-cache --record 3f2a91c0
    """
    from cachekit.actions.neuron_export import export_cache, failure
    from cachekit.compilers.neuron.fit import check
    from cachekit.errors import UsageError

    out.setup(format, quiet=quiet, verbose=verbose)
    if everything == bool(record or compiler):
        raise UsageError("what to export is not clear", hint="give --record KEY, --all-of DIR, or --all")
    target = options.cache_folder(folder)
    with options.session(options.load_config(home), None, NAME if not dry_run else "") as session:
        exported = export_cache(
            session.store, target, check, keys=record or (), compiler=compiler or "", dry_run=dry_run
        )
    problem = failure(exported)
    out.data(
        exported.as_dict(), human, lambda found: str(found["restored"] + found["replaced"]), fails=problem is not None
    )
    if problem:
        raise problem
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """An export for people."""
    would = "would be " if document["dry_run"] else ""
    written = document["restored"] + document["replaced"]
    wrote = f"{out.count(written, 'module')} {would}written, {out.size(document['bytes'])}"
    kept = f"{document['present']} there already, {document['left']} left alone"
    lines = [f"{document['folder']}: {wrote}; {kept}"]
    told = [
        f"{item['module']}: {item['outcome']}, {item['reason']}" for item in document["modules"] if item["reason"]
    ] + [f"{item['module']}: damaged in the store, {item['reason']}" for item in document["damaged"]]
    lines += [f"  {line}" for line in told[:SHOWN]]
    if len(told) > SHOWN:
        lines.append(f"  ... and {len(told) - SHOWN} more (--format json)")
    return lines
