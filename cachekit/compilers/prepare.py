"""From a recipe to everything that plan, warm and train need to know about it; milliseconds, no network, no torch."""

from __future__ import annotations

from msgspec import Struct, structs

from cachekit.compilers import Compiler, registry
from cachekit.data.shapes import shapes_of
from cachekit.key.canonical import Ingredients
from cachekit.recipe import Recipe, architecture, ingredients
from cachekit.recipe.architecture import Architecture
from cachekit.recipe.ingredients import Fingerprint, Shapes
from cachekit.store.layout import Place

SALT = "trust.salt"


def salted(made: Ingredients, salt: str) -> Ingredients:
    """Ingredients with the salt of the settings, if there is one: with another salt all older records are misses."""
    return structs.replace(made, hard={**made.hard, SALT: salt}) if salt else made


class Prepared(Struct, frozen=True):
    """A recipe, and what follows from it for a compiler on a machine.

    Attributes:
        source: The recipe as the user named it, for messages.
        shapes: What the rows add to the graphs: classes and choices.
        place: Where its record lies, here and on remotes.
    """

    recipe: Recipe
    source: str
    compiler: Compiler
    shapes: Shapes
    architecture: Architecture
    fingerprint: Fingerprint
    ingredients: Ingredients
    place: Place

    @property
    def tries_together(self) -> bool:
        """A trial run of it is one run with those of the other machines that train together."""
        return self.recipe.parallel.nodes > 1 and self.compiler.trial_needs_all

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


def prepare(recipe: Recipe, compiler: Compiler, source: str = "", *, salt: str = "") -> Prepared:
    """Resolve the architecture and the labels, take the compiler's fingerprint, and make the key.

    Args:
        recipe: The recipe.
        compiler: The compiler.
        source: The recipe as the user named it; by default its name.
        salt: Of the settings; see `salted`.

    Raises:
        CachekitError: Any of it cannot be found or read; the classes are those of `architecture.resolve`,
            `data.shapes` and the compiler's `fingerprint`.
    """
    found = architecture.resolve(recipe)
    architecture.check(recipe, found)
    return _made(recipe, compiler, source or recipe.name, found, shapes_of(recipe), salt=salt)


def again(prepared: Prepared, compiler: Compiler) -> Prepared:
    """The same recipe for another compiler, without reading it and its model once more.

    Raises:
        CachekitError: That compiler cannot take it.
    """
    salt = prepared.ingredients.hard.get(SALT, "")
    return _made(prepared.recipe, compiler, prepared.source, prepared.architecture, prepared.shapes, salt=salt)


def _made(
    recipe: Recipe, compiler: Compiler, source: str, found: Architecture, shapes: Shapes, *, salt: str
) -> Prepared:
    fingerprint = compiler.fingerprint(recipe)
    if not fingerprint.elsewhere and (idle := registry.idle_device(fingerprint.compiler)):
        fingerprint = structs.replace(fingerprint, lacks={**fingerprint.lacks, "accelerator": idle})
    made = salted(ingredients.build(recipe, found, shapes, fingerprint, compiler.ingredients(recipe)), salt)
    place = Place(fingerprint.directory, found.model_type, made.key)
    return Prepared(recipe, source, compiler, shapes, found, fingerprint, made, place)
