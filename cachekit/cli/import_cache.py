"""`cachekit import`: take a bundle, or an existing Neuron cache, into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit.cli import options, out

if TYPE_CHECKING:
    from pathlib import Path

    from cachekit.config import Config

NAME = "import"
SHOWN = 12  # lines of each kind, for people

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A bundle, - one on stdin, or a Neuron cache: its root, or a neuronxcc-<version> folder in it.",
        show_default=False,
    ),
]


def command(
    source: Source,
    dry_run: options.DryRun = False,
    trust_all: options.TrustAll = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Take a bundle of `cachekit export`, or the finished modules of a Neuron cache.

    A file is a bundle. Every byte of it is compared before any of it becomes visible: exit 5 means that nothing was
    taken. With --dry-run it is compared and listed. Nothing in it says who made it: it is taken with --trust-all only.

    A folder is a Neuron cache. It stays as it is, and may be in use. What is failed, locked, unfinished or damaged is
    left, and reported. One that others can write to is taken with --trust-all only.

    Example:  cachekit import bert.tar --trust-all

    Example:  cachekit import /var/tmp/neuron-compile-cache

    Example:  cachekit import /tmp/neff_cache
    """
    from cachekit.disk import local_folder

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, trust_all=trust_all)
    if source == "-":
        return _bundle(config, None, dry_run=dry_run)
    path = local_folder(source)
    if path.exists() and not path.is_dir():
        return _bundle(config, path, dry_run=dry_run)
    from cachekit.errors import UsageError
    from cachekit.verbs.import_cache import import_into

    if path.suffix == ".tar" and not path.exists():
        raise UsageError(f"there is no file {path}", hint="name a bundle of `cachekit export`")
    with options.session(config, None, NAME if not dry_run else "") as session:
        imported = import_into(session, path, dry_run=dry_run)
    out.data(imported.as_dict(), human, lambda found: str(found["added"]))
    return 0


def _bundle(config: Config, path: Path | None, *, dry_run: bool) -> int:
    from cachekit.verbs.import_bundle import import_bundle, opened

    with opened(path) as (source, name), options.session(config, None, NAME if not dry_run else "") as session:
        imported = import_bundle(session, source, name, dry_run=dry_run)
    out.data(imported.as_dict(), bundle_human, lambda found: "\n".join(record["key"] for record in found["records"]))
    return 0


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
    what = f"{out.count(len(document['records']), 'record')}, {out.size(document['size'])}, whole"
    lines = [f"{document['bundle']}: {what}; {out.size(document['bytes'])} {would}stored{took}"]
    lines += [
        f"  {record['key'][:16]}  {out.size(record['bytes']):>9}  {record['recipe']}: {words[record['state']]}"
        for record in document["records"][:SHOWN]
    ]
    if len(document["records"]) > SHOWN:
        lines.append(f"  ... and {len(document['records']) - SHOWN} more (--format json)")
    return [*lines, f"  sha256 {document['sha256']}"]


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
    lines += _some("not modules", [f"{item['path']}: {item['reason']}" for item in document["strangers"]])
    return lines


def _some(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"    ... and {len(lines) - SHOWN} more (--format json)"] if len(lines) > SHOWN else []
    return [f"  {title}:", *(f"    {line}" for line in lines[:SHOWN]), *more]
