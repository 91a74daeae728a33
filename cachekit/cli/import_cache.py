"""`cachekit store import`: take a bundle, or an existing Neuron cache, into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache

SHOWN = 12  # lines of each kind, for people

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A bundle, - for one on stdin, or a Neuron cache: its root, or a neuronxcc-<version> folder in it.",
        show_default=False,
    ),
]


@verb("home", "trust", answers="Unbundled, Imported")
def command(cache: Cache, source: Source, dry_run: options.DryRun = False) -> Shown:
    """Take a bundle from `cachekit store export`, or the finished modules of a Neuron cache.

    A file is a bundle. Every byte of it is compared before any of it becomes visible: exit 5 means that nothing was
    taken. With --dry-run it is only compared and listed. Nothing in it says who made it, so it is taken only with
    --trust-all.

    A folder is a Neuron cache. It stays as it is, and may be in use. Failed, locked, unfinished or damaged modules
    are left out and reported. A cache that others can write to is taken only with --trust-all.

    Example:  cachekit store import bert.tar --trust-all

    Example:  cachekit store import /var/tmp/neuron-compile-cache

    Example:  cachekit store import /tmp/neff_cache
    """
    if source == "-" or api.is_file(source):
        bundle = cache.import_bundle(None if source == "-" else source, dry_run=dry_run)
        return Shown(bundle, bundle_human, lambda found: "\n".join(record["key"] for record in found["records"]))
    done = cache.import_neuron_cache(source, dry_run=dry_run)
    return Shown(done, human, lambda found: str(found["added"]))


def bundle_human(document: dict[str, Any]) -> list[str]:
    """An import of a bundle for people."""
    would = "would be " if document["dry_run"] else ""
    words = {
        "added": f"{would}added",
        "merged": f"{would}added to the store's own",
        "present": "in the store already",
        "kept": "another build is in the store, which stays",
    }
    took = "" if document["dry_run"] else f" in {out.duration(document['seconds'])}"
    what = f"{out.count(len(document['records']), 'record')}, file size {out.size(document['size'])}, whole"
    lines = [f"{document['bundle']}: {what}; {out.size(document['bytes'])} {would}stored{took}"]
    records = [
        f"  {record['key'][:16]}  {out.size(record['bytes']):>9}  {record['recipe']}: {words[record['state']]}"
        for record in document["records"]
    ]
    return [*lines, *out.some(records, SHOWN), f"  sha256 {document['sha256']}"]


def human(document: dict[str, Any]) -> list[str]:
    """An import of a Neuron cache for people."""
    would = "would be " if document["dry_run"] else ""
    added = f"{out.count(document['added'], 'module')} {would}added, {out.size(document['bytes'])}"
    rest = f"{document['known']} known already, {len(document['left'])} left"
    lines = [f"{document['folder']}: {added}; {rest}"]
    for record in document["records"]:
        counts = f"{out.count(len(record['added']), 'module')} {would}added, {len(record['known'])} known"
        key = f", key {record['key'][:16]}" if record["key"] else ""
        lines.append(f"  {record['compiler']}: {counts}{key}")
    lines += _some("left", [f"{item['module']}: {item['reason']}" for item in document["left"]])
    lines += _some("not modules", [f"{item['path']}: {item['reason']}" for item in document["unknown"]])
    return lines


def _some(title: str, lines: list[str]) -> list[str]:
    return [f"  {title}:", *out.some([f"    {line}" for line in lines], SHOWN, 4)] if lines else []
