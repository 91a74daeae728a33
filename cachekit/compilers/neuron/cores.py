"""How many of a machine's cores a run may have: those that the runtime's own variables leave."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.errors import UsageError
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import worker_variables

_PART = re.compile(r"\s*(?P<first>\d{1,5})\s*(?:-\s*(?P<last>\d{1,5})\s*)?")


def of_run(machine: NeuronHost, recipe: Recipe | None) -> int:
    """Cores of a machine for a recipe's run: all of them, or those that its variables or this shell's name.

    Raises:
        UsageError: See `allowed`.
    """
    name = "this container" if machine.partly else machine.instance
    return allowed(machine.cores, _said(machine, recipe), name=name)


def left_by(machine: NeuronHost, recipe: Recipe) -> str:
    """The variable that leaves a recipe's run fewer cores than the machine has, with its value; empty for none."""
    said = _said(machine, recipe)
    if of_run(machine, recipe) == machine.cores:
        return ""
    name = facts.VISIBLE_CORES if said.get(facts.VISIBLE_CORES, "").strip() else facts.NUM_CORES
    return f"{name}={said[name].strip()}"


def _said(machine: NeuronHost, recipe: Recipe | None) -> dict[str, str]:
    said: dict[str, str] = {**os.environ} if machine.here else {}
    return said | (worker_variables(recipe) if recipe is not None else {})


def allowed(cores: int, environ: Mapping[str, str], *, name: str = "") -> int:
    """How many of a machine's cores (0 where that is not known) these variables leave; a list wins over a number.

    `name` is the machine's type, for people.

    Raises:
        UsageError: One of them cannot be read, or names cores that are not there: the runtime would refuse it.
    """
    if found := _visible(environ):
        if cores and (beyond := [number for number in found if number >= cores]):
            said = environ[facts.VISIBLE_CORES].strip()
            raise _absent(facts.VISIBLE_CORES, said, f"there is no core {beyond[0]}", cores, name)
        return min(cores, len(found))
    if said := environ.get(facts.NUM_CORES, "").strip():
        if not said.isdecimal():
            raise _unreadable(facts.NUM_CORES, said, "a number")
        if cores and int(said) > cores:
            raise _absent(facts.NUM_CORES, said, "that many cores do not exist", cores, name)
        return min(cores, int(said)) if int(said) else cores
    return cores


def named(workers: int, recipe: Recipe) -> dict[str, str]:
    """What the list of cores must be for so many workers, where there is one: as many, each of them once.

    torch-xla refuses any other number (`facts.VISIBLE_CORES`). A list that is too short stays as it is.
    """
    found = _visible({**os.environ, **worker_variables(recipe)})
    return {facts.VISIBLE_CORES: ",".join(map(str, found[:workers]))} if len(found) >= workers else {}


def of_worker(environ: Mapping[str, str]) -> str:
    """The core of one of several workers of torch's launcher, of the list that all of them got; empty for none.

    TorchNeuron takes no more than one, and that of the worker's number where nobody names any (`facts.VISIBLE_CORES`).
    """
    found, rank = _visible(environ), environ.get("LOCAL_RANK", "")
    return str(found[int(rank)]) if rank.isdecimal() and int(rank) < len(found) else ""


def _visible(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that a list names, each once; empty where there is no list."""
    said, found = environ.get(facts.VISIBLE_CORES, "").strip(), dict[int, None]()
    for part in said.split(",") if said else ():
        match = _PART.fullmatch(part)
        if match is None or int(match["last"] or match["first"]) < int(match["first"]):
            raise _unreadable(facts.VISIBLE_CORES, said, "cores as in 0-3, or 0,2")
        found |= dict.fromkeys(range(int(match["first"]), int(match["last"] or match["first"]) + 1))
    return tuple(found)


def _unreadable(name: str, said: str, wanted: str) -> UsageError:
    return UsageError(f"{name}={said} cannot be read", cause=f"it must be {wanted}", hint=f"change or unset {name}")


def _absent(variable: str, said: str, why: str, there: int, name: str) -> UsageError:
    right = str(there) if variable == facts.NUM_CORES else f"0-{there - 1}" if there > 1 else "0"
    return UsageError(
        f"{variable}={said}: {why}",
        cause=f"{name or 'the machine'} has {there}{', numbered from 0' if variable == facts.VISIBLE_CORES else ''}",
        hint=f"set {variable} to {right} or less, or unset it: in the shell, or in the recipe's environment",
    )
