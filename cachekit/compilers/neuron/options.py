"""What a recipe may set in `compiler.options` for Neuron: how cachekit compiles. None of it reaches a graph."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from cachekit.compilers.neuron import facts, flags
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.errors import RecipeError
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import worker_variables

NUM_PARALLEL, EXIT_TIMEOUT, COMPILE_TIMEOUT = "num_parallel", "exit_timeout", "compile_timeout"
EXECUTION, COMPILE, EAGER = "execution", "compile", "eager"  # TorchNeuron's


class Allowed(NamedTuple):
    """What one can be, in words, and whether a value is that."""

    meaning: str
    fits: Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


XLA = {
    NUM_PARALLEL: Allowed(
        "the number of compilers at once, a whole number from 1; without it the host's memory decides", _is_count
    ),
    EXIT_TIMEOUT: Allowed("the seconds of silence after which a run that hangs at its end is ended", _is_time),
    COMPILE_TIMEOUT: Allowed("the seconds that one graph may take", _is_time),
}
NATIVE = {EXECUTION: Allowed(f"{COMPILE} or {EAGER}", (COMPILE, EAGER).__contains__)}


def check(recipe: Recipe, known: Mapping[str, Allowed]) -> None:
    """Look at every option before anything runs; `known` are those that it may set: `XLA` or `NATIVE`.

    Raises:
        RecipeError: One is unknown, or its value is none that it can have.
    """
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
        if not known[name].fits(value):
            raise RecipeError(
                f"{field} cannot be {value!r}", cause=f"it must be {known[name].meaning}", hint=f"change {field}"
            )


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
        cause="it says for which machine everything is compiled, so one recipe cannot set it alone",
        hint=f"remove it from the recipe, and export {name}={value} in the shell"
        if machine.here
        else "name another --instance, or plan on the machine",
    )


def execution(recipe: Recipe) -> str:
    """How TorchNeuron runs a model: a graph for the whole forward pass, or one for each operation."""
    return str(recipe.compiler.options.get(EXECUTION, COMPILE))


def jobs(recipe: Recipe) -> int:
    """Compilers at once: as many as the recipe says, or as fit into memory."""
    return int(recipe.compiler.options.get(NUM_PARALLEL) or jobs_for_memory())


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


def exit_timeout(recipe: Recipe) -> float:
    """Seconds of silence after a run's end until it counts as hanging."""
    return float(recipe.compiler.options.get(EXIT_TIMEOUT) or facts.EXIT_TIMEOUT)


def compile_timeout(recipe: Recipe) -> float:
    """Seconds for one graph."""
    return float(recipe.compiler.options.get(COMPILE_TIMEOUT) or facts.COMPILE_TIMEOUT)


def check_environment(recipe: Recipe, ours: frozenset[str]) -> None:
    """Refuse variables that the worker gets from us.

    Raises:
        RecipeError: The recipe sets one of `ours`.
    """
    for name in recipe.environment:
        if name in ours:
            raise RecipeError(
                f"environment.{name}: cachekit sets it for the worker",
                hint="flags go into compiler.flags" if name == facts.CC_FLAGS else f"remove environment.{name}",
            )
