"""`cachekit warm`: compile a recipe's graphs once, and keep them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from cachekit.cli import options, out
from cachekit.cli import plan as plan_verb

NAME = "warm"


def command(
    recipe: options.RecipeName,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    dry_run: options.DryRun = False,
    wait: options.Wait = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    nnodes: options.NodeCount = None,
    node_rank: options.NodeRank = 0,
    master_addr: options.MasterAddress = "",
    master_port: options.MasterPort = 29500,
) -> int:
    """Compile what a recipe's fine-tune needs, once, and keep it.

    A second warm finds it all and compiles nothing. Nothing is left in your output folder.

    Example:  cachekit warm recipes/bert.yaml
    """
    from cachekit.actions.last import Last, remember
    from cachekit.actions.plan import plan
    from cachekit.actions.prepare import prepare
    from cachekit.actions.warm import warm
    from cachekit.compilers import Node

    out.setup(format, quiet=quiet, verbose=verbose)
    options.check_contradiction(require_warm=require_warm, recache=recache)
    overrides = options.with_nodes(overrides, nnodes)
    node = Node(node_rank, master_addr, master_port)
    loaded, path = options.load_recipe(recipe, overrides, tiny=tiny)
    config = options.load_config(home, compiler, wait, cache)
    with options.session(config, loaded, "plan" if dry_run else NAME, offline=offline, node=node) as session:
        prepared = prepare(loaded, session.compiler, options.named(recipe, overrides, home, compiler, tiny=tiny))
        if dry_run:
            return plan_verb.show(plan(prepared, session.store, session.chain), require_warm=require_warm)
        done = warm(session, prepared, recache=recache, require_warm=require_warm)
        place = str(Path(path).absolute())
        remember(session.store, Path.cwd(), Last(place, tuple(overrides or ()), compiler or "auto", tiny))
    next_words = shlex.join(["cachekit", "train", *options.elsewhere(home)])
    out.data(
        done.as_dict(),
        lambda document: [*human(document), f"  next: {next_words}"],
        lambda document: str(document["key"]),
    )
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """What a warm did, for people."""
    head = f"{document['recipe']}: warm  {document['directory']}  key {document['key'][:16]}"
    stored = f"{out.count(len(document['modules']), 'module')}, {out.size(document['bytes'])}"
    if document["compiled"]:
        graphs = out.count(document["compiled"], "graph")
        lines = [
            head,
            f"  compiled {graphs} in {out.duration(document['compile_seconds'])}; stored {stored}",
        ]
    else:
        lines = [
            head,
            f"  compiled nothing: all {document['graphs']} graphs were stored already ({stored})",
            f"  saved about {out.duration(document['saved_seconds'])}",
        ]
    waited = f", of which {out.duration(document['waited_seconds'])} waiting" if document["waited_seconds"] >= 1 else ""
    lines.append(f"  took {out.duration(document['seconds'])} in all{waited}")
    return lines
