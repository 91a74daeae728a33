"""`cachekit store lock`: write the exact artifacts of recipes into a file of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import typed

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import CheckedLock, LockedRecipe, LockFile

SHOWN = 8  # changes of one recipe, for people

Check = Annotated[bool, typer.Option("--check", help="Only say whether recipes have changed since; exit 3 if so.")]


@verb("home", "compiler", "cache", "trust", "machine", answers="LockFile, CheckedLock")
def command(
    cache: Cache,
    recipes: options.Recipes = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    check: Check = False,
    file: options.LockFile = None,
    dry_run: options.DryRun = False,
) -> Shown:
    """Write the exact artifacts of recipes into cachekit.lock.

    Keep the file with the project's code. It has each key, its ingredients, and every compiled file with its SHA-256,
    as they are now in the store or on a remote. `cachekit pull --locked` then gives exactly these bytes, or exits 5.
    Users and hosts are not in the file. Exits 3 if a recipe is not warm. Without RECIPE, locks again what the file has.

    Example:  cachekit store lock bert

    Example:  cachekit store lock bert --target trn1 --toolchain neuron-2.31

    Example:  cachekit store lock --check
    """
    if check:
        checked = cache.check_lock(*(recipes or ()), lock_file=file)
        return Shown(checked, check_human, lambda _: "\n".join(one.recipe for one in checked.changed))
    if not recipes and (overrides or tiny):
        option = "--set" if overrides else "--tiny"
        raise UsageError(
            f"{option} without a recipe", hint=f"name the recipe that it changes: cachekit store lock bert {option} …"
        )
    done = cache.lock(*options.variants(recipes, overrides, tiny=tiny), lock_file=file, dry_run=dry_run)
    told = [f"no remote has {one.recipe}: others cannot pull it before `cachekit push`" for one in done.unshared]
    return Shown(done, human, lambda found: "\n".join(one.key for one in found.locked), warnings=tuple(told))


def human(answer: LockFile) -> list[str]:
    """A lock for people."""
    did = ("would write" if answer.dry_run else "wrote") if answer.changed else "nothing changes in"
    kept = f"; {answer.kept} more in it" if answer.kept else ""
    lines = [f"{did} {answer.file}: {out.count(len(answer.locked), 'recipe')} locked{kept}"]
    for one in answer.locked:
        where = f"on {one.remote}{' at ' + one.revision[:12] if one.revision else ''}"
        where = "in the local store" if one.remote == "local" else where
        what = f"{out.count(one.modules, 'module')}, {out.size(one.bytes)}, key {one.key[:16]}"
        lines += [f"  {_name(one)}: {what}", f"    {one.directory}, {where}"]
    return lines


def check_human(answer: CheckedLock) -> list[str]:
    """A check for people: what changed, by recipe."""
    from cachekit.cli.plan import change_text

    lines = []
    for one in answer.checked:
        if one.status == "fits":
            lines.append(f"{_name(one)}: unchanged  key {one.key[:16]}")
            continue
        lines.append(f"{_name(one)}: changed  key {one.key[:16]} → {one.key_now[:16]}")
        lines += out.some([f"  {change_text(change)}" for change in one.changes], SHOWN)
    return lines


def _name(one: LockedRecipe) -> str:
    return typed(one.recipe, one.set, {}, tiny=one.tiny)
