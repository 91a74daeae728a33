"""`cachekit plan`: what will hit and what will compile, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cachekit.cli import options, out

if TYPE_CHECKING:
    from cachekit.actions.plan import Plan

NAME = "plan"


def command(
    recipe: options.RecipeName,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    require_warm: options.RequireWarm = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    toolchain: options.Toolchain = None,
    instance: options.Instance = None,
) -> int:
    """Say what will be found and what must compile; run nothing.

    Needs no accelerator and no PyTorch import, and no network but for shared caches. Exit 3 on a miss with
    --require-warm.

    Example:  cachekit plan bert --set training.per_device_train_batch_size=8

    Example:  cachekit plan bert --toolchain neuron-2.31 --instance trn1.2xlarge
    """
    from cachekit.actions.plan import plan
    from cachekit.actions.prepare import prepare
    from cachekit.ingredients import check_data

    out.setup(format, quiet=quiet, verbose=verbose)
    loaded, _ = options.load_recipe(recipe, overrides, tiny=tiny)
    check_data(loaded, absent_ok=True)
    config = options.load_config(home, compiler, cache=cache)
    with options.session(config, loaded, NAME, offline=offline, toolchain=toolchain, instance=instance) as session:
        prepared = prepare(loaded, session.compiler, options.named(recipe, overrides, home, compiler, tiny=tiny))
        planned = plan(prepared, session.store, session.chain)
    return show(planned, require_warm=require_warm)


def show(planned: Plan, *, require_warm: bool) -> int:
    """Print a plan, for `--dry-run` as well."""
    from cachekit.actions.plan import miss_error

    missed = require_warm and not planned.hit
    out.data(planned.as_dict(), human, lambda document: str(document["status"]), fails=missed)
    if missed:
        raise miss_error(planned)
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """A plan for people."""
    from cachekit.tiers.layout import LOCAL

    head = f"{document['recipe']}: {document['status']}  {document['directory']}  key {document['key'][:16]}"
    if document["status"] == "hit":
        modules = out.count(len(document["modules"]), "module")
        graphs = out.count(document["graphs"], "graph")
        where = "in the local store"
        if document["tier"] != LOCAL:
            where = f"on {document['tier']}; {out.size(document['fetch_bytes'])} to fetch"
        return [
            head,
            f"  {graphs} in {modules}, {out.size(document['bytes'])}, {where}",
            f"  nothing will compile; saves about {out.duration(document['saved_seconds'])}",
        ]
    lines = [head]
    near = document["nearest"]
    if document["flaw"]:
        lines.append(f"  {document['flaw']}")
    if near is None and document["flaw"]:
        pass  # the store has one, and it is useless
    elif near is None:
        lines.append("  the store has no record to compare with")
    else:
        lines.append(f"  nearest is {near['key'][:16]} ({near['recipe']}); it differs in {len(near['changes'])}:")
        for change in near["changes"][:12]:
            lines.append(f"    {change_text(change)}")
            lines += [f"      {words}" for words in change.get("words", ())]
        if len(near["changes"]) > 12:  # noqa: PLR2004
            lines.append(f"    ... and {len(near['changes']) - 12} more (--format json)")
    seconds = document["compile_seconds"]
    lines.append(f"  compiling takes {'about ' + out.duration(seconds) if seconds is not None else 'an unknown time'}")
    where = f" on a {document['elsewhere']}" if document["elsewhere"] else ""
    lines.append(f"  next{where}: cachekit warm {document['source']}")
    return lines


def change_text(change: dict[str, Any]) -> str:
    """One difference: `name: old → new`, long values cut."""
    old = _short(change["old"]) if "old" in change else "(absent)"
    new = _short(change["new"]) if "new" in change else "(absent)"
    return f"{change['name']}: {old} → {new}"


def _short(value: Any) -> str:
    words = str(value)
    return words if len(words) <= 40 else words[:37] + "..."  # noqa: PLR2004
