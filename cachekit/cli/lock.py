"""`cachekit lock`: pin the exact artifacts of recipes in a file of the project."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from cachekit.cli import options, out

NAME = "lock"
SHOWN = 8  # changes of one recipe, for people

Recipes = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE...",
        help="Recipes; by default all that are locked already.",
        autocompletion=options.complete_recipe,
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Only say whether recipes changed since: exit 3 if so.")]
File = Annotated[
    Optional[Path],
    typer.Option("--lock-file", metavar="FILE", help="Another lock file than the nearest cachekit.lock."),
]


def command(
    recipes: Recipes = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    check: Check = False,
    file: File = None,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    trust_all: options.TrustAll = False,
    toolchain: options.Toolchain = None,
    target: options.Target = None,
    instance: options.Instance = None,
) -> int:
    """Pin the exact artifacts of recipes in cachekit.lock.

    The file goes with the project's code: key, ingredients, and every compiled file with its SHA-256, as they are in
    the store or on a shared cache now. `cachekit pull --locked` then gives exactly these bytes, or exits 5. Users and
    hosts are not in it. Exit 3 where a recipe is not warm.

    Example:  cachekit lock bert

    Example:  cachekit lock bert --target trn1 --toolchain neuron-2.31

    Example:  cachekit lock --check
    """
    from cachekit.store.lock_file import nearest
    from cachekit.verbs.lock_file import check_lock, lock_recipes

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler, cache=cache, trust_all=trust_all)
    path, opening = file or nearest(), partial(options.session, config, verb="", offline=offline)
    if check:
        checked = check_lock(opening, path, recipes or [], compiler=config.compiler)
        stale = "\n".join(one.locked.recipe for one in checked.changed)
        out.data(checked.as_dict(), check_human, lambda _: stale, fails=not checked.good)
        if error := checked.error():
            raise error
        return 0
    done = lock_recipes(
        *(opening, path, recipes or [], overrides or []),
        tiny=tiny,
        dry_run=dry_run,
        compiler=config.compiler,
        toolchain=toolchain or "",
        target=target or "",
        instance=instance or "",
    )
    out.data(done.as_dict(), human, lambda found: "\n".join(one["key"] for one in found["locked"]))
    for entry in done.unshared:
        out.warning(f"no shared cache has {entry.recipe}: others cannot pull it before `cachekit push`")
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """A lock for people."""
    would = "would be " if document["dry_run"] else ""
    did = f"{would}written" if document["changed"] else "up to date"
    kept = f"; {document['kept']} more in it" if document["kept"] else ""
    lines = [f"{document['file']}: {out.count(len(document['locked']), 'recipe')} locked, {did}{kept}"]
    for one in document["locked"]:
        where = f"{one['tier']}{' at ' + one['revision'][:12] if one['revision'] else ''}"
        what = f"{out.count(one['modules'], 'module')}, {out.size(one['bytes'])}, key {one['key'][:16]}"
        lines += [f"  {_name(one)}: {what}", f"    {one['directory']}, on {where}"]
    return lines


def check_human(document: dict[str, Any]) -> list[str]:
    """A check for people: what changed, by recipe."""
    from cachekit.cli.plan_text import change_text

    lines = []
    for one in document["checked"]:
        if one["status"] == "fits":
            lines.append(f"{_name(one)}: fits  key {one['key'][:16]}")
            continue
        lines.append(f"{_name(one)}: changed  key {one['key'][:16]} → {one['key_now'][:16]}")
        lines += [f"  {change_text(change)}" for change in one["changes"][:SHOWN]]
        if len(one["changes"]) > SHOWN:
            lines.append(f"  ... and {len(one['changes']) - SHOWN} more (--format json)")
    return lines


def _name(one: dict[str, Any]) -> str:
    from cachekit.store.lock_file import words

    return words(one["recipe"], one["set"], tiny=one["tiny"])
