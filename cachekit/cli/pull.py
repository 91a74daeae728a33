"""`cachekit pull`: bring what a recipe needs from a remote into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.api import Variant
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import CachekitError, MissError, UsageError

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Outcome, Pulls

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
    names = recipes or []
    if locked or lock_file:
        if overrides or tiny or module or all_of or cache.toolchain or cache.target or cache.instance:
            raise UsageError(
                "--locked takes recipes, and none of --set, --tiny, --module, --all-of or another machine",
                hint="the lock file has all of these",
            )
        failures = list[CachekitError]()
        done = cache.pull_locked(*names, lock_file=lock_file, dry_run=dry_run, failures=failures)
        return _shown(done, next(iter(failures), None))
    if not (names or module or all_of):
        raise UsageError("nothing to pull", hint="name a recipe, --module NAME or --all-of DIR")
    guess = len(names) > 1  # as `plan` does
    done = [cache.pull(Variant(name, overrides or (), tiny), dry_run=dry_run, guess=guess) for name in names]
    asked = [*names]
    if module or all_of:
        modules = cache.pull_modules(module or (), all_of=all_of or "", dry_run=dry_run)
        done, asked = [*done, *modules], [*asked, *(one.name for one in modules)]
    missed = [name for name, one in zip(asked, done, strict=True) if one.state == "absent"]
    if not missed:
        return _shown(done)
    left = sorted(f"{item.module}: {item.reason}" for one in done if one.state == "absent" for item in one.left)
    return _shown(
        done,
        MissError(
            f"no remote has {', '.join(missed)}",
            cause="; ".join(left[:SHOWN]),
            hint="warm it, with the remote writable: --cache local:rw,NAME:rw",
        ),
    )


def _shown(done: list[Outcome], error: CachekitError | None = None) -> Shown:
    from cachekit import Pulls

    return Shown(Pulls(tuple(done)), human, lambda said: "\n".join(one.key for one in said.pulled), error=error)


def human(answer: Pulls) -> list[str]:
    """Pulls for people."""
    lines = []
    for one in answer.pulled:
        modules = f"{out.count(len(one.modules), 'module')}, " if one.modules else ""
        words = {
            "fetched": f"{modules}{out.count(one.files, 'file')}, {out.size(one.bytes)} from {one.remote} "
            f"in {out.duration(one.seconds)}" + (f"; {out.size(one.present)} were here" if one.present else ""),
            "would-fetch": f"{modules}{out.size(one.bytes)} to fetch from {one.remote}",
            "present": f"in the store already, {out.size(one.present)}",
            "absent": "in no remote",
        }[one.state]
        key = f"  key {one.key[:16]}" if one.key else ""
        lines.append(f"{one.name}: {words}{key}")
        lines += out.some([f"  left {item.module}: {item.reason}" for item in one.left], SHOWN)
    return lines
