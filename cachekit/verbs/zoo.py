"""What the zoo has, as rows to choose from and as one entry in full, each with what it costs.

Prices are the registry's, or whoever asks says their own. What a recipe is expected to cost is that price times the
time that its source gives; what the source itself says stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field, structs

from cachekit import recipe
from cachekit.compilers import registry
from cachekit.compilers.prepare import prepare
from cachekit.errors import UnknownNameError, UsageError
from cachekit.key.cost import Expected
from cachekit.recipe import Recipe, zoo
from cachekit.recipe.price import Price, Prices, published_time
from cachekit.recipe.schema import Expectation
from cachekit.recipe.tasks import TASKS
from cachekit.values import Answer


class RecipeRow(Answer, frozen=True, tag="cachekit/zoo-recipe-row/1"):
    """A recipe of `zoo ls`.

    Attributes:
        instances: Those that it is known to run on.
        price_per_hour: Of the first of these.
        path: Of its file.
    """

    name: str
    task: str
    model: str
    data: str | None
    instances: tuple[str, ...]
    price_per_hour: float | None
    description: str
    path: str


class ModelRow(Answer, frozen=True, tag="cachekit/zoo-model-row/1"):
    """A model of `zoo ls models`."""

    name: str
    type: str
    parameters: int
    licence: str
    tasks: tuple[str, ...]
    aliases: tuple[str, ...]


class InstanceRow(zoo.Instance, Answer, frozen=True, kw_only=True, tag="cachekit/zoo-instance/1"):
    """An instance of `zoo ls instances`, and of `zoo show`.

    Attributes:
        price_per_hour: As you said, or as the registry quotes it.
        recipes: In `zoo show`: those that are known to run on it.
    """

    kind: Literal["instance"] = "instance"
    name: str
    price_per_hour: float | None = None
    recipes: tuple[str, ...] | UnsetType = UNSET


class ToolchainRow(zoo.Toolchain, Answer, frozen=True, kw_only=True, tag="cachekit/zoo-toolchain/1"):
    """A toolchain of `zoo ls toolchains`, and of `zoo show`."""

    kind: Literal["toolchain"] = "toolchain"
    name: str


class ZooModel(ModelRow, frozen=True, kw_only=True, tag="cachekit/zoo-model/1"):
    """A model in full.

    Attributes:
        recipes: In `zoo show`: those that use it.
    """

    kind: Literal["model"] = "model"
    config: dict[str, Any]
    source: str
    compilers: dict[str, str]
    recipes: tuple[str, ...] | UnsetType = UNSET


class ZooExpected(Expectation, frozen=True, kw_only=True):
    """What a run is known to reach and to take, and what it costs at the price of an hour."""

    price_per_hour: float | None
    cost: float | None


class ZooCompiling(Struct, frozen=True, kw_only=True):
    """How long compiling takes somebody without any record, as `plan` says it with the newest toolchain.

    Attributes:
        instance: The machine that it is for.
        expected: How long, and how that is known.
        cost: The least and the most, at the price of an hour; None where nobody says that.
        price: What an hour costs, and who says so and when.
    """

    instance: str
    expected: Expected
    cost: tuple[float, float] | None
    price: Price | None


class RecipeEntry(Answer, frozen=True, kw_only=True, tag="cachekit/zoo-recipe/1"):
    """`zoo show` of a recipe.

    Attributes:
        compiling: For each instance that it is known to run on, and that needs a compile.
    """

    kind: Literal["recipe"] = "recipe"
    name: str
    path: str
    recipe: Recipe
    model: ZooModel | None
    expect: tuple[ZooExpected, ...]
    compiling: tuple[ZooCompiling, ...]
    text: str


ZooRow = RecipeRow | ModelRow | InstanceRow | ToolchainRow
ZooEntry = RecipeEntry | ZooModel | InstanceRow | ToolchainRow


class Filter(Struct, frozen=True):
    """Which rows are wanted; an empty field wants all.

    Attributes:
        task: Of a recipe, or of a model.
        model: A model's id, another name of it, or its type; a part of the id will do.
        instance: An instance type, or how it begins: `trn1`.
        max_price: An hour of the instance costs that much at the most; without a known price it is left out.
        prices: What an hour of an instance costs.
    """

    task: str = ""
    model: str = ""
    instance: str = ""
    max_price: float | None = None
    prices: Prices = field(default_factory=lambda: Prices({}))

    def price(self, instance: str) -> float | None:
        """What an hour of an instance costs; None is unknown."""
        found = self.prices.of(instance)
        return found.per_hour if found else None


# What each topic can be filtered by.
FILTERS = {
    "recipes": {"task", "model", "instance", "max_price"},
    "models": {"task", "model"},
    "instances": {"instance", "max_price"},
    "toolchains": set[str](),
}


def rows(topic: str, wanted: Filter) -> Sequence[ZooRow]:
    """The rows of a topic.

    Raises:
        UsageError: There is no such topic, task or instance, the topic has nothing of the kind, or that is no price.
    """
    if topic not in FILTERS:
        raise UsageError(f"the zoo has no topic {topic!r}", hint=f"one of {', '.join(FILTERS)}")
    given = {"task": wanted.task, "model": wanted.model, "instance": wanted.instance, "max_price": wanted.max_price}
    for name, value in given.items():
        if value not in {"", None} and name not in FILTERS[topic]:
            option = "--" + name.replace("_", "-")
            able = ", ".join(other for other, names in FILTERS.items() if name in names)
            raise UsageError(f"{topic} cannot be chosen with {option}", hint=f"the option chooses among {able}")
    if wanted.max_price is not None and not wanted.max_price >= 0:  # not a number either
        raise UsageError(f"--max-price {wanted.max_price:g}: not an amount of dollars", hint="--max-price 2")
    if wanted.task and wanted.task not in TASKS:
        near = get_close_matches(wanted.task, TASKS, 1, 0.6)
        raise UsageError(f"there is no task {wanted.task!r}", hint=f"one of {', '.join(near or TASKS)}")
    if wanted.instance and not any(_is_instance(name, wanted.instance) for name in zoo.instances()):
        zoo.instance(wanted.instance)
    make: dict[str, Callable[[Filter], Sequence[ZooRow]]]
    make = {"recipes": _recipes, "models": _models, "instances": _instances, "toolchains": _toolchains}
    return make[topic](wanted)


def _recipes(wanted: Filter) -> list[RecipeRow]:
    found = []
    for name, path in zoo.recipes().items():
        loaded = recipe.load(path)
        used = list(dict.fromkeys(expected.instance for expected in loaded.expect))
        if wanted.instance:
            used = [instance for instance in used if _is_instance(instance, wanted.instance)]
        prices = {instance: wanted.price(instance) for instance in used}
        if wanted.max_price is not None:
            used = [name for name, price in prices.items() if price is not None and price <= wanted.max_price]
        chosen = not (wanted.instance or wanted.max_price is not None) or bool(used)
        if (wanted.task and loaded.task != wanted.task) or not chosen or not _has_model(loaded, wanted.model):
            continue
        found.append(
            RecipeRow(
                name=name,
                task=loaded.task,
                model=_model_name(loaded),
                data=loaded.data.id or loaded.data.path or loaded.data.train_file,
                instances=tuple(used),
                price_per_hour=prices.get(used[0]) if used else None,
                description=loaded.description.strip(),
                path=str(path),
            )
        )
    return found


def _model_name(loaded: Recipe) -> str:
    return loaded.model.id or loaded.model.package or loaded.model.path or ""


def _has_model(loaded: Recipe, name: str) -> bool:
    entry = zoo.model(loaded.model.id) if name and loaded.model.id else None
    return not name or (_is_model(entry, name) if entry else name.lower() in _model_name(loaded).lower())


def _is_model(entry: zoo.ModelEntry, name: str) -> bool:
    if name in {entry.config["model_type"], entry.id, *entry.aliases}:
        return True
    # `bert` is a type, and bert-base-uncased a name: distilbert's has both in it, and nobody who says them means that.
    entries = zoo.models().values()
    known = {word for other in entries for word in (other.config["model_type"], other.id, *other.aliases)}
    return name not in known and any(name.lower() in other.lower() for other in (entry.id, *entry.aliases))


def _is_instance(name: str, wanted: str) -> bool:
    return name == wanted or name.removeprefix("ml.").startswith(wanted if "." in wanted else f"{wanted}.")


def _models(wanted: Filter) -> list[ModelRow]:
    return [
        ModelRow(
            entry.id, entry.config["model_type"], entry.parameters, entry.licence, tuple(entry.tasks), entry.aliases
        )
        for entry in zoo.models().values()
        if (not wanted.task or wanted.task in entry.tasks) and (not wanted.model or _is_model(entry, wanted.model))
    ]


def _instances(wanted: Filter) -> list[InstanceRow]:
    found = []
    for name, instance in zoo.instances().items():
        price = wanted.price(name)
        dear = wanted.max_price is not None and (price is None or price > wanted.max_price)
        if not dear and (not wanted.instance or _is_instance(name, wanted.instance)):
            found.append(_instance(name, instance, wanted))
    return found


def _instance(
    name: str, instance: zoo.Instance, wanted: Filter, recipes: tuple[str, ...] | UnsetType = UNSET
) -> InstanceRow:
    return InstanceRow(**structs.asdict(instance), name=name, price_per_hour=wanted.price(name), recipes=recipes)


def _toolchains(_: Filter) -> list[ToolchainRow]:
    return [ToolchainRow(**structs.asdict(release), name=name) for name, release in zoo.toolchains().items()]


def show(name: str, wanted: Filter) -> ZooEntry:
    """An entry in full, by name: a recipe, a model, an instance or a toolchain, looked for in this order.

    Raises:
        UnknownNameError: None of them has that name.
        RecipeError: It is a file, and no recipe.
    """
    said = name
    try:
        path = zoo.recipe_path(name)
    except UnknownNameError:
        path = None
    if path is not None and (name in zoo.recipes() or path.is_file()):
        loaded = recipe.load(path)
        entry = zoo.model(loaded.model.id) if loaded.model.id else None
        return RecipeEntry(
            name=loaded.name,
            path=str(path),
            recipe=loaded,
            model=None if entry is None else _model(entry),
            expect=tuple(_cost(expected, wanted) for expected in loaded.expect),
            compiling=() if entry is None else tuple(_compiling(loaded, wanted)),
            text=path.read_text(encoding="utf-8"),
        )
    if (entry := zoo.model(name)) is not None:
        return _model(entry, tuple(other for other, file in zoo.recipes().items() if _uses(recipe.load(file), entry)))
    if (instance := zoo.instances().get(name)) is not None:
        using = tuple(row.name for row in _recipes(Filter(instance=name)) if name in row.instances)
        return _instance(name, instance, wanted, using)
    if (release := zoo.toolchains().get(name)) is not None:
        return ToolchainRow(**structs.asdict(release), name=name)
    models = [other for entry in zoo.models().values() for other in (entry.id, *entry.aliases)]
    if path is not None and path.stem in zoo.recipes():  # `bert.yaml`, which is not here
        name = path.stem
    near = zoo.nearest(name, [*zoo.recipes(), *models, *zoo.instances(), *zoo.toolchains()])
    raise UnknownNameError(
        f"the zoo has nothing named {said!r}",
        cause="it has recipes, models, instances and toolchains",
        hint=f"did you mean {near[0]}?"
        if near
        else " and ".join(f"`cachekit zoo ls {topic}`" for topic in FILTERS) + " list them",
    )


def _uses(loaded: Recipe, entry: zoo.ModelEntry) -> bool:
    return loaded.model.id in {entry.id, *entry.aliases}


def _model(entry: zoo.ModelEntry, recipes: tuple[str, ...] | UnsetType = UNSET) -> ZooModel:
    said = structs.asdict(entry)
    return ZooModel(name=said.pop("id"), type=entry.config["model_type"], **said, recipes=recipes)


def _cost(expected: Expectation, wanted: Filter) -> ZooExpected:
    """What a run is expected to take, and to cost at the price of an hour; None where that cannot be known."""
    price = wanted.price(expected.instance)
    known = price is not None and expected.train_seconds is not None
    return ZooExpected(
        **structs.asdict(expected),
        price_per_hour=price,
        cost=round((price or 0) * (expected.train_seconds or 0) * expected.machines / 3600, 2) if known else None,
    )


def _compiling(loaded: Recipe, wanted: Filter) -> Iterator[ZooCompiling]:
    """How long compiling takes on each instance, by what others published; on the first one where none is named."""
    known_to_run = dict.fromkeys(one.instance for one in loaded.expect if zoo.instance(one.instance).target)  # no GPU
    for instance in known_to_run or [next(name for name, one in zoo.instances().items() if one.target)]:
        made = prepare(loaded, registry.select(loaded.compiler.name, instance=instance))
        known = published_time(
            made.fingerprint.compiler, instance, made.model_type, made.ingredients.hard, made.compiler.growth
        )
        if known is not None:
            price = wanted.prices.of(instance)
            cost = (price.cost(known.low), price.cost(known.high)) if price else None
            yield ZooCompiling(instance=instance, expected=known, cost=cost, price=price)
