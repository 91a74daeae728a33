"""What a person names: a recipe, or the key of one; and options that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachekit.errors import UnknownNameError, UsageError
from cachekit.recipe import zoo

if TYPE_CHECKING:
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.config import Config
    from cachekit.recipe.variant import Variant


def check_contradiction(*, require_warm: bool, recache: bool) -> None:
    """Refuse to compile what must not be compiled.

    Raises:
        UsageError: Both were asked for.
    """
    if require_warm and recache:
        raise UsageError(
            "--require-warm and --recache contradict each other",
            cause="the one forbids what the other asks for: to compile",
            hint="leave one of them out",
        )


def key_of(config: Config, variant: Variant, machine: Elsewhere | None = None) -> str:
    """The key of a recipe that is named; any other name is taken for the beginning of a key.

    Args:
        config: Settings.
        variant: The recipe, or the key.
        machine: Which its key is for, where that is not this one.
    """
    from cachekit.compilers import select
    from cachekit.compilers.prepare import prepare
    from cachekit.key.canonical import FEWEST_DIGITS

    name = variant.name
    try:
        zoo.recipe_path(name)
    except UnknownNameError as error:
        if name and not set(name.lower()) - set("0123456789abcdef"):
            if len(name) >= FEWEST_DIGITS:
                return name.lower()
            raise UnknownNameError(
                error.message,
                hint=f"if it is meant as a key, give {FEWEST_DIGITS} digits or more: `cachekit store ls`",
            ) from None
        raise
    loaded = variant.load()
    compiler = machine.select(loaded) if machine else select(loaded.compiler.name, config.compiler)
    return prepare(loaded, compiler, name).key
