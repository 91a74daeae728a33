"""`cachekit store import`: take a bundle, or an existing Neuron cache, into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Imported, Unbundled

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
    taken. With --dry-run it is only compared and listed. It is taken if each record is signed by somebody whom
    `cachekit trust add` has named; else with --trust-all, whoever made it.

    A folder is a Neuron cache. It stays as it is, and may be in use. Failed, locked, unfinished or damaged modules
    are left out and reported. A cache that others can write to is taken only with --trust-all.

    Example:  cachekit store import bert.tar

    Example:  cachekit store import /var/tmp/neuron-compile-cache

    Example:  cachekit store import /tmp/neff_cache
    """
    if source == "-" or api.is_file(source):
        bundle = cache.import_bundle(None if source == "-" else source, dry_run=dry_run)
        return Shown(bundle, bundle_human, lambda found: "\n".join(record.key for record in found.records))
    done = cache.import_neuron_cache(source, dry_run=dry_run)
    return Shown(done, human, lambda found: str(found.added))


def bundle_human(answer: Unbundled) -> list[str]:
    """An import of a bundle for people."""
    would = "would be " if answer.dry_run else ""
    words = {
        "added": f"{would}added",
        "merged": f"{would}added to the store's own",
        "present": "in the store already",
        "kept": "another build is in the store, which stays",
    }
    took = "" if answer.dry_run else f" in {out.duration(answer.seconds)}"
    what = f"{out.count(len(answer.records), 'record')}, file size {out.size(answer.size)}, whole"
    refused = any(record.untrusted for record in answer.records)
    stored = "nothing would be stored" if refused else f"{out.size(answer.bytes)} {would}stored{took}"
    lines = [f"{answer.bundle}: {what}; {stored}"]
    records = []
    for record in answer.records:
        state = "would be refused" if record.untrusted else words[record.state]
        records.append(f"  {record.key[:16]}  {out.size(record.bytes):>9}  {record.recipe}: {state}")
        why = f"it is {record.untrusted}; `cachekit trust add` its signer, or pass --trust-all"
        records += out.labelled("    ", why) if record.untrusted else []
    return [*lines, *out.some(records, SHOWN), f"  sha256 {answer.sha256}"]


def human(answer: Imported) -> list[str]:
    """An import of a Neuron cache for people."""
    would = "would be " if answer.dry_run else ""
    added = f"{out.count(answer.added, 'module')} {would}added, {out.size(answer.bytes)}"
    rest = f"{answer.known} known already, {len(answer.left)} left"
    lines = [f"{answer.folder}: {added}; {rest}"]
    for record in answer.records:
        counts = f"{out.count(len(record.added), 'module')} {would}added, {len(record.known)} known"
        key = f", key {record.key[:16]}" if record.key else ""
        lines.append(f"  {record.compiler}: {counts}{key}")
    lines += _some("left", [f"{item.module}: {item.reason}" for item in answer.left])
    lines += _some("not modules", [f"{item.path}: {item.reason}" for item in answer.unknown])
    return lines


def _some(title: str, lines: list[str]) -> list[str]:
    return [f"  {title}:", *out.some([f"    {line}" for line in lines], SHOWN, 4)] if lines else []
