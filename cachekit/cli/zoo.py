"""`cachekit zoo`: the recipes, models and instances that come along."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cachekit.cli import options, out
from cachekit.errors import UsageError

NAME = "zoo"
SHOWN = ("neuronx-cc", "torch-neuronx")  # of a toolchain's packages; the JSON has them all
TOPICS = ("recipes", "models", "instances", "toolchains", "schema")

Topic = Annotated[
    str, typer.Argument(metavar="[TOPIC]", help="recipes, models, instances, toolchains, schema (of a recipe).")
]


def command(
    topic: Topic = "recipes",
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> int:
    """List recipes, models, instances or toolchains; print the schema.

    Example:  cachekit zoo models
    """
    out.setup(format, quiet=quiet, verbose=verbose)
    if topic not in TOPICS:
        raise UsageError(f"zoo has no topic {topic!r}", hint=f"one of {', '.join(TOPICS)}")
    if topic == "schema":
        import json

        from cachekit.recipe import json_schema

        out.text(json.dumps(json_schema(), indent=2))
        return 0
    rows = {"recipes": _recipes, "models": _models, "instances": _instances, "toolchains": _toolchains}[topic]()
    out.data(rows, lambda found: _human(topic, found), lambda found: "\n".join(row["name"] for row in found))
    return 0


def _recipes() -> list[dict[str, Any]]:
    from cachekit import recipe, zoo

    rows = []
    for name, path in zoo.recipes().items():
        loaded = recipe.load(path)
        rows.append(
            {
                "name": name,
                "task": loaded.task,
                "model": loaded.model.id or loaded.model.package or loaded.model.path,
                "data": loaded.data.id or loaded.data.path or loaded.data.train_file,
                "description": loaded.description.strip(),
                "path": str(path),
            }
        )
    return rows


def _models() -> list[dict[str, Any]]:
    from cachekit import zoo

    return [
        {
            "name": entry.id,
            "type": entry.config["model_type"],
            "parameters": entry.parameters,
            "licence": entry.licence,
            "tasks": list(entry.tasks),
            "aliases": list(entry.aliases),
        }
        for entry in zoo.models().values()
    ]


def _instances() -> list[dict[str, Any]]:
    import msgspec

    from cachekit import zoo

    return [{"name": name, **msgspec.to_builtins(instance)} for name, instance in zoo.instances().items()]


def _toolchains() -> list[dict[str, Any]]:
    import msgspec

    from cachekit import zoo

    return [{"name": name, **msgspec.to_builtins(release)} for name, release in zoo.toolchains().items()]


def _human(topic: str, rows: list[dict[str, Any]]) -> list[str]:
    if topic == "recipes":
        header = ["recipe", "task", "model"]
        lines = out.table([[row["name"], row["task"], str(row["model"])] for row in rows], header)
        return [*lines, "", "next: cachekit plan RECIPE, cachekit warm RECIPE"]
    if topic == "models":
        return out.table(
            [[r["type"], f"{r['parameters'] / 1e6:.0f}M", r["licence"], r["name"]] for r in rows],
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
                _price(row["price"]),
            ]
            for row in rows
        ],
        ["instance", "accelerator", "cores", "memory", "price an hour"],
    )


def _version(row: dict[str, Any], package: str) -> str:
    return str(row["packages"].get(package, "")).partition("+")[0]


def _price(price: dict[str, Any] | None) -> str:
    return f"{price['per_hour']:.2f} {price['currency']} ({price['region']}, {price['date']})" if price else "unknown"
