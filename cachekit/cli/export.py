"""`cachekit export`: write records of the store as one file, or as a Neuron cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out

if TYPE_CHECKING:
    from pathlib import Path

    from cachekit.store import Store

NAME = "export"
SHOWN = 12  # lines, for people
ARCHIVES = frozenset({".tar", ".gz", ".tgz", ".xz", ".zst", ".bz2", ".zip"})  # of which a bundle is none but the first

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="NAME.tar is a bundle, - one on stdout, a folder the root of a Neuron cache.",
        show_default=False,
    ),
]
Names = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE|KEY...",
        help="Recipes, or keys of `cachekit ls`.",
        autocompletion=options.complete_recipe_or_key,
    ),
]
AllOf = Annotated[
    Optional[str], typer.Option("--all-of", metavar="DIR", help="All records of a compiler: neuronxcc-<version>.")
]
Everything = Annotated[bool, typer.Option("--all", help="All records; in a Neuron cache all of Neuron's.")]


def command(
    target: Target,
    names: Names = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    all_of: AllOf = None,
    everything: Everything = False,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    toolchain: options.Toolchain = None,
    chip: options.Target = None,
    instance: options.Instance = None,
) -> int:
    """Write records as one file for a machine without a network, or as a Neuron cache.

    A name that ends in .tar is a bundle: records with all their compiled files, for `cachekit import` there. Models,
    data and packages are not in it. Unpacked with `tar x` into an empty folder it is a shared cache.

    A folder is a Neuron cache, for Neuron and optimum-neuron. It may be in use: finished modules that are there stay,
    locked ones are left alone.

    Exit 3 where a recipe is not in the store, 5 where the store is damaged.

    Example:  cachekit export bert.tar bert

    Example:  cachekit export - bert | ssh box cachekit import -

    Example:  cachekit export /var/tmp/neuron-compile-cache 3f2a91c0
    """
    from cachekit.disk import local_folder
    from cachekit.errors import UsageError
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.export_bundle import check_warm, chosen, export_bundle

    out.setup(format, quiet=quiet, verbose=verbose, aside=target == "-")
    if everything + bool(names) + bool(all_of) != 1:
        raise UsageError("what to export is not clear", hint="name recipes or keys, or give --all-of DIR, or --all")
    path = local_folder(target)
    if path.suffix != ".tar" and path.suffix.lower() in ARCHIVES and not path.is_dir():
        raise UsageError(
            f"{target} would be a folder", cause="a bundle's name ends in .tar", hint="cachekit export NAME.tar ..."
        )
    config = options.load_config(home, compiler)
    machine = Elsewhere(toolchain or "", chip or "", instance or "", config.compiler)
    with options.session(config, None, "") as session:
        keys = []
        for name in names or ():
            key = options.key_of(config, name, overrides, tiny=tiny, machine=machine)
            if key != name.lower():
                recipe = options.named(name, overrides, home, compiler, tiny=tiny)
                check_warm(session.store, key, recipe, options.machine_words(toolchain, chip, instance))
            keys.append(key)
        if target != "-" and (path.is_dir() or path.suffix != ".tar"):
            return _cache(session.store, path, keys, all_of, dry_run=dry_run)
        records = chosen(session.store, keys, all_of or "")
        bundled = export_bundle(session, records, None if target == "-" else path, dry_run=dry_run)
    out.data(bundled.as_dict(), bundle_human, lambda found: str(found["sha256"]))
    return 0


def _cache(store: Store, folder: Path, keys: list[str], all_of: str | None, *, dry_run: bool) -> int:
    from cachekit.verbs.export_cache import export_cache

    exported = export_cache(store, folder, keys=keys, compiler=all_of or "", dry_run=dry_run)
    problem = exported.error()
    out.data(
        exported.as_dict(), human, lambda found: str(found["restored"] + found["replaced"]), fails=problem is not None
    )
    if problem:
        raise problem
    return 0


def bundle_human(document: dict[str, Any]) -> list[str]:
    """A bundle for people."""
    would = "would be written" if document["dry_run"] else f"in {out.duration(document['seconds'])}"
    files = out.count(len(document["files"]) - len(document["records"]), "file")
    what = f"{out.count(len(document['records']), 'record')}, {files}, {out.size(document['bytes'])}"
    lines = [f"{document['bundle']}: {what}; {would}"]
    lines += [
        f"  {record['key'][:16]}  {out.size(record['bytes']):>9}  {record['recipe']}, {record['directory']}"
        for record in document["records"][:SHOWN]
    ]
    if len(document["records"]) > SHOWN:
        lines.append(f"  ... and {len(document['records']) - SHOWN} more (--format json)")
    if document["sha256"]:
        name = document["bundle"].rpartition("/")[2]
        lines += [f"  sha256 {document['sha256']}", f"  there: cachekit import {name} --trust-all"]
    return lines


def human(document: dict[str, Any]) -> list[str]:
    """An export as a Neuron cache for people."""
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
