"""The screen of `cachekit plan --instances`: instance types side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachekit.cli import out
from cachekit.text import a, dollars, span

if TYPE_CHECKING:
    from cachekit.api.answers import InstancePlan, OnInstance


def human(answer: InstancePlan) -> list[str]:
    """Instance types side by side: what training costs on each, why one is the cheapest, and who says so."""
    head = (
        f"{answer.cheapest} trains it most cheaply"
        if answer.cheapest
        else "it is not known which machine trains it most cheaply"
    )
    lines = [f"{answer.recipe}: {head}"]
    for sentence in answer.why:
        lines += out.labelled("", sentence, 2)
    able = [row for row in answer.instances if row.plan != "refused" and (row.price or row.training)]
    header = ["instance", "an hour", "trains in", "costs", "compiling", "equal at"]
    compared = any(row.equal_speed is not None for row in able)
    columns = len(header) if compared else -1
    lines += ["", *out.table([_row(row)[:columns] for row in able], header[:columns], right={1, 2, 3, 5})]
    if compared:
        lines += out.labelled(
            "", f"equal at: how many times as fast as {answer.base} a machine must train to cost the same", 2
        )
    for row in able:
        if row.training is not None:
            speed = f"{row.training.steps_per_second:g} steps a second" if row.training.steps_per_second else ""
            said = ", ".join(filter(None, [row.training.source, speed, row.training.note]))
            lines += out.labelled(f"{row.instance}: ", f"published: {said}", 2)
    for price in dict.fromkeys(row.price for row in able if row.price):
        lines += out.labelled("", f"{dollars(price.per_hour)} an hour for {a(price.instance)}: {price.source}", 2)
    reasons: dict[str, list[str]] = {}
    bare = [row.instance for row in answer.instances if row.plan != "refused" and row not in able]
    if bare:
        lines += out.labelled("neither a price nor a time is known for: ", ", ".join(bare), 2)
    for row in answer.instances:
        if row.plan == "refused":
            reasons.setdefault(row.refused, []).append(row.instance)
    for reason, names in reasons.items():
        lines += out.labelled("", f"not on {', '.join(names)}: {reason}", 2)
    return lines


def _row(row: OnInstance) -> list[str]:
    known = row.training
    takes = "unknown" if known is None or known.train_seconds is None else out.duration(known.train_seconds)
    several = f"{known.machines} x " if known is not None and known.machines > 1 else ""
    if row.compiling is not None:
        cost = row.compiling_dollars
        compiling = " to ".join(map(dollars, cost)) if cost else span(row.compiling.low, row.compiling.high)
    else:
        compiling = {"hit": "hit", "none": "-"}.get(row.plan, "unknown")
    return [
        f"{several}{row.instance}",
        dollars(row.price.per_hour) if row.price else "unknown",
        takes,
        f"{dollars(row.training_dollars)}{' (billed)' if row.billed else ''}" if known else "unknown",
        compiling,
        f"{row.equal_speed:.3g} x" if row.equal_speed is not None else "",
    ]
