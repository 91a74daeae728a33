"""The answers of `cachekit why` for people: a line that says what is compared, and the changes. Nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from cachekit.cli import out
from cachekit.cli.plan_text import LOCAL
from cachekit.values import builtins

if TYPE_CHECKING:
    from cachekit.api.answers import Compared, RunWhy, Told, Trained, Warmed, Why

SHORTEST = 60  # columns
CHOSEN = frozenset({"recache", "remote-offline", "remote-read-only", "remote-write-only"})  # by who gave the command


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
    near = answer.nearest
    if near is None:
        reached = (one.remote for one in answer.looked if one.records or not one.problem)
        asked = " or ".join(["the store", *reached])
        return out.labelled(f"{name}: ", f"miss; there is no record to compare with in {asked}")
    where = "" if near.remote == LOCAL else f" on {near.remote}"
    head = out.labelled(f"{name}: ", f"miss; nearest is {near.key[:16]} ({near.recipe}){where}")
    return [*head, *_changes(answer.changes)]


def of_two(answer: Compared) -> list[str]:
    """What differs between two."""
    old, new = answer.old, answer.new
    if answer.same:
        return out.labelled("", f"{old.name} and {new.name}: same key {old.key[:16]}")
    return [*out.labelled("", f"{old.name} → {new.name}"), *_changes(answer.changes)]


def of_run(answer: RunWhy) -> list[str]:
    """Why a run compiled."""
    recipe = answer.recipe or "nothing"
    head = f"{answer.verb} of {recipe}, {answer.run}: "
    compiled, found = out.count(answer.compiled, "graph"), answer.found
    if answer.untold:
        lines = out.labelled("", f"{head}what it compiled is not known: {_unfinished(answer)}")
    elif not answer.compiled and not answer.built:
        lines = out.labelled("", f"{head}compiled nothing; {found} found")
    elif answer.planned == "miss":
        lines = out.labelled("", f"{head}compiled {compiled}, as the plan was a miss")
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


def _unfinished(answer: RunWhy) -> str:
    return "it ended before it reported" if answer.ended else "it was killed, or is still running"


def bypassed(answer: Warmed | Trained) -> list[str]:
    """A line of a run's summary, where the run bypassed the cache or a part of it, and nobody wanted that."""
    found = {reason: count for reason, count in answer.bypassed.items() if reason not in CHOSEN}
    told = ", ".join(reason if count == 1 else f"{reason} ({count} times)" for reason, count in found.items())
    return out.labelled("bypassed the cache: ", told, 2) if told else []


def _bypass(reason: str, count: int) -> str:
    from cachekit.events import REASONS

    times = "" if count == 1 else f"{count} times: "
    return f"{reason}: {times}{REASONS.get(reason, 'a reason of another cachekit')}"


def _changes(changes: Sequence[Told]) -> list[str]:
    lines = []
    for change in changes:
        lines += _values(change)
        for words in change.words:
            lines += out.labelled("", words, 4)
        follows = [other.name for other in change.follows]
        if follows:
            lines += out.labelled("with it: ", ", ".join(follows), 4)
    return lines


def _values(change: Told) -> list[str]:
    """`name: old → new` on a line where that fits, on three where not; what is long is cut there."""
    old, new = map(_value, (change.old, change.new))
    columns = max(shutil.get_terminal_size().columns, SHORTEST)
    line = f"  {change.name}: {old} → {new}"
    if len(line) <= columns:
        return [line]
    return [f"  {change.name}:", *(_cut(f"    {words}", columns) for words in (old, f"→ {new}"))]


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def _value(value: Any) -> str:
    """As a recipe would say it."""
    if value is UNSET:
        return "(absent)"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "(none)"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(builtins(value), ensure_ascii=False)
