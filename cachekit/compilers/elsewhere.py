"""Which machine a recipe is meant for: this one, or another if an instance, a target or only a toolchain was named."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from cachekit.compilers import Compiler, Node, registry, select
from cachekit.compilers.prepare import Prepared, prepare
from cachekit.config import Config
from cachekit.errors import UsageError
from cachekit.recipe import Recipe, zoo


class CompileFor(Struct, frozen=True):
    """How a machine without a device compiles a recipe for an instance type that has one.

    Attributes:
        compiler: Its name.
        variables: What must be set while it compiles.
        overrides: Fields of the recipe that a machine with the device would find out by itself.
        doubt: What nobody has shown of this, in a sentence.
    """

    compiler: str
    variables: Mapping[str, str]
    overrides: tuple[str, ...]
    doubt: str


def compile_for(recipe: Recipe, instance: str, compiler: str = "auto") -> CompileFor:
    """How a machine without a device compiles a recipe for an instance type of the registry.

    Args:
        recipe: The recipe.
        instance: The instance type that will train.
        compiler: What the flag or the settings say.

    Raises:
        UsageError: The compiler makes code for the machine that it runs on, or not for that instance type.
        UnknownNameError: The registry has no such instance type.
    """
    machine = zoo.instance(instance)
    if not machine.target:
        raise UsageError(
            f"nothing compiles for {instance} on another machine",
            cause="its accelerator is not a Neuron chip; code for a GPU or a processor is made on that machine",
            hint="leave out --for, and warm on such a machine",
        )
    name = compiler if compiler != "auto" else recipe.compiler.name
    if name == "auto":
        able = {one.compiler for one in zoo.toolchains().values() if machine.target in one.targets}
        here = (one.name for one in registry.every() if one.name in able and one.here(compiles=False))
        name = next(here, "neuron")
    found = registry.adapter(name).without_device(instance)
    layout = recipe.parallel
    copies = machine.cores // (layout.tensor_parallel_size * layout.pipeline_parallel_size)
    auto = layout.data_parallel_size == "auto" and copies
    overrides = (f"parallel.data_parallel_size={copies}",) if auto else ()
    return CompileFor(name, found.variables, overrides, found.doubt)


class Elsewhere:
    """What the user said about another machine; if all is empty, this machine is meant.

    Args:
        config: Settings: which compiler, and the salt of keys.
        toolchain: A release of the SDK.
        target: The compiler's name for a chip: `trn1`.
        instance: An instance type.
        node: This machine's place, where several train together.

    Raises:
        UsageError: No machine has the target, or the target and the instance do not go together.
        UnknownNameError: The registry has no such toolchain or instance.
    """

    def __init__(
        self, config: Config, toolchain: str = "", target: str = "", instance: str = "", *, node: Node | None = None
    ) -> None:
        self.toolchain, self.target, self.instance = toolchain, target, instance
        self._compiler, self._salt, self._node = config.compiler, config.trust.salt, node
        if self:
            self._check()

    def __bool__(self) -> bool:
        return bool(self.toolchain or self.target or self.instance)

    def _check(self) -> None:
        """Refuse what fits no recipe, once and not for each of many."""
        if self.toolchain:
            zoo.toolchain(self.toolchain)
        targets = sorted({one.target for one in zoo.instances().values() if one.target})
        if self.target and self.target not in targets:
            raise UsageError(
                f"the registry has no machine with the target {self.target!r}", hint=f"one of {', '.join(targets)}"
            )
        has = zoo.instance(self.instance).target if self.instance else self.target
        if self.target not in {"", has}:
            raise UsageError(
                f"{self.instance} has {'the target ' + has if has else 'no Neuron device'}, not {self.target}",
                hint="leave out --target or --instance",
            )

    @cached_property
    def _here(self) -> str:
        """This machine's type, if it has a compiler's device and is one of the registry."""
        names = (adapter.instance() for adapter in registry.every())
        return next((name for name in names if name in zoo.instances()), "")

    def machine(self, recipe: Recipe, *, guess: bool) -> str:
        """The instance type to plan a recipe for; empty if none follows from what was said.

        Args:
            recipe: The machines that it is expected to run on go before others of the same target.
            guess: Take any machine that fits, rather than none.
        """
        if self.instance or not self:
            return self.instance
        known = zoo.instances()
        fits = {self.target} if self.target else set(zoo.toolchain(self.toolchain).targets)
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
        return select(recipe.compiler.name, self._compiler, toolchain=self.toolchain, instance=machine, node=self._node)

    def prepare(self, recipe: Recipe, source: str = "", *, guess: bool = False) -> Prepared:
        """A recipe, and what follows from it for its compiler on that machine; see `prepare.prepare`.

        Raises:
            CachekitError: As `select` and `prepare.prepare`.
        """
        return prepare(recipe, self.select(recipe, guess=guess), source, salt=self._salt)

    def other_toolchains(self, recipe: Recipe) -> list[Compiler]:
        """The compilers of the same machine in the registry's other toolchains, the newest first."""
        machine = self.machine(recipe, guess=True) if self else ""
        if not machine:
            return []
        fits, releases = zoo.instances()[machine].target, zoo.toolchains()
        said = self._compiler if self._compiler != "auto" else recipe.compiler.name
        # If no compiler was named, each has its own. Nothing was ever made under the key of one that is open.
        able = zoo.toolchains_for(fits, "" if said == "auto" else said)
        fitting = [name for name in able if not releases[name].open]
        own = [name for name in fitting if said != "auto" or releases[name].compiler == "neuron"]
        wanted = self.toolchain or (own[-1] if own else "")  # as `host.named` has it
        return [
            select(recipe.compiler.name, self._compiler, toolchain=name, instance=machine)
            for name in reversed(fitting)
            if name != wanted
        ]
