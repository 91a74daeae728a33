"""Which compiler a recipe gets: the flag, the settings, the recipe, and then what is really there."""

from __future__ import annotations

from cachekit.compilers.inductor.adapter import Inductor
from cachekit.compilers.port import Compiler
from cachekit.errors import CompilerUnavailableError, UnknownNameError

NAMES = ("inductor",)


def select(recipe_says: str, settings_say: str = "auto") -> Compiler:
    """Pick the compiler.

    Args:
        recipe_says: `compiler.name` of the recipe.
        settings_say: The flag `--compiler`, or the setting; wins unless it is `auto`.

    Raises:
        UnknownNameError: No compiler is called that.
        CompilerUnavailableError: It is known, and not available.
    """
    name = settings_say if settings_say != "auto" else recipe_says
    if name in {"auto", "inductor"}:
        return Inductor()
    if name == "neuron":
        raise CompilerUnavailableError(
            "the Neuron compiler is not available",
            cause="this release has no Neuron adapter yet",
            hint="--compiler inductor runs the same recipe with PyTorch's own compiler",
        )
    raise UnknownNameError(f"no compiler is called {name!r}", hint=f"known are auto, {', '.join(NAMES)}")
