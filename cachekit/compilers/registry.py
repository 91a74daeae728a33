"""The compilers that there are, and which one a recipe gets. The only place that names adapters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from cachekit.compilers.adapter import Adapter
from cachekit.compilers.port import Compiler, Node
from cachekit.errors import CompilerUnavailableError, UnknownNameError
from cachekit.store.record import File, Module


class Registered(Struct, frozen=True):
    """An adapter's entry.

    Attributes:
        name: The compiler's name.
        module: Its adapter's module, which has the adapters by name in `ADAPTERS`.
        prefix: How the folders of its records begin.
        for_recipes: Whether `auto` may choose it for a recipe. A declared cache serves users' commands only.
    """

    name: str
    module: str
    prefix: str
    for_recipes: bool = True


def _folder(name: str) -> Registered:
    """A declared cache: its name is that of its module, and its records' folders begin with it."""
    return Registered(name, f"cachekit.compilers.folders.{name.replace('-', '_')}", f"{name}-", for_recipes=False)


# In the order in which `auto` asks who is here. Adapters are loaded when they are asked: each costs time at a start.
ADAPTERS = (
    Registered("neuron-native", "cachekit.compilers.neuron.adapter", "torchneuron-"),
    Registered("neuron", "cachekit.compilers.neuron.adapter", "neuronxcc-"),
    _folder("jax"),
    Registered("inductor", "cachekit.compilers.inductor.adapter", "inductor-"),
)
NAMES = tuple(sorted(one.name for one in ADAPTERS))


@cache
def adapter(name: str) -> Adapter:
    """The adapter of a compiler; one without any opinion if the compiler is unknown: a later cachekit may know it."""
    for one in ADAPTERS:
        if one.name == name:
            found: Adapter = import_module(one.module).ADAPTERS[name]
            return found
    return Adapter()


def of_directory(name: str) -> Adapter:
    """The adapter of a record's folder, or of a module, by how its name begins."""
    return adapter(next((one.name for one in ADAPTERS if name.startswith(one.prefix)), ""))


def judge(directory: str) -> Callable[[Module, Callable[[File], Path]], str]:
    """A function that says what is wrong inside the files of a module of this folder; empty if nothing is."""
    found = of_directory(directory)
    return lambda module, path: found.judge(module, path).harm


def every() -> Iterator[Adapter]:
    """All adapters."""
    return (adapter(one.name) for one in ADAPTERS)


def check_name(name: str) -> None:
    """See that a compiler is called that, be it here or not.

    Raises:
        UnknownNameError: No compiler is.
    """
    if name not in {"auto", *NAMES}:
        raise UnknownNameError(
            f"there is no compiler named {name!r}", hint=f"known compilers: auto, {', '.join(NAMES)}"
        )


def select(
    recipe_says: str | None,
    settings_say: str = "auto",
    *,
    toolchain: str = "",
    instance: str = "",
    node: Node | None = None,
) -> Compiler:
    """Pick the compiler: what the flag or the settings say, the recipe, and then what is really there.

    Args:
        recipe_says: `compiler.name` of the recipe, or what `of_command` says of a command; None where there is
            neither, and so nothing will compile.
        settings_say: The flag `--compiler`, or the setting; wins unless it is `auto`.
        toolchain: Of the registry, for a machine that is not this one.
        instance: Of the registry, likewise.
        node: This machine's place, where several train together.

    Raises:
        UnknownNameError: No compiler, toolchain or instance is called that.
        UsageError: Another machine was named, and the compiler is one of this machine only.
        CompilerUnavailableError: It is known, and not available; or nobody named a compiler for a recipe, and this
            machine has a device without the packages for it.
    """
    name = settings_say if settings_say != "auto" else recipe_says or "auto"
    check_name(name)
    if toolchain or instance:
        if name == "auto":
            from cachekit.recipe import zoo

            name = zoo.toolchain(toolchain).compiler if toolchain else "neuron"
        return adapter(name).elsewhere(toolchain, instance)
    if name == "auto":
        name = _here(compiles=recipe_says is not None)
    return adapter(name).open(node)


def of_command(imports: Callable[[], Collection[str]]) -> str:
    """The compiler that a user's own command is for; `auto` where its code does not tell.

    Args:
        imports: See `Adapter.attends`.
    """
    for one in every():
        if one.attends(imports):
            return one.name
        try:
            if one.here(compiles=True):
                break
        except CompilerUnavailableError:  # which `select` raises again, unless the settings name a compiler
            break
    return "auto"


def idle_device(name: str) -> str:
    """A sentence where this machine has a device that a compiler leaves idle; else empty.

    Args:
        name: The compiler that somebody chose for this machine.
    """
    if adapter(name).device():
        return ""
    devices = next((found for one in ADAPTERS if one.for_recipes and (found := adapter(one.name).device())), "")
    return f"this machine has {devices}, which {name} does not use" if devices else ""


def _here(*, compiles: bool) -> str:
    for one in ADAPTERS:
        if one.for_recipes and adapter(one.name).here(compiles=compiles):
            return one.name
    return ADAPTERS[-1].name
