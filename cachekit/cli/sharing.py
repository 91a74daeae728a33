"""`cachekit pull`, `push` and `store lock`: what a recipe needs from the remotes, what they get, and a lock on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.api import Variant
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import typed

if TYPE_CHECKING:
    from cachekit import Pulls
    from cachekit.api import Cache
    from cachekit.api.answers import CheckedLock, LockedRecipe, LockFile, Pushed, Pushes


SHOWN = 12  # lines of a kind, for people
SHOWN_CHANGES = 8  # of one recipe

ModuleNames = Annotated[
    Optional[list[str]],
    typer.Option("--module", metavar="NAME", help="Fetch a module by its name, without a record. Repeatable."),
]
AllOf = Annotated[
    Optional[str],
    typer.Option(
        "--all-of",
        metavar="DIR",
        help="Fetch every finished module of a compiler: neuronxcc-<version>, or torchneuron-<version>.",
    ),
]

LockedOnly = Annotated[
    bool, typer.Option("--locked", help="Fetch exactly what cachekit.lock says; exit 5 if it cannot be fetched.")
]


@verb("home", "compiler", "cache", "trust", "machine", answers="Pulls")
def pull(
    cache: Cache,
    recipes: options.RecipesOrKeys = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    module: ModuleNames = None,
    all_of: AllOf = None,
    locked: LockedOnly = False,
    lock_file: options.LockFile = None,
    dry_run: options.DryRun = False,
) -> Shown:
    """Fetch what recipes need, so that they run without the network. Exits 3 if no remote has a record.

    The record of a command (`cachekit run`) is named by the first digits of its key.

    With --locked, fetches the recipes of cachekit.lock, or those that you name.

    Example:  cachekit pull bert --cache local:rw,hf://team/cache:r

    Example:  cachekit pull bert --target trn1 --toolchain neuron-2.31

    Example:  cachekit pull --locked
    """
    from cachekit import Pulls

    names = recipes or []
    if locked or lock_file:
        if overrides or tiny or module or all_of or cache.toolchain or cache.target or cache.instance:
            raise UsageError(
                "--locked takes recipes, but no --set, --tiny, --module, --all-of, or other machine",
                hint="the lock file has all of these",
            )
        return _shown(cache.pull_locked(*names, lock_file=lock_file, dry_run=dry_run))
    if not (names or module or all_of):
        raise UsageError("nothing to pull", hint="name a recipe, a key, --module NAME or --all-of DIR")
    guess = len(names) > 1  # as `plan` does
    done = [cache.pull(Variant(name, overrides or (), tiny), dry_run=dry_run, guess=guess) for name in names]
    if module or all_of:
        done += cache.pull_modules(module or (), all_of=all_of or "", dry_run=dry_run)
    return _shown(Pulls(tuple(done)))


def _shown(done: Pulls) -> Shown:
    return Shown(done, pulled, lambda said: "\n".join(one.key for one in said.pulled))


def pulled(answer: Pulls) -> list[str]:
    """Pulls for people."""
    lines = []
    for one in answer.pulled:
        modules = f"{out.count(len(one.modules), 'module')}, " if one.modules else ""
        words = {
            "fetched": f"{modules}{out.count(one.files, 'file')}, {out.size(one.bytes)} from {one.remote} "
            f"in {out.duration(one.seconds)}" + (f"; {out.size(one.present)} were here" if one.present else ""),
            "would-fetch": f"{modules}{out.size(one.bytes)} to fetch from {one.remote}",
            "present": f"already in the store, {out.size(one.present)}",
            "absent": "not found, but not every remote answered" if one.error else "on no remote",
            "failed": f"failed: {one.error.message if one.error else ''}",
        }[one.state]
        key = f"  key {one.key[:16]}" if one.key else ""
        lines.append(f"{one.name}: {words}{key}")
        lines += out.some([f"  left {item.module}: {item.reason}" for item in one.left], SHOWN)
    return lines


Pending = Annotated[bool, typer.Option("--pending", help="Push only what could not be pushed before.")]
Public = Annotated[bool, typer.Option("--public", help="Also push to a remote that anybody can read.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace other records of the same keys.")]
Recheck = Annotated[
    bool, typer.Option("--recheck", help="Also read what is on the remotes, and push again what is damaged there.")
]


@verb("home", "compiler", "cache", answers="Pushes", tells=["push.failed"])
def push(
    cache: Cache,
    names: options.RecipesOrKeys = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    pending: Pending = False,
    public: Public = False,
    replace: Replace = False,
    recheck: Recheck = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Send new records of the store to the remotes.

    Pushes the records that you name, or all new ones, to every writable remote. A remote that anybody can read needs
    --public; cachekit first shows what the records reveal about this machine.

    Example:  cachekit push bert --cache local:rw,hf://team/cache:rw --dry-run
    """
    done = cache.push(
        options.variants(names, overrides, tiny=tiny),
        pending=pending,
        public=public,
        replace=replace,
        recheck=recheck,
        dry_run=dry_run,
    )
    return Shown(
        done,
        pushed,
        lambda found: "\n".join(path for one in found.pushed for path in one.records),
    )


