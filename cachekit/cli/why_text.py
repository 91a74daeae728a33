"""The answers of `cachekit why` for people: a line that says what is compared, and the changes. Nothing else."""

from __future__ import annotations

import json
import shutil
from typing import Any

from cachekit.cli import out
from cachekit.cli.plan_text import LOCAL

SHORTEST = 60  # columns
CHOSEN = frozenset({"recache", "remote-offline", "remote-read-only", "remote-write-only"})  # by who gave the command


def of_recipe(document: dict[str, Any]) -> list[str]:
    """Why a recipe misses."""
    name, key = document["recipe"], document["key"][:16]
    if document["status"] == "hit":
        where = "in the local store" if document["remote"] == LOCAL else f"on {document['remote']}"
        return out.labelled(f"{name}: ", f"hit {where}, key {key}")
    if document["flaw"]:
        return out.labelled(f"{name}: ", f"miss: {document['flaw']}")
    near = document["nearest"]
    if near is None:
        reached = (one["remote"] for one in document["looked"] if one["records"] or not one["problem"])
        asked = " or ".join(["the store", *reached])
        return out.labelled(f"{name}: ", f"miss; there is no record to compare with in {asked}")
    where = "" if near["remote"] == LOCAL else f" on {near['remote']}"
    head = out.labelled(f"{name}: ", f"miss; nearest is {near['key'][:16]} ({near['recipe']}){where}")
    return [*head, *_changes(document["changes"])]


def of_two(document: dict[str, Any]) -> list[str]:
    """What differs between two."""
    old, new = document["old"], document["new"]
    if document["same"]:
        return out.labelled("", f"{old['name']} and {new['name']}: same key {old['key'][:16]}")
    return [*out.labelled("", f"{old['name']} → {new['name']}"), *_changes(document["changes"])]


def of_run(document: dict[str, Any]) -> list[str]:
    """Why a run compiled."""
    recipe = document["recipe"] or "nothing"
    head = f"{document['verb']} of {recipe}, {document['run']}: "
    compiled, found = out.count(document["compiled"], "graph"), document["found"]
    if document["untold"]:
        lines = out.labelled("", f"{head}nobody knows what it compiled: {_unfinished(document)}")
    elif not document["compiled"] and not document["built"]:
        lines = out.labelled("", f"{head}compiled nothing; {found} found")
    elif document["planned"] == "miss":
        lines = out.labelled("", f"{head}compiled {compiled}, as the plan was a miss")
    else:
        built = f" and built {out.count(document['built'], 'binary', 'binaries')}" if document["built"] else ""
        when = f" in: {', '.join(document['phases'])}" if document["phases"] else ""
        lines = out.labelled("", f"{head}compiled {compiled}{built} although the plan was a hit{when}; {found} found")
    for module in document["modules"]:
        took = f"  {out.duration(module['seconds'])}" if module["seconds"] else ""
        lines.append(f"  {module['name']}{took}")
        for words in module["words"]:
            lines += out.labelled("", words, 4)
    for words in document["words"]:
        lines += out.labelled("", words, 2)
    for reason, count in document["bypassed"].items():
        lines += out.labelled("", _bypass(reason, count), 2)
    if not document["ended"] and not document["untold"]:
        lines += out.labelled("", _unfinished(document), 2)
    if document["failure"]:
        lines += out.labelled("", f"it failed: {document['failure']}", 2)
    return lines


def _unfinished(document: dict[str, Any]) -> str:
    return "it ended before it told" if document["ended"] else "it was killed, or runs still"


def bypassed(document: dict[str, Any]) -> list[str]:
    """A line of a run's summary, where the run bypassed the cache or a part of it, and nobody wanted that."""
    found = {reason: count for reason, count in (document.get("bypassed") or {}).items() if reason not in CHOSEN}
    told = ", ".join(reason if count == 1 else f"{reason} ({count} times)" for reason, count in found.items())
    return out.labelled("bypassed the cache: ", told, 2) if told else []


def _bypass(reason: str, count: int) -> str:
    from cachekit.events import REASONS

    times = "" if count == 1 else f"{count} times: "
    return f"{reason}: {times}{REASONS.get(reason, 'a reason of another cachekit')}"


def _changes(changes: list[dict[str, Any]]) -> list[str]:
    lines = []
    for change in changes:
        lines += _values(change)
        for words in change["words"]:
            lines += out.labelled("", words, 4)
        follows = [other["name"] for other in change["follows"]]
        if follows:
            lines += out.labelled("with it: ", ", ".join(follows), 4)
    return lines


def _values(change: dict[str, Any]) -> list[str]:
    """`name: old → new` on a line where that fits, on three where not; what is long is cut there."""
    old, new = (_value(change[side]) if side in change else "(absent)" for side in ("old", "new"))
    columns = max(shutil.get_terminal_size().columns, SHORTEST)
    line = f"  {change['name']}: {old} → {new}"
    if len(line) <= columns:
        return [line]
    return [f"  {change['name']}:", *(_cut(f"    {words}", columns) for words in (old, f"→ {new}"))]


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def _value(value: Any) -> str:
    """As a recipe would say it."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "(none)"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value, ensure_ascii=False)
