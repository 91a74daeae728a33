"""What is known of other tools' settings: `registry/conversions.yaml`, typed. Each part names its source."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct

from cachekit.recipe import zoo
from cachekit.recipe.schema import TaskName


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """One of Transformers' example scripts.

    Attributes:
        task: Which recipes stand for it.
        training: What it takes where nothing is said, and a recipe takes something else.
        data: Its arguments that name columns and splits, and the fields of `data` that stand for them.
        dynamic: It fills a batch up to its longest text where no length is said, which would be a graph a length.
        finds: How it finds the columns of a file that somebody brings; empty where a recipe finds the same.
        model: The model that it takes where none is named.
    """

    task: TaskName
    training: dict[str, Any] = {}
    data: dict[str, str] = {}
    dynamic: bool = False
    finds: str = ""
    model: str = ""


class Examples(Struct, frozen=True, forbid_unknown_fields=True):
    """Transformers' example scripts, and the launchers before them."""

    source: str
    scripts: dict[str, Script]
    training: dict[str, str]
    lora: dict[str, str]
    parallel: dict[str, str]
    workers: tuple[str, ...]
    meeting: tuple[str, ...]
    needless: frozenset[str]
    files: dict[str, tuple[str, ...]]
    reasons: dict[str, str]
    environment: tuple[str, ...]
    environment_ours: dict[str, str]


class DataSets(Struct, frozen=True, forbid_unknown_fields=True):
    """Splits, columns and labels of data sets on the Hub: fields of `data`."""

    source: str
    fields: dict[str, dict[str, Any]]


class Nxdt(Struct, frozen=True, forbid_unknown_fields=True):
    """NeuronX Distributed Training. `numbers`: fields of a recipe, and the paths that say them, the first one first."""

    source: str
    numbers: dict[str, tuple[str, ...]]
    config: dict[str, str]
    modules: dict[str, tuple[str, ...]]
    schedules: dict[str, str]
    reasons: dict[str, str]


class Metaflow(Struct, frozen=True, forbid_unknown_fields=True):
    """metaflow-trainium."""

    source: str
    names: dict[str, str]
    shapeless: frozenset[str]
    reasons: dict[str, str]


class Conversions(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    examples: Examples
    data_sets: DataSets
    nxdt: Nxdt
    metaflow: Metaflow


@cache
def tables() -> Conversions:
    """The file's contents, read once."""
    return zoo.registered("conversions.yaml", Conversions)


def data_fields(name: str, config: Any = None) -> dict[str, Any]:
    """Fields of `data` for a data set of the Hub; empty where nothing is known of it."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    known = tables().data_sets.fields
    return dict(known.get(f"{last}/{str(config).lower()}") or known.get(last, {}))
