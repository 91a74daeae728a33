"""Which machine a plan is for, where that is not this one: an instance, a target or only a toolchain was named."""

from __future__ import annotations

from functools import cached_property

from cachekit.compilers import Compiler, registry, select
from cachekit.errors import UsageError
from cachekit.recipe import Recipe, zoo


class Elsewhere:
    """What the user said of another machine; all empty means this one.

    Args:
        toolchain: A release of the SDK.
        target: The compiler's name for a chip: `trn1`.
        instance: A machine type.
        compiler: The setting.
    """

    def __init__(self, toolchain: str = "", target: str = "", instance: str = "", compiler: str = "auto") -> None:
        self.toolchain, self.target, self.instance = toolchain, target, instance
        self.compiler = compiler
        self._made: dict[tuple[str, str, str], Compiler] = {}  # for a whole zoo each once: it reads the registry

    def __bool__(self) -> bool:
        return bool(self.toolchain or self.target or self.instance)

    @cached_property
    def _instances(self) -> dict[str, zoo.Instance]:
        return zoo.instances()

    @cached_property
    def _toolchains(self) -> dict[str, zoo.Toolchain]:
        return zoo.toolchains()

    @cached_property
    def _here(self) -> str:
        return _this_machine()

    def machine(self, recipe: Recipe, *, guess: bool) -> str:
        """The machine type to plan a recipe for; empty where none follows from what was said.

        Args:
            recipe: What it is expected to run on goes before others of the same target.
            guess: Take any that fits, before none.

        Raises:
            UsageError: The target and the instance, or the toolchain, do not go together.
            UnknownNameError: The registry has no such toolchain or instance.
        """
        known = self._instances
        targets = sorted({one.target for one in known.values() if one.target})
        if self.target and self.target not in targets:
            raise UsageError(f"no machine has the target {self.target!r}", hint=f"one of {', '.join(targets)}")
        if self.instance:
            has = zoo.instance(self.instance).target
            if self.target not in {"", has}:
                raise UsageError(
                    f"{self.instance} is {has or 'no Neuron machine'}, not {self.target}",
                    hint="leave --target or --instance out",
                )
            return self.instance
        if not self:
            return ""
        fits = {self.target} if self.target else set(self._release(self.toolchain).targets)
        expected = [one.instance for one in recipe.expect if one.instance in known]
        if self._here:
            expected.insert(0, self._here)
        for name in expected:
            if known[name].target in fits:
                return name
        if not (guess or self.target):
            return ""
        # The smallest of which a price is known: what people begin with.
        able = [(one.cores, one.vcpus or 0, name) for name, one in known.items() if one.target in fits]
        priced = [found for found in able if known[found[2]].price is not None] or able
        return min(priced)[2] if priced else ""

    def select(self, recipe: Recipe, *, guess: bool = False) -> Compiler:
        """The compiler of a recipe on that machine.

        Raises:
            CachekitError: As `machine` and `compilers.select`.
        """
        machine = self.machine(recipe, guess=guess) if self else ""
        return self._select(recipe, self.toolchain, machine)

    def other_toolchains(self, recipe: Recipe) -> list[Compiler]:
        """The compilers of the same machine in the registry's other toolchains, the newest first."""
        machine = self.machine(recipe, guess=True) if self else ""
        if not machine:
            return []
        fits = self._instances[machine].target
        said = self.compiler if self.compiler != "auto" else recipe.compiler.name
        fitting = [
            name
            for name, one in self._toolchains.items()
            # Each with its own compiler, if none was said; nothing was ever made under the key of one that is open.
            if fits in one.targets and said in {"auto", one.compiler} and not one.open
        ]
        own = [name for name in fitting if said != "auto" or self._toolchains[name].compiler == "neuron"]
        wanted = self.toolchain or (own[-1] if own else "")  # as `host.named` has it
        return [self._select(recipe, name, machine) for name in reversed(fitting) if name != wanted]

    def _release(self, name: str) -> zoo.Toolchain:
        return self._toolchains[name] if name in self._toolchains else zoo.toolchain(name)

    def _select(self, recipe: Recipe, toolchain: str, machine: str) -> Compiler:
        wanted = recipe.compiler.name, toolchain, machine
        if wanted not in self._made:
            self._made[wanted] = select(wanted[0], self.compiler, toolchain=toolchain, instance=machine)
        return self._made[wanted]


def _this_machine() -> str:
    """This machine's type, where it has a compiler's device and is one of the registry."""
    names = (adapter.instance() for adapter in registry.every())
    return next((name for name in names if name in zoo.instances()), "")
