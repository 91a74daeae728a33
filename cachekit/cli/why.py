"""`cachekit why`: what differs from the nearest record, between two recipes or records, and why a run compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import options, out
from cachekit.cli.plan import LOCAL, meaning, unanswered
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import cut, named

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Compared, LoggedCompile, LoggedFailure, LogWhy, RunWhy, Told, Why

SHOWN = 12  # compiles of a log

First = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE|KEY]",
        help="A recipe, as for `cachekit plan`, or the first digits of a key.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
Second = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[OTHER]",
        help="Another recipe, the first digits of a key, or a file with a record, to compare with the first.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
RunName = Annotated[
    Optional[str],
    typer.Option("--run", metavar="last|RUN", help="Show why a run compiled: `last`, or a run's name in the journal."),
]


LogFile = Annotated[
    Optional[list[Path]],
    typer.Option("--log", metavar="FILE", help="Show what the log of any run says about its compiles; - is stdin."),
]


@verb(
    "home", "compiler", "cache", "trust", "machine", answers="Why, Compared, RunWhy, LogWhy", tells=["remote.untrusted"]
)
def command(
    cache: Cache,
    recipe: First = None,
    other: Second = None,
    run: RunName = None,
    log: LogFile = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
) -> Shown:
    """Show what differs from the nearest record, here or on a remote.

    On a hit, says where the record is. For a key, says what differs from the nearest other record. For two recipes or
    records, says what differs between them; --set and the like change the second. --log reads what a training,
    neuron_parallel_compile, a serving process or neuronx-cc printed, on any machine.

    Example:  cachekit why bert --set training.max_seq_length=384

    Example:  cachekit why bert 3f2a91c0

    Example:  cachekit why --run last

    Example:  cachekit why --log train.log
    """
    changed = bool(overrides or tiny or cache.toolchain or cache.target or cache.instance)
    chosen = [option for option, given in (("--run", run), ("--log", log or None)) if given is not None]
    chosen += ["a recipe"] if recipe or changed else []
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} were both given", hint="leave one of them out")
    if log:
        if len(log) > 1:
            raise UsageError(f"--log was given {len(log)} times", hint="one log at a time: cachekit why --log FILE")
        return Shown(cache.why_log(log[0]), of_log, lambda said: "\n".join(one.module for one in said.compiled))
    if run is not None:
        return Shown(cache.why_run(run), of_run, lambda said: "\n".join(one.name for one in said.modules))
    if recipe is None:
        raise UsageError("neither a recipe nor a run was named", hint="cachekit why RECIPE, or cachekit why --run last")
    if other is not None:
        if changed and api.is_record(other):
            raise UsageError(
                f"--set and options like it change the second recipe, and {other} is a key",
                hint=f"cachekit why {other} {recipe} ...",
            )
        return _compared(cache.compare(recipe, Variant(other, overrides or (), tiny)))
    if api.is_record(recipe) and not Path(recipe).suffix:
        if changed:
            raise UsageError(
                f"--set and options like it change a recipe, and {recipe} is a key",
                hint=f"cachekit why {recipe} compares its record with the nearest one",
            )
        return _compared(cache.why_key(recipe))
    found = cache.why(Variant(recipe, overrides or (), tiny))
    # Of a remote that was never reached something has been told.
    unsearched = [one for one in found.looked if one.records and one.problem]
    notes = tuple(f"{one.remote} was not searched to the end: {one.problem}" for one in unsearched)
    return Shown(found, of_recipe, lambda said: _names(said) or said.status, notes=notes)


def _compared(found: Compared) -> Shown:
    return Shown(found, of_two, lambda said: _names(said) or "same")


def _names(answer: Why | Compared) -> str:
    return "\n".join(change.name for change in answer.changes)


# What people read


def of_recipe(answer: Why) -> list[str]:
    """Why a recipe misses."""
    name, key = answer.recipe, answer.key[:16]
    if answer.status == "hit":
        where = "in the local store" if answer.remote == LOCAL else f"on {answer.remote}"
        return out.labelled(f"{name}: ", f"hit {where}, key {key}")
    if answer.flaw:
        return out.labelled(f"{name}: ", f"miss: {answer.flaw}")
    if answer.untrusted:
        return out.labelled(f"{name}: ", f"miss: {'; '.join(answer.untrusted)}")
    near, status = answer.nearest, answer.status
    silent = [line for one in answer.unanswered for line in out.labelled("", unanswered(one), 2)]
    if near is None:
        reached = (one.remote for one in answer.looked if one.records or not one.problem)
        asked = " or ".join(["the store", *reached])
        lines = out.labelled(f"{name}: ", f"{status}; there is no record to compare with in {asked}")
        lines += silent
        for one in answer.looked:
            lines += out.labelled("", one.untrusted, 2) if one.untrusted else []
        return lines
    where = "" if near.remote == LOCAL else f" on {near.remote}"
    head = out.labelled(f"{name}: ", f"{status}; nearest is {near.key[:16]} ({near.recipe}){where}")
    return [*head, *silent, *_changes(answer.changes)]


def of_two(answer: Compared) -> list[str]:
    """What differs between two."""
    old, new = answer.old, answer.new
    if answer.same:
        return out.labelled("", f"{old.name} and {new.name}: same key {old.key[:16]}")
    return [*out.labelled("", f"{old.name} → {new.name}"), *_changes(answer.changes)]


def of_run(answer: RunWhy) -> list[str]:
    """Why a run compiled."""
    of = f" of {answer.recipe}," if answer.recipe else ""
    head = f"{answer.verb}{of} {answer.run}: "
    compiled, found = out.count(answer.compiled, "graph"), answer.found
    if answer.untold:
        lines = out.labelled("", f"{head}what it compiled is not known: {_unfinished(answer)}")
    elif not answer.compiled and not answer.built:
        lines = out.labelled("", f"{head}compiled nothing; {out.count(found, 'graph')} found")
    elif answer.planned != "hit":
        why = "the plan was a miss" if answer.planned == "miss" else "a remote could not be asked"
        lines = out.labelled("", f"{head}compiled {compiled}, as {why}")
    else:
        built = f" and built {out.count(answer.built, 'binary', 'binaries')}" if answer.built else ""
        when = f" in: {', '.join(answer.phases)}" if answer.phases else ""
        lines = out.labelled("", f"{head}compiled {compiled}{built} although the plan was a hit{when}; {found} found")
    for module in answer.modules:
        took = f"  {out.duration(module.seconds)}" if module.seconds else ""
        lines.append(f"  {module.name}{took}")
        for words in module.words:
            lines += out.labelled("", words, 4)
    for words in answer.words:
        lines += out.labelled("", words, 2)
    for reason, count in answer.bypassed.items():
        lines += out.labelled("", _bypass(reason, count), 2)
    if not answer.ended and not answer.untold:
        lines += out.labelled("", _unfinished(answer), 2)
    if answer.failure:
        lines += out.labelled("", f"it failed: {answer.failure}", 2)
    return lines


def of_log(answer: LogWhy) -> list[str]:
    """What a log tells, the longest compiles first."""
    head = ", ".join(answer.compilers) or answer.compiler
    counts = [f"{out.count(answer.found, 'graph')} found"] if answer.of == "run" else []
    counts += [f"{len(answer.compiled)} compiled"]
    # In a run's log an error of no graph may be that of one whose failure is told.
    failed = sum(bool(one.module) or answer.of != "run" for one in answer.failed) or len(answer.failed)
    counts += [f"{number} {what}" for number, what in (
        (answer.extracted, "written down to be compiled later"), (failed, "failed")) if number]  # fmt: skip
    if answer.unfinished:
        has = "has" if answer.unfinished == 1 else "have"
        counts += [f"{answer.unfinished} began and {has} no end in this log (still compiling, or killed)"]
    lines = out.labelled("", f"{head}: {', '.join(counts)}")
    if answer.groups > 1:
        words = f"{answer.groups} groups of processes wrote this log, one after the other: if these were several runs, "
        lines += out.labelled("", f"{words}their counts are added up", 2)
    for words in answer.counted:
        lines += out.labelled("", words, 2)
    lines += out.some([_compiled(one) for one in answer.compiled], SHOWN)
    for one in answer.failed:
        lines += _failed(one)
    for module, seconds in answer.waits.items():
        lines += out.labelled("", f"waited {out.duration(seconds)} for the lock of {module}", 2)
    for worker, code in answer.workers.items():
        lines += out.labelled("", f"worker {worker} ended with {code}", 2)
    if answer.lost_seconds:
        most = "at most " if answer.lost_at_most else ""
        lines.append(f"  time lost to compiling and waiting: {most}{out.duration(answer.lost_seconds)}")
    if answer.of != "export" and (answer.compiled or answer.extracted):
        lines += out.labelled("", "next: cachekit run -- COMMAND keeps what compiles, and the next run finds it", 2)
    return lines


def _compiled(one: LoggedCompile) -> str:
    before = f", after a failure: {one.failed_before}" if one.failed_before else ""
    return f"  {_took(one)}  {one.module or 'a graph without a name'}{before}"


def _took(one: LoggedCompile | LoggedFailure) -> str:
    if one.seconds is None:
        return "unknown time"
    return f"{'at most ' if one.at_most else ''}{out.duration(one.seconds)}"


def _failed(one: LoggedFailure) -> list[str]:
    code = f" {one.code}" if one.code else ""
    when = ", in an earlier run: it was skipped" if one.earlier else ""
    after = f" after {_took(one)}" if one.seconds else ""
    what = one.module or "a graph that the log does not name"
    lines = out.labelled("", f"{what} failed{after}{when}: {one.kind}{code}", 2)
    for words in (one.message, one.advice):
        lines += out.labelled("", words, 4) if words else []
    return lines


def _unfinished(answer: RunWhy) -> str:
    return "it ended before it reported" if answer.ended else "it was killed, or is still running"


def _bypass(reason: str, count: int) -> str:
    from cachekit.events import REASONS

    times = "" if count == 1 else f"{count} times: "
    return f"{reason}: {times}{REASONS.get(reason, 'a reason of another cachekit')}"


def _changes(changes: Sequence[Told]) -> list[str]:
    lines = []
    for change in changes:
        lines += _values(change) if change.name == named(change.name) else []
        lines += meaning(change, 4)
    return lines


def _values(change: Told) -> list[str]:
    """`name: old → new` on a line where that fits, on three where not; what is long is cut there."""
    old, new = map(out.value, (change.old, change.new))
    columns = out.width()
    line = f"  {change.name}: {old} → {new}"
    if len(line) <= columns:
        return [line]
    return [f"  {change.name}:", *(cut(f"    {words}", columns) for words in (old, f"→ {new}"))]
