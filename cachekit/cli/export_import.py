"""`cachekit store export` and `import`: records as one file, or as a Neuron cache, on their way to another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import argument

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Bundled, Exported, Imported, Unbundled

SHOWN = 12  # lines of each kind, for people

Goal = Annotated[
    str,
    typer.Argument(
        metavar="DESTINATION",
        help="NAME.tar for a bundle, - for one on stdout, or a folder: the root of a Neuron cache.",
        show_default=False,
    ),
]
AllOf = Annotated[
    Optional[str], typer.Option("--all-of", metavar="DIR", help="All records of a compiler: neuronxcc-<version>.")
]
Everything = Annotated[bool, typer.Option("--all", help="All records; for a Neuron cache, all of Neuron's.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A bundle, - for one on stdin, or a Neuron cache: its root, or a neuronxcc-<version> folder in it.",
        show_default=False,
    ),
]


@verb("home", "compiler", "machine", answers="Bundled, Exported", aside=lambda given: bool(given["goal"] == "-"))
def export(
    cache: Cache,
    goal: Goal,
    names: options.RecipesOrKeys = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    all_of: AllOf = None,
    everything: Everything = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Write records as one file for a machine without a network, or as a Neuron cache.

    A name that ends in .tar is a bundle: records with all their compiled files, for `cachekit store import` elsewhere.
    Models, data and packages are not in it. `tar x` into an empty folder makes that folder a remote.

    A folder is a Neuron cache, for Neuron and optimum-neuron. It may be in use: finished modules in it stay, and locked
    ones are left alone.

    Exits 3 if a recipe is not in the store, and 5 if the store is damaged.

    Example:  cachekit store export bert.tar bert

    Example:  cachekit store export - bert | ssh box cachekit store import -

    Example:  cachekit store export /var/tmp/neuron-compile-cache 3f2a91c0
    """
    if everything + bool(names) + bool(all_of) != 1:
        raise UsageError(
            "only one of recipes or keys, --all and --all-of can be given"
            if names or everything
            else "nothing to export was named",
            hint="name recipes or keys, or give --all-of DIR, or --all",
        )
    entries, folder = options.variants(names, overrides, tiny=tiny), all_of or ""
    if goal == "-" or api.is_bundle(goal):
        file = None if goal == "-" else goal
        made = cache.export_bundle(file, entries, all_of=folder, dry_run=dry_run)
        return Shown(made, bundled, lambda found: found.sha256)
    done = cache.export_neuron_cache(goal, entries, all_of=folder, dry_run=dry_run)
    return Shown(done, exported, lambda found: str(found.restored + found.replaced))


def bundled(answer: Bundled) -> list[str]:
    """A bundle for people."""
    took = "" if answer.dry_run else f", in {out.duration(answer.seconds)}"
    files = out.count(len(answer.files) - len(answer.records), "file")
    what = f"{out.count(len(answer.records), 'record')}, {files}, {out.size(answer.size or answer.bytes)}{took}"
    lines = [f"{'would write' if answer.dry_run else 'wrote'} {answer.bundle}: {what}"]
    records = [
        f"  {record.key[:16]}  {out.size(record.bytes):>9}  {record.recipe}, {record.directory}"
        for record in answer.records
    ]
    lines += out.some(records, SHOWN)
    if answer.sha256:
        name = argument(answer.bundle.rpartition("/")[2])
        more = "" if answer.signed else " --trust-all"
        lines += [
            f"  sha256 {answer.sha256}",
            f"  next, on the other machine: cachekit store import {name}{more}",
        ]
    return lines


def exported(answer: Exported) -> list[str]:
    """An export as a Neuron cache for people."""
    would = "would be " if answer.dry_run else ""
    written = answer.restored + answer.replaced
    wrote = f"{out.count(written, 'module')} {would}written, {out.size(answer.bytes)}"
    kept = f"{answer.present} already there, {answer.left} left alone"
    lines = [f"{answer.folder}: {wrote}; {kept}"]
    told = [f"{item.module}: {item.outcome}, {item.reason}" for item in answer.modules if item.reason] + [
        f"{item.module}: damaged in the store, {item.reason}" for item in answer.damaged
    ]
    return [*lines, *out.some([f"  {line}" for line in told], SHOWN)]


@verb("home", "trust", answers="Unbundled, Imported")
def take(cache: Cache, source: Source, dry_run: options.DryRun = False) -> Shown:
    """Import a bundle from `cachekit store export`, or the finished modules of a Neuron cache.

    A file is a bundle. Every byte of it is checked before any of it becomes visible: exit 5 means that nothing was
    imported. With --dry-run, the bundle is only checked and listed. A bundle is imported if each record is signed by
    somebody whom `cachekit trust add` has named; any other bundle needs --trust-all.

    A folder is a Neuron cache. It stays as it is, and may be in use. Failed, locked, unfinished or damaged modules
    are left out and reported. A cache that others can write to is imported only with --trust-all.

    Example:  cachekit store import bert.tar

    Example:  cachekit store import /var/tmp/neuron-compile-cache

    Example:  cachekit store import /tmp/neff_cache
    """
    if source == "-" or api.is_file(source):
        bundle = cache.import_bundle(None if source == "-" else source, dry_run=dry_run)
        return Shown(bundle, unbundled, lambda found: "\n".join(record.key for record in found.records))
    done = cache.import_neuron_cache(source, dry_run=dry_run)
    return Shown(done, imported, lambda found: str(found.added))


def unbundled(answer: Unbundled) -> list[str]:
    """An import of a bundle for people."""
    would = "would be " if answer.dry_run else ""
    words = {
        "added": f"{would}added",
        "merged": f"{would}added to the store's own",
        "present": "already in the store",
        "kept": "the store has another build, and keeps it",
    }
    took = "" if answer.dry_run else f" in {out.duration(answer.seconds)}"
    what = f"{out.count(len(answer.records), 'record')}, file size {out.size(answer.size)}, complete"
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


def imported(answer: Imported) -> list[str]:
    """An import of a Neuron cache for people."""
    would = "would be " if answer.dry_run else ""
    added = f"{out.count(answer.added, 'module')} {would}added, {out.size(answer.bytes)}"
    rest = f"{answer.known} already known, {len(answer.left)} left out"
    lines = [f"{answer.folder}: {added}; {rest}"]
    for record in answer.records:
        counts = f"{out.count(len(record.added), 'module')} {would}added, {len(record.known)} known"
        key = f", key {record.key[:16]}" if record.key else ""
        lines.append(f"  {record.compiler}: {counts}{key}")
    lines += _some("left out", [(item.module, item.reason) for item in answer.left])
    lines += _some("not modules", [(str(item.path), item.reason) for item in answer.unknown])
    return lines


def _some(title: str, items: list[tuple[str, str]]) -> list[str]:
    told = [line for name, reason in items[:SHOWN] for line in (f"    {name}", *out.labelled("      ", reason))]
    return [f"  {title}:", *told, *out.more(len(items) - SHOWN, 4)] if items else []
