"""Which recipes of the zoo are warm for which compiler and machine, as far as a store's records tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachekit import recipe
from cachekit.compilers import Compiler, select
from cachekit.errors import CachekitError
from cachekit.recipe import Recipe, zoo
from cachekit.store import Summaries
from cachekit.verbs.prepare import prepare

WARM, OTHER, COLD, NEVER = "warm", "other", "cold", "never"
Place = tuple[str, str]  # a compiler's directory, and what it compiles for


@dataclass(frozen=True, slots=True)
class Coverage:
    """A matrix.

    Attributes:
        columns: Compilers and machines, in words.
        rows: By recipe, a state for each column: `warm` as the zoo has it; `other`, only with other settings; `cold`;
            `never`, as it cannot be compiled there.
    """

    columns: tuple[tuple[str, str], ...]
    rows: dict[str, tuple[str, ...]]


def zoo_coverage(records: Summaries) -> Coverage:
    """Compare the zoo's recipes with records: for the toolchains that these are of, and for the newest."""
    keys: set[str] = set()
    named: set[tuple[str, Place]] = set()
    for record in records:
        keys.add(record.key)
        named.add((record.recipe, (record.directory, _target(records.hard(record)))))
    places = {place for _, place in named}
    columns: dict[Place, list[Compiler]] = {}  # of each size of machine: on more cores a recipe has another key
    newest = {release.compiler: toolchain for toolchain, release in zoo.toolchains().items()}.values()
    for toolchain, release in reversed(zoo.toolchains().items()):
        for target in release.targets:
            made = _neuron(toolchain, target) if not release.open else None  # a key from it is no record's
            if made is not None and (toolchain in newest or made[0] in places):
                columns.setdefault(*made)
    here = _inductor()
    if here is not None:
        columns.setdefault(*here)
    for place in sorted(places - columns.keys()):
        columns[place] = []
    recipes = {name: recipe.load(path) for name, path in zoo.recipes().items()}
    rows = {
        name: tuple(
            _state(loaded, compilers, keys, named={loaded.name, name} & {one for one, where in named if where == place})
            for place, compilers in columns.items()
        )
        for name, loaded in recipes.items()
    }
    return Coverage(tuple(columns), rows)


def _state(loaded: Recipe, compilers: Sequence[Compiler], keys: set[str], *, named: set[str]) -> str:
    taken = not compilers
    for compiler in compilers:
        try:
            if prepare(loaded, compiler).key in keys:
                return WARM
            taken = True
        except CachekitError:
            continue
    return OTHER if named else COLD if taken else NEVER


def _target(hard: dict[str, object]) -> str:
    return str(hard.get("target.chip") or hard.get("target.machine") or "")


def _neuron(toolchain: str, target: str) -> tuple[Place, list[Compiler]] | None:
    sizes: dict[int, str] = {}
    for cores, name in sorted((one.cores, name) for name, one in zoo.instances().items() if one.target == target):
        sizes.setdefault(cores, name)
    try:
        compilers = [select("auto", "auto", toolchain=toolchain, instance=name) for name in sizes.values()]
        return (compilers[0].fingerprint(bare=True).directory, target), compilers
    except (CachekitError, IndexError):
        return None


def _inductor() -> tuple[Place, list[Compiler]] | None:
    try:
        compiler = select("inductor", "auto")
        found = compiler.fingerprint()
    except CachekitError:
        return None
    return (found.directory, str(found.target.get("machine", ""))), [compiler]
