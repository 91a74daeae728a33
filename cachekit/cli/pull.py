"""`cachekit pull`: bring what a recipe needs from a remote into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.api import Variant
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit import Pulls
    from cachekit.api import Cache

SHOWN = 12  # modules that were left, for people

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
def command(
    cache: Cache,
    recipes: options.Recipes = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    module: ModuleNames = None,
    all_of: AllOf = None,
    locked: LockedOnly = False,
    lock_file: options.LockFile = None,
    dry_run: options.DryRun = False,
) -> Shown:
    """Fetch what recipes need, so that they run without the network. Exits 3 if no remote has a record.

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
                "--locked takes recipes, and none of --set, --tiny, --module, --all-of or another machine",
                hint="the lock file has all of these",
            )
        return _shown(cache.pull_locked(*names, lock_file=lock_file, dry_run=dry_run))
    if not (names or module or all_of):
        raise UsageError("nothing to pull", hint="name a recipe, --module NAME or --all-of DIR")
    guess = len(names) > 1  # as `plan` does
    done = [cache.pull(Variant(name, overrides or (), tiny), dry_run=dry_run, guess=guess) for name in names]
    if module or all_of:
        done += cache.pull_modules(module or (), all_of=all_of or "", dry_run=dry_run)
    return _shown(Pulls(tuple(done)))


def _shown(done: Pulls) -> Shown:
    return Shown(done, human, lambda said: "\n".join(one.key for one in said.pulled))


def human(answer: Pulls) -> list[str]:
    """Pulls for people."""
    lines = []
    for one in answer.pulled:
        modules = f"{out.count(len(one.modules), 'module')}, " if one.modules else ""
        words = {
            "fetched": f"{modules}{out.count(one.files, 'file')}, {out.size(one.bytes)} from {one.remote} "
            f"in {out.duration(one.seconds)}" + (f"; {out.size(one.present)} were here" if one.present else ""),
            "would-fetch": f"{modules}{out.size(one.bytes)} to fetch from {one.remote}",
            "present": f"already in the store, {out.size(one.present)}",
            "absent": "in no remote that was asked" if one.error else "in no remote",
            "failed": f"failed: {one.error.message if one.error else ''}",
        }[one.state]
        key = f"  key {one.key[:16]}" if one.key else ""
        lines.append(f"{one.name}: {words}{key}")
        lines += out.some([f"  left {item.module}: {item.reason}" for item in one.left], SHOWN)
    return lines
