"""`cachekit run`: a command of your own, with what it compiled before."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out, plan_text
from cachekit.cli.stop import CommandExit
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "run"
# What follows the command's first word is the command's, whatever it looks like.
CONTEXT = {"allow_interspersed_args": False}


Words = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="COMMAND...", help="What to run, as you would type it.", show_default=False),
]
Ingredients = Annotated[
    Optional[list[str]],
    typer.Option("--ingredient", metavar="NAME=VALUE", help="Something else that shapes its graphs. Repeatable."),
]
SoftArguments = Annotated[
    Optional[list[str]],
    typer.Option("--soft-arg", metavar="NAME", help="An argument that reaches no graph: --output_dir. Repeatable."),
]
Report = Annotated[
    Optional[Path], typer.Option("--report", metavar="FILE", help="Write what became of it there, as JSON.")
]


def command(
    words: Words = None,
    ingredients: Ingredients = None,
    soft_arguments: SoftArguments = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    dry_run: options.DryRun = False,
    report: Report = None,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    trust_all: options.TrustAll = False,
) -> int:
    """Run your own command; what it compiled before is there again.

    Input, output, signals and exit code are the command's own: what cachekit says, JSON too, goes to stderr.

    Example:  cachekit run -- torchrun --nproc_per_node 2 train.py --lr 1e-4
    """
    from cachekit.verbs import command_line
    from cachekit.verbs.plan import plan
    from cachekit.verbs.prepare_command import as_recipe, prepare_command
    from cachekit.verbs.run import not_warm, ready, run

    out.setup(format, quiet=quiet, verbose=verbose, aside=not dry_run)
    options.check_contradiction(require_warm=require_warm, recache=recache)
    if not words:
        raise UsageError("no command is given", hint="cachekit run -- python train.py --lr 1e-4")
    declared = _declared(ingredients or ())
    parsed = command_line.read(words)
    config = options.load_config(home, compiler, cache=cache, trust_all=trust_all)
    with options.session(config, as_recipe(parsed), "plan" if dry_run else NAME, offline=offline) as session:
        prepared = prepare_command(parsed, session.compiler, declared=declared, soft=soft_arguments or ())
        if dry_run:
            planned = plan(prepared, session.store, session.chain)
            missed = require_warm and not ready(planned)
            out.data(planned.as_dict(), _plan, lambda document: str(document["status"]), fails=missed)
            if missed:
                raise not_warm(planned)
            return 0
        done = run(session, prepared, parsed, require_warm=require_warm, recache=recache)
    document = done.as_dict()
    if report is not None:
        try:
            report.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:  # the command has run, and its exit code is the answer
            out.warning(f"{report} could not be written: {error.strerror or error}")
    if format != "human" or not quiet:
        out.data(document, human, lambda found: str(found["key"]))
    return CommandExit(done.code)


def _declared(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--ingredient {text}: not of the form NAME=VALUE", hint="--ingredient layers=12")
        if found.setdefault(name, value) != value:
            raise UsageError(
                f"--ingredient {name} is given twice", cause=f"as {found[name]!r} and as {value!r}", hint="keep one"
            )
    return found


def _plan(document: dict[str, Any]) -> list[str]:
    lines = plan_text.one(document)
    return [line for line in lines if not line.startswith("  next")]


def human(document: dict[str, Any]) -> list[str]:
    """What became of a command, for people."""
    head = f"cachekit: {shlex.join(document['command'][:3])}: exit {document['exit_code']}, key {document['key'][:16]}"
    found, compiled, built = document["found"], document["compiled"], document["built"]
    if compiled or built:
        what = f"compiled {out.count(compiled, 'graph')} in {out.duration(document['compile_seconds'])}, found {found}"
        kept = f"; kept {out.size(document['bytes'])}" if document["kept"] else "; nothing was kept"
    else:
        what = f"compiled nothing: {out.count(found, 'graph')} found" if found else "nothing was compiled or found"
        kept = f"; saved about {out.duration(document['saved_seconds'])}" if document["saved_seconds"] > 0 else ""
    seed = f" (begun with those of {document['seed'][:16]})" if document["seed"] else ""
    return [head, f"  {what}{seed}{kept}; cachekit itself took {out.duration(document['overhead_seconds'])}"]
