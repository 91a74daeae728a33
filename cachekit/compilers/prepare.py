"""From a recipe to everything that plan, warm and train need to know about it; milliseconds, no network, no torch."""

from __future__ import annotations

from msgspec import Struct, structs

from cachekit.compilers import Compiler
from cachekit.data.shapes import shapes_of
from cachekit.key.canonical import Ingredients
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe, architecture, ingredients
from cachekit.recipe.architecture import Architecture
from cachekit.recipe.ingredients import Fingerprint, Shapes
from cachekit.store.layout import Place


class Prepared(Struct, frozen=True):
    """A recipe, and what follows from it on this machine.

    Attributes:
        source: The recipe as the user named it, for messages.
        shapes: What the rows add to the graphs: classes and choices.
        place: Where its record lies, here and on remotes.
        foreign: See `Compiler.foreign`.
        growth: See `Compiler.growth`.
    """

    recipe: Recipe
    source: str
    shapes: Shapes
    architecture: Architecture
    fingerprint: Fingerprint
    ingredients: Ingredients
    place: Place
    foreign: tuple[str, ...]
    growth: Growth

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes' names, in the order of their numbers."""
        return self.shapes.labels

    @property
    def key(self) -> str:
        """The recipe's key."""
        return self.place.key

    @property
    def model_type(self) -> str:
        """Transformers' name for the architecture's family."""
        return self.place.model_type


def prepare(recipe: Recipe, compiler: Compiler, source: str = "") -> Prepared:
    """Resolve the architecture and the labels, take the compiler's fingerprint, and make the key.

    Raises:
        CachekitError: Any of it cannot be had; the classes are those of `architecture.resolve`,
            `data.shapes` and the compiler's `fingerprint`.
    """
    found = architecture.resolve(recipe)
    architecture.check(recipe, found)
    shapes = shapes_of(recipe)
    fingerprint = compiler.fingerprint(recipe)
    made = ingredients.build(recipe, found, shapes, fingerprint, compiler.ingredients(recipe))
    place = Place(fingerprint.directory, found.model_type, made.key)
    return Prepared(
        recipe, source or recipe.name, shapes, found, fingerprint, made, place, compiler.foreign, compiler.growth
    )


def again(prepared: Prepared, compiler: Compiler) -> Prepared:
    """The same recipe for another compiler, without reading it and its model once more.

    Raises:
        CachekitError: That compiler cannot take it.
    """
    recipe, found = prepared.recipe, prepared.architecture
    fingerprint = compiler.fingerprint(recipe)
    made = ingredients.build(recipe, found, prepared.shapes, fingerprint, compiler.ingredients(recipe))
    return structs.replace(
        prepared,
        fingerprint=fingerprint,
        ingredients=made,
        place=Place(fingerprint.directory, found.model_type, made.key),
        foreign=compiler.foreign,
        growth=compiler.growth,
    )
