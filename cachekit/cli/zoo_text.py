"""What `cachekit zoo` prints for people."""

from __future__ import annotations

from typing import Any

from cachekit.cli import out

SHOWN = ("neuronx-cc", "torch-neuronx")  # of a toolchain's packages; the JSON has them all


def listed(topic: str, rows: list[dict[str, Any]]) -> list[str]:
    """Rows of a topic."""
    if not rows:
        return [f"no {topic} of that kind"]
    if topic == "recipes":
        table = out.table(
            [
                [row["name"], row["task"], (row["instances"] or [""])[0], _dollars(row["price_per_hour"])]
                for row in rows
            ],
            ["recipe", "task", "instance", "$ an hour"],
        )
        return [*table, "", "next: cachekit zoo show RECIPE, cachekit plan RECIPE, cachekit warm RECIPE"]
    if topic == "models":
        return out.table(
            [[row["type"], f"{row['parameters'] / 1e6:.0f}M", row["licence"], row["name"]] for row in rows],
            ["type", "size", "licence", "model"],
        )
    if topic == "toolchains":
        return out.table(
            [
                [row["name"], row["released"], *(_version(row, name) for name in SHOWN), " ".join(row["targets"])]
                for row in rows
            ],
            ["toolchain", "released", *SHOWN, "targets"],
        )
    return out.table(
        [
            [
                row["name"],
                row["accelerator"],
                f"{row['chips']} x {row['cores'] // row['chips']}",
                f"{row['device_memory_gib']:.0f} GiB",
                _price(row["price"] and {**row["price"], "date": row["price"]["date"][:7]}),
            ]
            for row in rows
        ],
        ["instance", "accelerator", "cores", "memory", "price an hour"],
    )


def _version(row: dict[str, Any], package: str) -> str:
    return str(row["packages"].get(package, "")).partition("+")[0]


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"{amount:.2f}"


def _price(price: dict[str, Any] | None) -> str:
    if not price:
        return "unknown"
    said = ", ".join(part for part in (price["region"], price["date"]) if part)
    return f"{price['per_hour']:.2f} {price['currency']} ({said})"


def in_full(document: dict[str, Any]) -> list[str]:
    """One entry; of a recipe its file, which is made to be read."""
    kind, name = document["kind"], document["name"]
    lines = [f"{kind} {name}"]
    if kind == "recipe":
        model = document["model"]
        if model is not None:
            size = f"{model['parameters'] / 1e6:.0f}M parameters"
            lines += out.labelled("  model    ", f"{model['name']}, {model['type']}, {size}, {model['licence']}")
        for expected in document["expect"]:
            lines += _expected(expected)
        return [*lines, f"  file     {document['path']}", "", *document["text"].rstrip("\n").split("\n")]
    left_out = {"kind", "name", "text", "price"}
    if "price" in document:
        price = document["price"]
        terms = f", {price['terms']}; {price['source']}" if price else ""
        lines += out.labelled("  price an hour  ", _price(price) + terms)
    width = max(map(len, document)) + 2
    for field, value in document.items():
        if field not in left_out and value not in (None, [], (), {}, ""):
            lines += _field(field, value, width)
    return lines


def _field(field: str, value: Any, width: int, indent: int = 2) -> list[str]:
    if isinstance(value, dict):
        inner = max(map(len, value)) + 2
        deeper = (line for name, item in value.items() for line in _field(name, item, inner, indent + 2))
        return [" " * indent + field, *deeper]
    words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return out.labelled(field.ljust(width), words, indent)


def _expected(expected: dict[str, Any]) -> list[str]:
    said = [f"{name} {value:g}" for name, value in expected["metrics"].items()]
    if expected["train_seconds"] is not None:
        said.append(out.duration(expected["train_seconds"]))
    if expected["dollars"] is not None:
        said.append(f"${expected['dollars']:.2f}")
    if expected["cost"] is not None:
        said.append(f"${expected['cost']:.2f} at ${expected['price_per_hour']:.2f} an hour")
    elif expected["price_per_hour"] is not None:
        said.append(f"${expected['price_per_hour']:.2f} an hour")
    source = ", ".join(part for part in (expected["source"], expected["note"]) if part)
    return out.labelled(f"  {expected['instance'].ljust(16)} ", "; ".join([*said, source]))


def checked(document: dict[str, Any]) -> list[str]:
    """What a check found."""
    lines = []
    for finding in document["findings"]:
        lines.append(f"{'note' if finding['note'] else 'WRONG'}  {finding['where']}: {finding['problem']}")
        if finding["hint"]:
            lines.append(f"         {finding['hint']}")
    looked = ", ".join(out.count(number, what.removesuffix("s")) for what, number in document["looked_at"].items())
    return [*lines, f"{looked} checked: {'nothing is wrong' if document['status'] == 'ok' else 'see above'}"]
