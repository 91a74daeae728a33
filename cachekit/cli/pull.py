"""`cachekit pull`: bring what a recipe needs from a shared cache into the store."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out

if TYPE_CHECKING:
    from cachekit.config import Config

NAME = "pull"
SHOWN = 12  # modules that were left, for people

Recipes = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE...", help="YAML files, or names of `cachekit zoo`.", autocompletion=options.complete_recipe
    ),
]
ModuleNames = Annotated[
    Optional[list[str]],
    typer.Option("--module", metavar="NAME", help="A module by its name, without a record. Repeatable."),
]
AllOf = Annotated[
    Optional[str],
    typer.Option(
        "--all-of",
        metavar="DIR",
        help="Every finished module of a compiler: neuronxcc-<version>, or torchneuron-<version>.",
    ),
]

LockedOnly = Annotated[
    bool, typer.Option("--locked", help="Exactly what cachekit.lock says; exit 5 where that cannot be had.")
]
LockFile = Annotated[
    Optional[Path], typer.Option("--lock-file", metavar="FILE", help="Another than the nearest cachekit.lock.")
]


def command(
    recipes: Recipes = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    module: ModuleNames = None,
    all_of: AllOf = None,
    locked: LockedOnly = False,
    lock_file: LockFile = None,
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
    """Fetch what recipes need, so that they run without the network. Exit 3 where no cache has it.

    With --locked the recipes of cachekit.lock, or those that are named.

    Example:  cachekit pull bert --cache local:rw,hf://team/cache:r

    Example:  cachekit pull bert --target trn1 --toolchain neuron-2.31

    Example:  cachekit pull --locked
    """
    from cachekit.errors import MissError, UsageError
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.prepare import prepare
    from cachekit.verbs.pull_modules import pull_modules
    from cachekit.verbs.pull_recipes import pull_recipe

    out.setup(format, quiet=quiet, verbose=verbose)
    machine = options.machine_words(toolchain, target, instance)
    if locked or lock_file:
        if overrides or tiny or module or all_of or machine:
            raise UsageError("--locked takes recipes, and nothing else", hint="the lock file says the rest")
        return _locked(
            options.load_config(home, compiler, cache=cache, trust_all=trust_all),
            recipes,
            lock_file,
            dry_run,
            offline=offline,
        )
    if not (recipes or module or all_of):
        raise UsageError("nothing to pull", hint="name a recipe, --module NAME or --all-of DIR")
    config = options.load_config(home, compiler, cache=cache, trust_all=trust_all)
    where = Elsewhere(toolchain or "", target or "", instance or "", config.compiler)
    called = partial(options.named, overrides=overrides, home=home, compiler=compiler, tiny=tiny, machine=machine)
    results: list[dict[str, Any]] = []
    missed: list[str] = []
    left: dict[str, str] = {}
    for name in recipes or ():
        loaded, _ = options.load_recipe(name, overrides, tiny=tiny)
        instance = where.machine(loaded, guess=len(recipes or ()) > 1)  # as `plan` does
        verb = "" if dry_run else NAME
        with options.session(config, loaded, verb, offline=offline, toolchain=toolchain, instance=instance) as session:
            options.need_chain(session.chain, "read")
            done = pull_recipe(session, prepare(loaded, session.compiler, called(name)), dry_run=dry_run)
        results.append(done.as_dict())
        missed += [name] if done.state == "absent" else []
    if module or all_of:
        with options.session(config, None, "" if dry_run else NAME, offline=offline) as session:
            options.need_chain(session.chain, "read")
            found = pull_modules(session, module or (), all_of or "", dry_run=dry_run)
        results += [done.as_dict() for done in found]
        missed += [done.name for done in found if done.state == "absent"]
        left |= {name: reason for done in found if done.state == "absent" for name, reason in done.left.items()}
    out.data(
        {"pulled": results}, human, lambda found: "\n".join(one["key"] for one in found["pulled"]), fails=bool(missed)
    )
    if missed:
        raise MissError(
            f"no shared cache has {', '.join(missed)}",
            cause="; ".join(f"{name}: {reason}" for name, reason in sorted(left.items())[:SHOWN]),
            hint="warm it, with the cache writable: --cache local:rw,NAME:rw",
        )
    return 0


def _locked(config: Config, recipes: list[str] | None, lock_file: Path | None, dry_run: bool, *, offline: bool) -> int:
    from cachekit.store.lock_file import nearest
    from cachekit.verbs.lock_file import pull_lock

    opening = partial(options.session, config, offline=offline)
    done, failure = pull_lock(opening, lock_file or nearest(), recipes or [], dry_run=dry_run)
    document = {"pulled": [one.as_dict() for one in done]}
    out.data(document, human, lambda found: "\n".join(one["key"] for one in found["pulled"]), fails=bool(failure))
    if failure:
        raise failure
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """Pulls for people."""
    lines = []
    for one in document["pulled"]:
        modules = f"{out.count(len(one['modules']), 'module')}, " if one["modules"] else ""
        words = {
            "fetched": f"{modules}{out.count(one['files'], 'file')}, {out.size(one['bytes'])} from {one['tier']} "
            f"in {out.duration(one['seconds'])}; {out.size(one['present'])} was here",
            "would-fetch": f"{modules}{out.size(one['bytes'])} to fetch from {one['tier']}",
            "present": f"in the store already, {out.size(one['present'])}",
            "absent": "in no shared cache",
        }[one["state"]]
        key = f"  key {one['key'][:16]}" if one["key"] else ""
        lines.append(f"{one['name']}: {words}{key}")
        lines += [f"  left {item['module']}: {item['reason']}" for item in one["left"][:SHOWN]]
        if len(one["left"]) > SHOWN:
            lines.append(f"  … and {len(one['left']) - SHOWN} more (--format json)")
    return lines