def pushed(answer: Pushes) -> list[str]:
    """Pushes for people."""
    lines = []
    for one in answer.pushed:
        if one.error:
            told = one.refused or one.error is answer.error()  # below, or as the error that follows
            lines += out.labelled("", f"{one.remote}: not pushed" if told else out.about(one.remote, one.error.said))
            lines += _refused(one)
            lines += [f"  would reveal: {leak}" for leak in one.leaks]
            continue
        would = "would be " if answer.dry_run else ""
        done = []
        if one.records or one.files:
            new = f"{out.count(len(one.records), 'record')} and {out.count(len(one.files), 'file')}"
            done.append(f"{new} {would}sent, {out.size(one.bytes)}")
        if one.signatures:
            done.append(f"{out.count(len(one.signatures), 'record')} {would}signed")
        if one.unchanged:
            done.append(f"{out.count(one.unchanged, 'record')} already there")
        lines.append(f"{one.remote}: {'; '.join(done) or 'nothing to send'}")
        lines += _refused(one)
        if answer.dry_run:
            lines += [f"  reveals: {leak}" for leak in one.leaks]
            lines += out.some([f"  {out.size(file.bytes):>9}  {file.path}" for file in one.files], SHOWN)
            lines += out.some([f"     record  {path}" for path in one.records], SHOWN)
            lines += out.some([f"  signature  {path}" for path in one.signatures], SHOWN)
            lines += [f"       card  {one.card}"] if one.card else []
            lines += [f"      index  {one.index}"] if one.index else []
    return lines


def _refused(one: Pushed) -> list[str]:
    """The records that are not given to others."""
    refused = out.some([f"{it.recipe} ({it.key[:12]}): {it.reason}" for it in one.refused], SHOWN)
    return [line for words in refused for line in out.labelled("  held back: ", words)]


Check = Annotated[bool, typer.Option("--check", help="Only check whether recipes have changed since; exit 3 if so.")]


@verb("home", "compiler", "cache", "trust", "machine", answers="LockFile, CheckedLock")
def lock(
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
    Users and hosts are not in the file. Exits 3 if a recipe is not warm. Without RECIPE, renews every entry of the
    file.

    Example:  cachekit store lock bert

    Example:  cachekit store lock bert --target trn1 --toolchain neuron-2.31

    Example:  cachekit store lock --check
    """
    if check:
        checked = cache.check_lock(*(recipes or ()), lock_file=file)
        return Shown(checked, lock_checked, lambda _: "\n".join(one.recipe for one in checked.changed))
    if not recipes and (overrides or tiny):
        option = "--set" if overrides else "--tiny"
        raise UsageError(
            f"{option} without a recipe", hint=f"name the recipe that it changes: cachekit store lock bert {option} …"
        )
    done = cache.lock(*options.variants(recipes, overrides, tiny=tiny), lock_file=file, dry_run=dry_run)
    told = [f"no remote has {_name(one)}: others cannot pull it until `cachekit push`" for one in done.unshared]
    return Shown(done, locked, lambda found: "\n".join(one.key for one in found.locked), warnings=tuple(told))


def locked(answer: LockFile) -> list[str]:
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


def lock_checked(answer: CheckedLock) -> list[str]:
    """A check for people: what changed, by recipe."""
    from cachekit.cli.plan import change_text

    lines = []
    for one in answer.checked:
        if one.status == "fits":
            lines.append(f"{_name(one)}: unchanged  key {one.key[:16]}")
            continue
        lines.append(f"{_name(one)}: changed  key {one.key[:16]} → {one.key_now[:16]}")
        lines += out.some([f"  {change_text(change)}" for change in one.changes], SHOWN_CHANGES)
    return lines


def _name(one: LockedRecipe) -> str:
    return typed(one.recipe, one.set, {}, tiny=one.tiny)
