"""`cachekit run`: a command of your own, with what it compiled before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.plan import one
from cachekit.cli.stop import CommandExit
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachekit.api import Cache
    from cachekit.api.answers import Ran

# What follows the command's first word is the command's, whatever it looks like.
CONTEXT = {"allow_interspersed_args": False}


Words = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="COMMAND...", help="The command, as you would type it.", show_default=False),
]
Ingredients = Annotated[
    Optional[list[str]],
    typer.Option("--ingredient", metavar="NAME=VALUE", help="Something else that shapes the graphs. Repeatable."),
]
SoftArguments = Annotated[
    Optional[list[str]],
    typer.Option(
        "--soft-arg", metavar="NAME", help="An argument that does not affect the graphs: --output_dir. Repeatable."
    ),
]
Report = Annotated[
    Optional[Path],
    typer.Option(
        "--report", metavar="FILE", parser=options.file_to_write, help="Write the outcome to this file, as JSON."
    ),
]


@verb("home", "compiler", "cache", "trust", answers="Ran, Planned", aside=lambda given: not given["dry_run"])
def command(
    cache: Cache,
    words: Words = None,
    ingredients: Ingredients = None,
    soft_arguments: SoftArguments = None,
    require_warm: options.RequireWarm = False,
    recache: options.Recache = False,
    dry_run: options.DryRun = False,
    report: Report = None,
) -> Shown:
    """Run your own command; what it compiled before is restored.

    Input, output, signals and exit code are the command's own: what cachekit prints, even JSON, goes to stderr.

    Example:  cachekit run -- torchrun --nproc_per_node 2 train.py --lr 1e-4
    """
    api.check_contradiction(require_warm=require_warm, recache=recache)
    if not words:
        raise UsageError("no command was given", hint="cachekit run -- python train.py --lr 1e-4")
    declared, soft = _declared(ingredients or ()), soft_arguments or ()
    if dry_run:
        planned = cache.plan_run(words, ingredients=declared, soft_args=soft)
        missed = planned.miss() if require_warm else None
        return Shown(planned, one, lambda answer: str(answer.status), error=missed)
    done = cache.run(words, ingredients=declared, soft_args=soft, require_warm=require_warm, recache=recache)
    warnings = () if report is None else out.write_result(report, done)
    lines = _nothing if out.wants_little() else human
    return Shown(done, lines, lambda found: str(found.key), warnings=warnings, code=CommandExit(done.exit_code))


def _nothing(_: Ran) -> list[str]:
    return []


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


def human(answer: Ran) -> list[str]:
    """What became of a command, for people."""
    head = f"cachekit: {answer.name}: exit {answer.exit_code}, key {answer.key[:16]}"
    found, compiled, built = answer.found, answer.compiled, answer.built
    if compiled or built:
        took = f" in {out.duration(answer.compile_seconds)}" if answer.compile_seconds else ""  # not all tell
        what = f"compiled {out.count(compiled, 'graph')}{took}, found {found}"
        kept = f"; kept {out.size(answer.bytes)}" if answer.kept else "; nothing was kept"
    else:
        none = "no graph was compiled for the cache or found in it"
        what = f"compiled nothing: {out.count(found, 'graph')} found" if found else none
        kept = f"; saved about {out.duration(answer.saved_seconds)}" if answer.saved_seconds > 0 else ""
    nearest = f" (beginning with those of {answer.nearest[:16]})" if answer.nearest else ""
    lines = [head, f"  {what}{nearest}{kept}; cachekit itself took {out.duration(answer.overhead_seconds)}"]
    if "cache-dir-unusable" in answer.bypassed:
        lines.append(
            "  the compiler cache dir was in the temporary folder, because its own place is full or cannot be used"
        )
    return lines
