"""What comes along with cachekit, and recipes of one's own: the registry, its checks, and recipes out of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachekit.compilers.graphs import CompiledFile
    from cachekit.recipe.price import Prices
    from cachekit.verbs.zoo import ZooEntry, ZooRow
    from cachekit.verbs.zoo_check import Checked
    from cachekit.verbs.zoo_new import NewRecipe


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

    return zoo_list.rows(topic, zoo_list.Filter(task, model, instance, max_price, _own(price)))


def zoo_entry(name: str, *, price: Sequence[str] = ()) -> ZooEntry:
    """One of them in full, with what it is expected to cost. `cachekit zoo show`.

    Raises:
        UnknownNameError: The registry has none of that name.
    """
    from cachekit.verbs import zoo as zoo_list

    return zoo_list.show(name, zoo_list.Filter(prices=_own(price)))


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
    from cachekit.verbs.zoo_new import new_recipe

    return new_recipe(source)


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema of a recipe. `cachekit zoo schema`."""
    from cachekit.recipe import json_schema

    return json_schema()


def neffs(files: Sequence[Path]) -> list[CompiledFile]:
    """What compiled files are, whether they are whole, and what they leak. `cachekit store neff`."""
    from cachekit.verbs.inspect import compiled_files

    return compiled_files(files)


def _own(price: Sequence[str]) -> Prices:
    from cachekit.errors import UsageError
    from cachekit.recipe import price as prices

    found = prices.read(price)
    if found.instance or "" in found.own:
        raise UsageError(
            f"--price {found.instance or found.own['']}: not of the form TYPE=DOLLARS",
            hint="--price trn1.2xlarge=0.40",
        )
    return found
