"""What a recipe may set in `compiler.options` for Neuron: how cachekit compiles. None of it reaches a graph."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cachekit.compilers.neuron import facts, flags
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.decode import from_builtins
from cachekit.errors import RecipeError
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import worker_variables
from cachekit.text import DAY

Seconds = Annotated[float, Meta(gt=0, le=366 * DAY)]
T = TypeVar("T", bound=Struct)


class XlaOptions(Struct, frozen=True):
    """What a recipe may set for torch-neuronx on XLA.

    Attributes:
        num_parallel: Compilers at once; by default as many as fit into memory.
        exit_timeout: Seconds of silence after a run's end until it counts as hanging.
        compile_timeout: Seconds for one graph.
    """

    num_parallel: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    exit_timeout: Seconds = facts.EXIT_TIMEOUT
    compile_timeout: Seconds = facts.COMPILE_TIMEOUT

    @property
    def jobs(self) -> int:
        """Compilers at once."""
        return jobs_for_memory() if self.num_parallel is UNSET else self.num_parallel


class NativeOptions(Struct, frozen=True):
    """What a recipe may set for TorchNeuron.

    Attributes:
        execution: A graph for the whole forward pass, or one for each operation.
    """

    execution: Literal["compile", "eager"] = "compile"


def read(recipe: Recipe, kind: type[T]) -> T:
    """A recipe's `compiler.options`.

    Raises:
        RecipeError: One is unknown, or its value is none that it can have.
    """
    known = kind.__struct_fields__
    for name, value in recipe.compiler.options.items():
        field = f"compiler.options.{name}"
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = "options of neuronx-cc go into compiler.flags, as they are written for it"
            raise RecipeError(
                f"{field} is not an option of this Neuron compiler",
                cause=f"it knows {', '.join(known)}",
                hint=f"did you mean compiler.options.{near[0]}?" if near else hint,
            )
        try:
            from_builtins({name: value}, kind)
        except msgspec.ValidationError as error:
            cause = str(error).partition(" - at ")[0]
            raise RecipeError(f"{field} cannot be {value!r}", cause=cause, hint=f"change {field}") from error
    return from_builtins(recipe.compiler.options, kind)


def check_machine(recipe: Recipe, machine: NeuronHost, words: Sequence[str] = ()) -> None:
    """Refuse a recipe's variables that name another machine than the one that is looked at: no graph would be kept.

    `words` are flags of the compiler that a graph is judged by, too.

    Raises:
        RecipeError: One of the variables does.
    """
    variables = worker_variables(recipe)
    said = variables.get(facts.TARGET_OVERRIDE, "")
    if said and facts.TARGET_CHIPS.get(said, said) != facts.TARGET_CHIPS.get(machine.target, machine.target):
        raise _of_another_machine(facts.TARGET_OVERRIDE, said, f"graphs are compiled for {machine.target}", machine)
    asked = flags.option(words, facts.LNC_OPTION)
    said, wanted = variables.get(facts.LNC, ""), asked or str(machine.lnc)
    if said and said != wanted:
        why = f"graphs join {wanted} physical cores into one" + (f" ({facts.LNC_OPTION})" if asked else "")
        raise _of_another_machine(facts.LNC, said, why, machine)


def _of_another_machine(name: str, value: str, why: str, machine: NeuronHost) -> RecipeError:
    return RecipeError(
        f"environment.{name} is {value}, but {why}",
        cause="it names the machine that everything is compiled for, so one recipe cannot set it alone",
        hint=f"remove it from the recipe, and export {name}={value} in the shell"
        if machine.here
        else "name another --instance, or plan on the machine",
    )


def jobs_for_memory(total: int | None = None) -> int:
    """Compilers at once: one for each 64 GiB begun, as `neuron_parallel_compile` itself counts."""
    return max(1, math.ceil((_host_memory() if total is None else total) / facts.MEMORY_PER_COMPILE))


def _host_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the container's limit where that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError):
            text = Path(path).read_text("ascii").strip()
            total = min(total, int(text)) if text.isdecimal() else total
    return total


def check_environment(recipe: Recipe, ours: frozenset[str]) -> None:
    """Refuse variables that the worker gets from us.

    Raises:
        RecipeError: The recipe sets one of `ours`.
    """
    for name in recipe.environment:
        if name in ours:
            raise RecipeError(
                f"environment.{name}: cachekit sets it for the worker",
                hint="put flags into compiler.flags" if name == facts.CC_FLAGS else f"remove environment.{name}",
            )
