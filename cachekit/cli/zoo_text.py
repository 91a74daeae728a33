"""What `cachekit zoo` prints for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cachekit.cli import out
from cachekit.values import builtins

if TYPE_CHECKING:
    from cachekit.api.answers import (
        Checked,
        InstanceRow,
        ModelRow,
        RecipeEntry,
        RecipeRow,
        ToolchainRow,
        ZooExpected,
        ZooModel,
    )

PACKAGES = ("neuronx-cc", "torch-neuronx")  # of a toolchain's; the JSON has them all


def _recipe(row: RecipeRow) -> list[str]:
    price = "" if row.price_per_hour is None else f"{row.price_per_hour:.2f}"
    return [row.name, row.task, (row.instances or ("",))[0], price]


def _model(row: ModelRow) -> list[str]:
    return [row.type, _parameters(row), row.licence, row.name]


def _instance(row: InstanceRow) -> list[str]:
    cores = f"{row.chips} x {row.cores // row.chips}"
    return [row.name, row.accelerator, cores, f"{row.device_memory_gib:.0f} GiB", _price(row, month=True)]


def _toolchain(row: ToolchainRow) -> list[str]:
    versions = (row.packages.get(name, "").partition("+")[0] for name in PACKAGES)
    return [row.name, row.released, *versions, " ".join(row.targets)]


# Of each topic: the header, and the cells of a row.
TABLES: dict[str, tuple[list[str], Callable[[Any], list[str]]]] = {
    "recipes": (["recipe", "task", "instance", "$ an hour"], _recipe),
    "models": (["type", "size", "licence", "model"], _model),
    "instances": (["instance", "accelerator", "cores", "memory", "price per hour"], _instance),
    "toolchains": (["toolchain", "released", *PACKAGES, "targets"], _toolchain),
}


def listed(topic: str, rows: Sequence[RecipeRow | ModelRow | InstanceRow | ToolchainRow]) -> list[str]:
    """Rows of a topic."""
    if not rows:
        return [f"no {topic} of that kind"]
    header, cells = TABLES[topic]
    lines = out.table([cells(row) for row in rows], header)
    if topic == "recipes":
        lines += ["", "next: cachekit zoo show RECIPE, cachekit plan RECIPE, cachekit warm RECIPE"]
    return lines


def _parameters(model: ModelRow) -> str:
    return f"{model.parameters / 1e6:.0f}M"


def _price(row: InstanceRow, *, month: bool = False) -> str:
    """What an hour costs, and who says so; in a table only where and in which month."""
    quoted, paid = row.price, row.price_per_hour
    if paid is None:
        return "unknown"
    if quoted is None or quoted.per_hour != paid:
        return f"{paid:.2f} {quoted.currency if quoted else 'USD'} (yours)"
    said = f"{paid:.2f} {quoted.currency} ({quoted.region}, {quoted.date[:7] if month else quoted.date})"
    return said if month else f"{said}, {quoted.terms}; {quoted.source}"


def in_full(entry: RecipeEntry | ZooModel | InstanceRow | ToolchainRow) -> list[str]:
    """One entry; of a recipe its file, which is made to be read."""
    lines = [f"{entry.kind} {entry.name}"]
    if entry.kind == "recipe":
        if (model := entry.model) is not None:
            size = f"{_parameters(model)} parameters"
            lines += out.labelled("  model    ", f"{model.name}, {model.type}, {size}, {model.licence}")
        for expected in entry.expect:
            lines += _expected(expected)
        return [*lines, f"  file     {entry.path}", "", *entry.text.rstrip("\n").split("\n")]
    if entry.kind == "instance":
        lines += out.labelled("  price per hour ", _price(entry))
    fields = builtins(entry)
    width = max(map(len, fields)) + 2
    for field, value in fields.items():
        if field not in {"kind", "name", "price", "price_per_hour"} and value not in (None, [], (), {}, ""):
            lines += _field(field, value, width)
    return lines


def _field(field: str, value: Any, width: int, indent: int = 2) -> list[str]:
    if isinstance(value, dict):
        inner = max(map(len, value)) + 2
        deeper = (line for name, item in value.items() for line in _field(name, item, inner, indent + 2))
        return [" " * indent + field, *deeper]
    words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return out.labelled(field.ljust(width), words, indent)


def _expected(expected: ZooExpected) -> list[str]:
    said = [f"{name} {value:g}" for name, value in expected.metrics.items()]
    if expected.train_seconds is not None:
        said.append(out.duration(expected.train_seconds))
    if expected.dollars is not None:
        said.append(f"${expected.dollars:.2f}")
    if expected.cost is not None:
        said.append(f"${expected.cost:.2f} at ${expected.price_per_hour:.2f} an hour")
    elif expected.price_per_hour is not None:
        said.append(f"${expected.price_per_hour:.2f} an hour")
    source = ", ".join(part for part in (expected.source, expected.note) if part)
    return out.labelled(f"  {expected.instance.ljust(16)} ", "; ".join([*said, source]))


def checked(answer: Checked) -> list[str]:
    """What a check found."""
    lines = []
    for finding in answer.findings:
        lines.append(f"{'note' if finding.note else 'WRONG'}  {out.about(finding.where, finding.problem)}")
        if finding.hint:
            lines.append(f"         {finding.hint}")
    looked = ", ".join(out.count(number, what.removesuffix("s")) for what, number in answer.looked_at.items())
    return [*lines, f"{looked} checked: {'nothing is wrong' if answer.status == 'ok' else 'see above'}"]
