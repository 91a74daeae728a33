"""`cachekit lock`: pin the exact artifacts of recipes in a file of the project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out

if TYPE_CHECKING:
    from cachekit.actions.prepare import Prepared
    from cachekit.actions.session import Session
    from cachekit.config import Config
    from cachekit.lockfile import Locked

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
    from cachekit import lockfile
    from cachekit.actions.lock import lock, summary
    from cachekit.errors import UsageError
    from cachekit.tiers.layout import LOCAL

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler, cache=cache)
    path = file or lockfile.nearest()
    held = lockfile.read(path) if path.exists() else []
    if check:
        return _check(config, path, chosen(held, recipes or [], path), offline=offline)
    if recipes:
        names = (in_file(name, path) for name in recipes)
        changes = tuple(overrides or ())
        wanted = [
            _Wanted(name, changes, tiny, toolchain or "", target or "", instance or "") for name in dict.fromkeys(names)
        ]
    elif overrides or tiny:
        option = "--set" if overrides else "--tiny"
        raise UsageError(
            f"{option} without a recipe", hint=f"name the recipe that it changes: cachekit lock bert {option} …"
        )
    else:
        wanted = [
            _Wanted(
                *(entry.recipe, entry.overrides, entry.tiny, toolchain or entry.toolchain, target or ""),
                instance or ("" if target else entry.instance),
            )
            for entry in chosen(held, [], path)
        ]
    fresh = []
    for one in wanted:
        with _opened(config, path, one, offline=offline) as (session, prepared, machine):
            fresh.append(
                lock(
                    *(session, prepared, one.recipe, one.overrides),
                    tiny=one.tiny,
                    toolchain=one.toolchain,
                    instance=machine,
                )
            )
    anew = {entry.name for entry in fresh}
    everything = [entry for entry in held if entry.name not in anew] + fresh
    changed = lockfile.text(everything) != (lockfile.text(held) if held else "")
    if not dry_run:
        lockfile.write(path, everything)
    document = {
        "file": str(path),
        "changed": changed,
        "dry_run": dry_run,
        "locked": [summary(entry) for entry in fresh],
        "kept": len(everything) - len(fresh),
    }
    out.data(document, human, lambda found: "\n".join(one["key"] for one in found["locked"]))
    for entry in fresh:
        if entry.tier == LOCAL:
            out.warning(f"no shared cache has {entry.recipe}: others cannot pull it before `cachekit push`")
    return 0


@dataclass(frozen=True)
class _Wanted:
    """A recipe, and the machine that it is locked for; empty is this one."""

    recipe: str
    overrides: tuple[str, ...]
    tiny: bool
    toolchain: str
    target: str
    instance: str


@contextmanager
def _opened(config: Config, path: Path, one: _Wanted, *, offline: bool) -> Iterator[tuple[Session, Prepared, str]]:
    """With the type of another machine, as it goes into the file."""
    from cachekit.actions.elsewhere import Elsewhere
    from cachekit.actions.prepare import prepare

    recipe, changes = from_here(one.recipe, path), list(one.overrides)
    loaded, _ = options.load_recipe(recipe, changes, tiny=one.tiny)
    machine = Elsewhere(one.toolchain, one.target, one.instance, config.compiler).machine(loaded, guess=False)
    with options.session(config, loaded, "", offline=offline, toolchain=one.toolchain, instance=machine) as session:
        yield session, prepare(loaded, session.compiler, options.named(recipe, changes, tiny=one.tiny)), machine


def in_file(name: str, path: Path) -> str:
    """A recipe as it stands in a lock file: a path is one from the file's folder, wherever it is named."""
    from cachekit import zoo
    from cachekit.errors import UnknownNameError

    given = Path(name)
    try:
        if given.is_absolute() or name.startswith("~") or zoo.recipe_path(name) != given:
            return name
    except UnknownNameError:  # told by whoever wants to read it
        return name
    return os.path.relpath(given.absolute(), path.absolute().parent)


def from_here(name: str, path: Path) -> str:
    """A recipe of a lock file as it is named in the working directory."""
    there = path.parent / name
    inside = there.exists() or (Path(name).suffix in {".yaml", ".yml"} and Path(name).parts[:1] != ("recipes",))
    return os.path.relpath(there) if inside and path.absolute().parent != Path.cwd() else name


def chosen(held: Sequence[Locked], recipes: Sequence[str], path: Path) -> list[Locked]:
    """The entries of these recipes; without any all of them.

    Raises:
        UsageError: The file locks nothing.
        UnknownNameError: It does not lock one of them.
    """
    from cachekit.errors import UnknownNameError, UsageError

    if not held:
        raise UsageError(f"{path} locks nothing yet", hint="cachekit lock RECIPE")
    recipes = [in_file(name, path) for name in recipes]
    known = {entry.recipe for entry in held}
    if unknown := [name for name in recipes if name not in known]:
        raise UnknownNameError(
            f"{unknown[0]} is not in {path}", cause=f"it locks {', '.join(sorted(known))}", hint="cachekit lock RECIPE"
        )
    return [entry for entry in held if not recipes or entry.recipe in recipes]


def _check(config: Config, path: Path, entries: Sequence[Locked], *, offline: bool) -> int:
    from cachekit.actions.lock import check
    from cachekit.errors import MissError
    from cachekit.lockfile import words

    checked = []
    for entry in entries:
        one = _Wanted(entry.recipe, entry.overrides, entry.tiny, entry.toolchain, "", entry.instance)
        with _opened(config, path, one, offline=offline) as (_, prepared, _):
            checked.append(check(entry, prepared).as_dict())
    changed = [one for one in checked if one["status"] == "changed"]
    stale = [one["recipe"] for one in changed]
    out.data({"file": str(path), "checked": checked}, check_human, lambda _: "\n".join(stale), fails=bool(stale))
    if stale:
        again = words(from_here(stale[0], path), changed[0]["set"], tiny=changed[0]["tiny"])
        raise MissError(
            f"{out.count(len(stale), 'recipe')} changed since {path} was written",
            cause=", ".join(stale),
            hint=f"cachekit warm {again}, then cachekit lock {again}",
        )
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
    from cachekit.lockfile import words

    return words(one["recipe"], one["set"], tiny=one["tiny"])
