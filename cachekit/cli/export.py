"""`cachekit store export`: write records of the store as one file, or as a Neuron cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Bundled, Exported

SHOWN = 12  # lines, for people

Goal = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="NAME.tar for a bundle, - for one on stdout, or a folder: the root of a Neuron cache.",
        show_default=False,
    ),
]
Names = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys from `cachekit store ls`.",
        autocompletion=options.complete_recipe_or_key,
    ),
]
AllOf = Annotated[
    Optional[str], typer.Option("--all-of", metavar="DIR", help="All records of a compiler: neuronxcc-<version>.")
]
Everything = Annotated[bool, typer.Option("--all", help="All records; for a Neuron cache, all of Neuron's.")]


@verb("home", "compiler", "machine", answers="Bundled, Exported", aside=lambda given: bool(given["goal"] == "-"))
def command(
    cache: Cache,
    goal: Goal,
    names: Names = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    all_of: AllOf = None,
    everything: Everything = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Write records as one file for a machine without a network, or as a Neuron cache.

    A name that ends in .tar is a bundle: records with all their compiled files, for `cachekit store import` elsewhere.
    Models, data and packages are not in it. Unpacked with `tar x` into an empty folder, it is a remote.

    A folder is a Neuron cache, for Neuron and optimum-neuron. It may be in use: finished modules in it stay, and locked
    ones are left alone.

    Exits 3 if a recipe is not in the store, and 5 if the store is damaged.

    Example:  cachekit store export bert.tar bert

    Example:  cachekit store export - bert | ssh box cachekit store import -

    Example:  cachekit store export /var/tmp/neuron-compile-cache 3f2a91c0
    """
    if everything + bool(names) + bool(all_of) != 1:
        raise UsageError(
            "several answers were given to what to export" if names or everything else "nothing to export was named",
            hint="name recipes or keys, or give --all-of DIR, or --all",
        )
    entries, folder = options.variants(names, overrides, tiny=tiny), all_of or ""
    if goal == "-" or api.is_bundle(goal):
        file = None if goal == "-" else goal
        bundled = cache.export_bundle(file, entries, all_of=folder, dry_run=dry_run)
        return Shown(bundled, bundle_human, lambda found: found.sha256)
    done = cache.export_neuron_cache(goal, entries, all_of=folder, dry_run=dry_run)
    return Shown(done, human, lambda found: str(found.restored + found.replaced))


def bundle_human(answer: Bundled) -> list[str]:
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
        name = answer.bundle.rpartition("/")[2]
        more = "" if answer.signed else " --trust-all"
        lines += [f"  sha256 {answer.sha256}", f"  next, on the other machine: cachekit store import {name}{more}"]
    return lines


def human(answer: Exported) -> list[str]:
    """An export as a Neuron cache for people."""
    would = "would be " if answer.dry_run else ""
    written = answer.restored + answer.replaced
    wrote = f"{out.count(written, 'module')} {would}written, {out.size(answer.bytes)}"
    kept = f"{answer.present} there already, {answer.left} left alone"
    lines = [f"{answer.folder}: {wrote}; {kept}"]
    told = [f"{item.module}: {item.outcome}, {item.reason}" for item in answer.modules if item.reason] + [
        f"{item.module}: damaged in the store, {item.reason}" for item in answer.damaged
    ]
    return [*lines, *out.some([f"  {line}" for line in told], SHOWN)]
