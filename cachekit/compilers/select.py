"""Which compiler a recipe gets: the flag, the settings, the recipe, and then what is really there."""

from __future__ import annotations

from cachekit.compilers.port import Compiler, Node
from cachekit.errors import UnknownNameError, UsageError

NAMES = ("inductor", "neuron", "neuron-native")


def select(
    recipe_says: str | None,
    settings_say: str = "auto",
    *,
    toolchain: str = "",
    instance: str = "",
    node: Node | None = None,
) -> Compiler:
    """Pick the compiler.

    Args:
        recipe_says: `compiler.name` of the recipe; None where there is no recipe, and so nothing will compile.
        settings_say: The flag `--compiler`, or the setting; wins unless it is `auto`.
        toolchain: Of the registry, for a machine that is not this one.
        instance: Of the registry, likewise.
        node: This machine's place, where several train together.

    Raises:
        UnknownNameError: No compiler, toolchain or instance is called that.
        UsageError: Another machine was named, and the compiler is one of this machine only.
        CompilerUnavailableError: It is known, and not available; or nobody named a compiler for a recipe, and this
            machine has Neuron devices without the packages for them.
    """
    name = settings_say if settings_say != "auto" else recipe_says or "auto"
    if name not in {"auto", *NAMES}:
        raise UnknownNameError(f"no compiler is called {name!r}", hint=f"known are auto, {', '.join(NAMES)}")
    # Adapters are loaded when they are chosen: the other's code costs time at every start.
    if toolchain or instance:
        if name == "inductor":
            raise UsageError(
                "Inductor compiles for this machine only",
                hint="leave --toolchain and --instance out, or take --compiler neuron",
            )
        from cachekit.compilers.neuron import adapter, host, native_adapter
        from cachekit.recipe import zoo

        if name == "auto":
            name = zoo.toolchain(toolchain).compiler if toolchain else "neuron"
        machine = host.named(toolchain, instance, name)
        return native_adapter.NeuronNative(machine) if name == "neuron-native" else adapter.Neuron(machine)
    if name == "auto":
        name = _here(compiles=recipe_says is not None)
    if name == "neuron":
        from cachekit.compilers.neuron.adapter import Neuron

        return Neuron(node=node)
    if name == "neuron-native":
        from cachekit.compilers.neuron.native_adapter import NeuronNative

        return NeuronNative(node=node)
    from cachekit.compilers.inductor.adapter import Inductor

    return Inductor()


def _here(*, compiles: bool) -> str:
    """What `auto` means on this machine.

    Raises:
        CompilerUnavailableError: Something is to compile, and Inductor would leave Neuron devices unused in silence.
    """
    from cachekit.compilers.neuron import presence

    if not presence.possible() and not presence.may_have_devices():
        return "inductor"
    from cachekit.compilers.neuron import host

    if host.native_available():
        return "neuron-native"
    if host.available():
        return "neuron"
    if compiles and (error := host.unusable_devices()):
        raise error
    return "inductor"
