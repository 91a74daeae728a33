"""`cachekit coverage`: what of a recipe, or of the zoo, is cached, failed or missing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit import api
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import a

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cachekit.api import Cache
    from cachekit.api.answers import Coverage, CoverageOfAll

SHOWN = 8  # modules of a recipe that are named where there are more of a kind


@verb("home", "compiler", "cache", "trust", "machine", answers="CoverageOfAll", tells=["remote.untrusted"])
def command(
    cache: Cache,
    recipes: options.Recipes = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    everything: options.EveryRecipe = False,
    require_warm: Annotated[bool, typer.Option("--require-warm", help="Exit 3 if anything is not cached.")] = False,
) -> Shown:
    """Show which modules of a recipe are cached, failed or missing.

    Names each module and where it is; for a failed one, also the class of its failure and its log. Looks at the store,
    the remotes and the compiler's own folder; runs and fetches nothing. Reports divergent builds, which have the same
    key and different bytes, and who made each. With --require-warm, exits 3 if anything is not cached. With --all, a
    remote's index says how many modules are there; if recipes are named, or with --require-warm, each record is read.

    Example:  cachekit coverage bert

    Example:  cachekit coverage --all --cache local:rw,team:r --require-warm
    """
    if bool(recipes) == everything:
        raise UsageError(
            "recipes and --all were both given" if everything else "no recipe was named",
            hint="cachekit coverage RECIPE, or --all",
        )
    names = api.names("recipes") if everything else recipes or ()
    wanted = options.variants(names, overrides, tiny=tiny)
    found = cache.coverage_all(wanted, skip=everything, certain=require_warm or not everything)
    missed = found.miss() if require_warm else None
    return Shown(found, human, lambda said: "\n".join(map(_brief, said.recipes)), error=missed)


def human(answer: CoverageOfAll) -> list[str]:
    """Coverage for people: one recipe in full, of several what they lack."""
    found = answer.recipes
    if len(found) == 1:
        return [*_full(found[0]), *_told(found)]
    rows = [[one.recipe, _count(one), one.status, ", ".join(one.where)] for one in found]
    lines = out.table(rows, ["recipe", "modules", "status", "where"])
    notes = Counter(note for one in found for note in one.notes)
    common = [note for note, count in notes.items() if count > 1]
    for one in found:
        if trouble := _trouble(one, 2, common):
            lines += [f"  {one.recipe}", *trouble]
    for note in common:
        lines += out.labelled("", note)
    counts = {
        "covered": answer.covered, "failed": answer.failed, "missing": answer.missing, "unknown": answer.unknown,
        "unusable": answer.unusable,
    }  # fmt: skip
    lines.append(", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
    return [*lines, *_told(found)]


def _told(found: Sequence[Coverage]) -> list[str]:
    """What was not looked at."""
    told = [one for one in found if one.basis == "index"]
    if not told:
        return []
    names = ", ".join(dict.fromkeys(place for one in told for place in one.where))
    text = (
        f"for {out.count(len(told), 'recipe')}, this is what the index of {names} says; `cachekit coverage "
        "RECIPE`, or --require-warm, reads the records and looks at each file"
    )
    return out.labelled("", text)


def _brief(one: Coverage) -> str:
    return f"{one.recipe} {one.status} {_count(one)}"


def _count(one: Coverage) -> str:
    return f"{one.cached} of {one.needed}" if one.needed else "0 of ?"


def _full(one: Coverage) -> list[str]:
    head = f"{one.recipe}: {one.status}  {one.directory}  key {(one.key or '')[:16]}"
    lines = [head]
    graphs = f" ({out.count(one.graphs, 'graph')})" if one.graphs and one.basis in {"record", "index"} else ""
    if one.needed:
        where = f", {', '.join(one.where)}" if one.where else ""
        lines.append(f"  {one.cached} of {out.count(one.needed, 'module')} cached{graphs}{where}")
    elif one.status == "unknown":
        lines.append("  nothing is cached here, and what the remotes have is not known")
    else:
        about = f"; the nearest record has {out.count(one.graphs, 'graph')}" if one.graphs else ""
        lines += out.labelled("", f"nothing is cached, and no run has recorded which modules are needed{about}", 2)
    if one.basis == "trial":
        lines.append("  what is needed was reported by a trial run that failed; there may be more")
    lines += _trouble(one)
    if one.status != "covered":
        where = f" on {a(one.elsewhere)}" if one.elsewhere else ""
        lines.append(f"  next{where}: cachekit warm {one.source}")
    return lines


def _trouble(one: Coverage, indent: int = 0, told: Collection[str] = ()) -> list[str]:
    """What is not cached, by name, and what else should be known but these notes; folded to the terminal's width."""
    left = " " * indent
    lines: list[str] = []
    for status in ("failed", "missing"):
        listed = [module for module in one.modules if module.status == status]
        for module in listed[:SHOWN]:
            lines.append(f"{left}  {status}  {module.name or 'the trial run'}")
            if failed := module.failed:
                lines += out.labelled("", f"{failed.kind}: {failed.message}", 10 + indent)
                lines.append(f"{left}          log {failed.log}")
                lines += out.labelled("", failed.advice, 10 + indent) if failed.advice else []
        if len(listed) > SHOWN:
            lines.append(f"{left}  {status}  {len(listed) - SHOWN} more (--format json)")
    trial = one.trial
    if trial and not any(module.status == "failed" for module in one.modules):
        lines += out.labelled(f"{left}  the last trial run failed: ", trial.message)
        lines.append(f"{left}    log {trial.log}")
    for build in one.builds:
        for two in build.modules[:SHOWN]:
            lines.append(f"{left}  divergent builds of {two.name}")
            place = "replaced here" if build.where == "local" else f"on {build.where}"
            sides = ((two.ours, "here", build.ours), (two.theirs, place, build.theirs))
            for digest, what, made in sides:
                lines.append(f"{left}    {digest[:16]} {what}, by {made.by}, {out.moment(made.created)}")
    for note in one.notes:
        if note not in told:
            lines += out.labelled("", note, 2 + indent)
    if problem := one.problem:
        told = ": ".join(filter(None, [problem.message, problem.cause]))
        lines += out.labelled("", told, 2 + indent)
    return lines
