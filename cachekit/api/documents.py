"""What the JSON of those verbs is like that answer rows: of the zoo, of a record with its modules, of compiled files.

`--schema` is made from these types.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from cachekit.recipe.schema import Recipe
from cachekit.store.leaks import Leaks
from cachekit.store.record import Provenance

State = Literal["verified", "damaged", "absent", "unknown"]


class RecipeRow(Struct, frozen=True):
    """A recipe of `zoo ls`."""

    name: str
    task: str
    model: str
    data: str | None
    instances: tuple[str, ...]
    price_per_hour: float | None
    description: str
    path: str


class ModelRow(Struct, frozen=True):
    """A model of `zoo ls models`."""

    name: str
    type: str
    parameters: int
    licence: str
    tasks: tuple[str, ...]
    aliases: tuple[str, ...]


class HourPrice(Struct, frozen=True):
    """What an hour costs; the region of a price of one's own is `yours`, and its date is empty."""

    per_hour: float
    currency: str
    region: str
    terms: str
    source: str
    date: str


class InstanceRow(Struct, frozen=True):
    """An instance of `zoo ls instances`."""

    name: str
    accelerator: str
    chips: int
    cores: int
    device_memory_gib: float
    source: str
    target: str
    vcpus: int | None
    host_memory_gib: float | None
    network_gbps: float | None
    price: HourPrice | None


class ToolchainRow(Struct, frozen=True):
    """A toolchain of `zoo ls toolchains`."""

    name: str
    compiler: str
    released: str
    packages: dict[str, str]
    targets: tuple[str, ...]
    source: str
    open: dict[str, str]


class ZooModel(ModelRow, frozen=True):
    """A model in full."""

    config: dict[str, Any]
    source: str
    compilers: dict[str, str]
    compile_seconds: dict[str, Any]


class ZooExpected(Struct, frozen=True):
    """What a run is known to reach and to take, and what it costs at the price of an hour."""

    instance: str
    source: str
    metrics: dict[str, float]
    train_seconds: float | None
    dollars: float | None
    note: str
    price_per_hour: float | None
    cost: float | None


class RecipeEntry(Struct, frozen=True, tag_field="kind", tag="recipe"):
    """`zoo show` of a recipe."""

    name: str
    path: str
    recipe: Recipe
    model: ZooModel | None
    expect: tuple[ZooExpected, ...]
    text: str


class ZooModelEntry(ZooModel, frozen=True, tag_field="kind", tag="model"):
    """`zoo show` of a model, with the recipes that use it."""

    recipes: tuple[str, ...]


class InstanceEntry(InstanceRow, frozen=True, tag_field="kind", tag="instance"):
    """`zoo show` of an instance, with the recipes that are known to run on it."""

    recipes: tuple[str, ...]


class ToolchainEntry(ToolchainRow, frozen=True, tag_field="kind", tag="toolchain"):
    """`zoo show` of a toolchain."""


class StoredFile(Struct, frozen=True):
    """A file of a module."""

    path: str
    size: int
    sha256: str


class GraphSummary(Struct, frozen=True):
    """What a module's NEFF says of itself; only its state and reason where it is not whole."""

    state: State
    reason: str
    inputs: int
    outputs: int
    compiler: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    chip: str | UnsetType = UNSET
    lnc: int | UnsetType = UNSET
    built: str | UnsetType = UNSET


class StoredModule(Struct, frozen=True):
    """A module of a record; `neff` or `neffs`, their number, where a Neuron compiler made it."""

    name: str
    files: tuple[StoredFile, ...]
    seconds: float | None
    neff: GraphSummary | UnsetType | None = UNSET
    neffs: int | UnsetType = UNSET


class StoredReuse(Struct, frozen=True):
    """What the warm reused of another record."""

    key: str
    graphs: int
    cold_seconds: float


class StoredRecord(Struct, frozen=True, kw_only=True):
    """`store show`: a record whole; whether its ingredients give its key, and whether its files are whole."""

    key: str
    compiler: str
    directory: str
    model_type: str
    recipe: str
    hard: dict[str, Any]
    soft: dict[str, Any]
    modules: tuple[StoredModule, ...]
    graphs: int
    compile_seconds: float
    provenance: Provenance
    schema: int
    reused: StoredReuse | UnsetType = UNSET
    bytes: int
    key_of_ingredients: str
    whole: bool


class GraphTensor(Struct, frozen=True):
    """An input or output of a graph."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    bytes: int | None


class RefusedFile(Struct, frozen=True):
    """A file that `store neff` cannot describe, and why."""

    file: str
    reason: str
    module: str | UnsetType = UNSET


class DamagedFile(RefusedFile, frozen=True, tag_field="state", tag="damaged"):
    """A file that is cut short or changed."""


class AbsentFile(RefusedFile, frozen=True, tag_field="state", tag="absent"):
    """No file, or one that cannot be read."""


class UnknownFile(RefusedFile, frozen=True, tag_field="state", tag="unknown"):
    """A file that is no NEFF of a known kind."""


class DescribedFile(Struct, frozen=True, tag_field="state", tag="verified"):
    """A whole NEFF, described by `store neff`."""

    file: str
    reason: str
    digest: str
    compressed: bool
    compiler: str
    target: str
    chip: str
    revision: str
    subgraphs: tuple[str, ...]
    features: tuple[str, ...]
    ranks: int
    built: str
    name: str
    module: str
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    members: int
    leaks: Leaks
    notes: tuple[str, ...]
    package_version: int
    build: str
    uuid: str
    cores: int
    lnc: int
    bytes: int
    neff_version: str
    feature_bits: str
