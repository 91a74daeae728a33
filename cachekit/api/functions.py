"""What needs no `Cache`: the registry, recipes of one's own, what a word names, and what an answer's JSON is like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cachekit.errors import CachekitError, ErrorDocument, UsageError
from cachekit.values import Failed

if TYPE_CHECKING:
    from cachekit.compilers.graphs import CompiledFile
    from cachekit.recipe.price import Prices
    from cachekit.verbs.zoo import ZooEntry, ZooRow
    from cachekit.verbs.zoo_check import Checked, NewRecipe


def names(kind: str) -> list[str]:
    """All names of a kind: recipes, instances, toolchains or compilers."""
    if kind == "compilers":
        from cachekit.compilers.registry import NAMES

        return ["auto", *NAMES]
    from cachekit.recipe import zoo

    known: dict[str, Callable[[], Iterable[str]]]
    known = {"recipes": zoo.recipes, "instances": zoo.instances, "toolchains": zoo.toolchains}
    return list(known[kind]())


def zoo_rows(
    topic: str = "recipes",
    *,
    task: str = "",
    model: str = "",
    instance: str = "",
    max_price: float | None = None,
    price: Sequence[str] = (),
) -> Sequence[ZooRow]:
    """Recipes, models, instances or toolchains of the registry. `cachekit zoo ls`.

    Args:
        topic: Which of them.
        task: Only what is for it.
        model: An id, a part of one, or a type: `bert`.
        instance: An instance type, or how it begins: `trn1`.
        max_price: An hour of the instance costs that much at the most.
        price: What you pay for an hour: `["trn1.2xlarge=0.40"]`.

    Raises:
        UsageError: There is no such topic, or that is not a price.
    """
    from cachekit.verbs import zoo as zoo_list

    return zoo_list.rows(topic, zoo_list.Filter(task, model, instance, max_price, own_prices(price)))


def zoo_entry(name: str, *, price: Sequence[str] = ()) -> ZooEntry:
    """One of them in full, with what it is expected to cost. `cachekit zoo show`.

    Raises:
        UnknownNameError: The registry has none of that name.
    """
    from cachekit.verbs import zoo as zoo_list

    return zoo_list.show(name, zoo_list.Filter(prices=own_prices(price)))


def check_recipes(recipes: Sequence[str | Path] = ()) -> Checked:
    """Check recipes, or all that comes along, without the network. `cachekit zoo check`.

    Returns:
        What was looked at and found; `error()` is what to raise where something is wrong.
    """
    from cachekit.recipe import zoo
    from cachekit.verbs import zoo_check

    paths = [zoo.recipe_path(str(recipe)) for recipe in recipes]
    return zoo_check.check_files(paths) if paths else zoo_check.check_zoo()


def new_recipe(source: Path | Sequence[str]) -> NewRecipe:
    """Turn another trainer's file, or the words of a command line, into a recipe. `cachekit zoo new`.

    Raises:
        RecipeError: It cannot be read, or is of no kind that is known.
    """
    from cachekit.verbs.zoo_check import new_recipe

    return new_recipe(source)


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema of a recipe. `cachekit zoo schema`."""
    from cachekit.recipe import json_schema

    return json_schema()


def neffs(files: Sequence[Path]) -> list[CompiledFile]:
    """What compiled files are, whether they are whole, and what they leak. `cachekit store neff`."""
    from cachekit.verbs.records import compiled_files

    return compiled_files(files)


def own_prices(price: Sequence[str]) -> Prices:
    """What an hour of each instance type costs somebody: `["trn1.2xlarge=0.40"]`.

    Raises:
        UsageError: A price is of no instance type.
    """
    from cachekit.errors import UsageError
    from cachekit.recipe import price as prices

    found = prices.read(price)
    if bare := next((one for one in price if "=" not in one), ""):
        raise UsageError(
            f"--price {bare}: not of the form TYPE=DOLLARS",
            cause="several instance types are compared here",
            hint="--price trn1.2xlarge=0.40",
        )
    return found


def environment_warnings() -> list[str]:
    """What is odd about this environment, whatever is asked for, in sentences.

    A variable that is called as a setting is and that nothing reads; another project of the same import name, of which
    one overwrites the other's files when it is installed.
    """
    from cachekit.config import unknown_variables
    from cachekit.host import OTHER, OWN, other_project

    told = unknown_variables()
    if other := other_project():
        version, place = other
        told.append(
            f"{place} has {OTHER} {version}, another project that is imported under the same name: one breaks "
            "the other; "
            f"keep {OWN}: python -m pip uninstall {OTHER} {OWN}, then install {OWN} again"
        )
    return told


def is_record(name: str) -> bool:
    """Whether a name is the first digits of a key, or a file with a record: anything else is a recipe's."""
    from cachekit.verbs.entry import means_key
    from cachekit.verbs.why import file_of_one

    return means_key(name) or file_of_one(name) is not None


def is_bundle(target: str) -> bool:
    """Whether a target of an export is a bundle's file; otherwise it is the folder of a Neuron cache.

    Raises:
        UsageError: The target is called as another kind of archive is, or as no folder of this machine.
    """
    from cachekit.disk import local_folder
    from cachekit.verbs.export import is_bundle

    return is_bundle(local_folder(target), target)


def is_file(source: str) -> bool:
    """Whether a source of an import is a file, and so a bundle.

    Raises:
        UsageError: The source is called as a bundle is, and is not there; or it is nothing of this machine.
    """
    from cachekit.disk import local_folder

    path = local_folder(source)
    if path.suffix == ".tar" and not path.exists():
        raise UsageError(f"there is no file {path}", hint="name a bundle of `cachekit store export`")
    return path.exists() and not path.is_dir()


def schema(title: str, answers: Sequence[Any]) -> dict[str, Any]:
    """The JSON Schema of a verb's answer.

    Args:
        title: The command.
        answers: The types that the answer may be of; an error is one more.
    """
    made, parts = msgspec.json.schema_components([*answers, Failed], schema_hook=_of, ref_template="#/$defs/{name}")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, "anyOf": list(made), "$defs": parts}


def _of(kind: type) -> dict[str, Any]:
    if issubclass(kind, CachekitError):
        parts = msgspec.json.schema_components([ErrorDocument])[1]
        return dict(parts[ErrorDocument.__name__])
    return {"type": "string"}  # a path
