"""The adapter of TorchNeuron, which is torch-neuronx without XLA: its own flat cache of NEFFs, one archive a warm.

Each run has a folder of its own, as Inductor's have: TorchNeuron names no graphs that it used, its names lack the
compiler's version, and a tree of a run's own answers both. What a record has came from that run and no other, and a
NEFF of another compiler is never near. Inside lies a folder for the compiler's version; modules are called after it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit.compilers.neuron import facts, host, installed, native, nki, options, split
from cachekit.compilers.neuron.compiler import OnNeuron
from cachekit.compilers.neuron.fit import Claimed
from cachekit.compilers.neuron.processes import compiles_below
from cachekit.compilers.neuron.run_command import RunCommand
from cachekit.compilers.port import Restored, Run
from cachekit.compilers.tree import TreeCompiler, TreeWatch
from cachekit.errors import CompileError, RecipeError
from cachekit.private import private_folder
from cachekit.recipe import Recipe, zoo
from cachekit.recipe.ingredients import Fingerprint, watched_variables
from cachekit.store.blobs import Blob
from cachekit.store.record import Module

# Of these a recipe may set none: cachekit does.
OURS = frozenset(
    {
        facts.CC_FLAGS, facts.NATIVE_ROOT_VARIABLE, facts.NATIVE_LOCAL, facts.NATIVE_NO_FALLBACK,
        facts.NATIVE_COMPILE_ONLY, facts.NKI_COMPILE_CACHE, *facts.NKI_NO_TRACE_CACHE, *facts.NATIVE_DISABLE,
    }
)  # fmt: skip
LOCKS = "locks"  # beside a run's tree, for what TorchNeuron locks while it compiles


class NativeWatch(TreeWatch):
    """One run: its compiler is a process of its own, which can be seen at work."""

    def busy(self, pid: int) -> bool:
        """Whether a compiler that the run has started compiles now."""
        return bool(compiles_below(pid))


class NeuronNative(TreeCompiler, OnNeuron):
    """See `compilers.port.Compiler`; layout, flags and machine are as on XLA."""

    name = "neuron-native"
    runtime = "cachekit.compilers.neuron.native_runtime"
    # Its names have the graph, target, LNC and flags in them, and no version of anything.
    foreign: tuple[str, ...] = (
        "compiler.name",
        "target.",
        *(f"toolchain.{name}" for name in (*facts.NATIVE_PACKAGES, "nki")),
    )
    guest = "cachekit.compilers.neuron.native_guest"
    required = installed.NATIVE
    without_device = facts.NATIVE_WITHOUT_DEVICE

    @property
    def directory(self) -> str:
        """The folder of this compiler version."""
        return native.directory(self._version)

    @property
    def _version(self) -> str:
        return installed.public(self.machine.packages[facts.COMPILER_PACKAGE])

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        if recipe is not None:
            self._check_layout(recipe)
        found = super().fingerprint(recipe, bare=bare)
        # A command has what its shell says; for a recipe cachekit sets or removes it, whatever the shell says.
        compile_only = os.environ.get(facts.NATIVE_COMPILE_ONLY) if bare and self.machine.here else None
        return structs.replace(
            found,
            directory=self.directory,
            target=found.target | ({"compile_only": compile_only} if compile_only is not None else {}),
            toolchain={name: version for name, version in found.toolchain.items() if name not in facts.XLA_PACKAGES},
            soft_variables=facts.RUNTIME_VARIABLES | facts.NATIVE_QUIET,
            known_variables=facts.NATIVE_GRAPH_VARIABLES,
            lacks={
                "evidence": facts.NATIVE_EXPERIMENTAL,
                **({"device": facts.NATIVE_WITHOUT_DEVICE} if self._without_device else {}),
                **found.lacks,
                **_unpredictable(self.machine),
            },
        )

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """The flags in order, options, and the variables of this process that change graphs."""
        options.check_environment(recipe, OURS)
        options.check_machine(recipe, self.machine)
        self._check_layout(recipe)
        return {
            "flags": self.flags(recipe),
            "options": self.settings(recipe),
            "environment": nki.named_in(watched_variables(recipe, _shapes)) if self.machine.here else {},
            # Nobody has shown that what compiles then is what a device asks for: a plan for a device promises no hit.
            **({"without_device": True} if self._without_device else {}),
        }

    @property
    def _without_device(self) -> bool:
        """Whether this host compiles only: it has no device, or none that can be reached, or those of another chip."""
        machine = self.machine
        return machine.here and (not machine.cores or bool(machine.astray) or host.without_nodes() is not None)

    def _check_layout(self, recipe: Recipe) -> None:
        if field := split.asked(recipe):
            raise RecipeError(
                f"parallel.{field} splits the model, which NeuronTrainer does, and it runs on XLA",
                hint="--set compiler.name=neuron, on a host with torch-neuronx for XLA"
                if self.machine.here
                else f"--toolchain {xla[-1]}"
                if (xla := zoo.toolchains_for(self.machine.target, "neuron"))
                else "use a recipe that does not split the model",
            )
        split.check(recipe, self.machine)

    def watch(self, run: Run) -> NativeWatch:
        """A trial is a few steps on the device: TorchNeuron compiles what it meets."""
        if run.kind == "command":
            return NativeWatch(self, run, self._environment(run))
        self.node.check(run.recipe)
        command = RunCommand(run, self.machine, self.node)
        theirs = {
            name: value
            for name, value in command.environment(()).items()
            if name == "PATH" or name in facts.EFA_VARIABLES
        }
        return NativeWatch(self, run, theirs | self._environment(run), prefix=command.prefix(), workers=command.workers)

    def _environment(self, run: Run) -> dict[str, str | None]:
        tree, locks = self.tree(run.cache_dir), run.cache_dir.with_name(LOCKS)
        tree.mkdir(exist_ok=True)
        locks.mkdir(exist_ok=True)
        # Of this compiler, as no kernel's name says which one made it; and called alike on each host, as a graph has
        # the paths of its kernels in it.
        nki.check_folder()
        kernels = private_folder(private_folder(nki.folder()) / self.directory)
        words = self.flags(run.recipe)
        return {
            # The compiler gets these words as they are: it knows none of the wrapper's on XLA.
            facts.CC_FLAGS: shlex.join(words) if words else None,
            facts.NATIVE_ROOT_VARIABLE: str(tree),
            facts.NATIVE_LOCAL: str(locks),
            facts.NATIVE_METRICS: "1",
            facts.NATIVE_NO_FALLBACK: "1",
            **self._compile_only(run),
            facts.NKI_COMPILE_CACHE: str(kernels),
            **facts.NKI_NO_TRACE_CACHE,
            **{name: self._beside(name, locks) for name in facts.NATIVE_BESIDE},
            **dict.fromkeys(facts.NATIVE_DISABLE),
        }

    def _beside(self, name: str, locks: Path) -> str:
        """A folder of the run; where the shell names one, a folder of this compiler in it: no file tells whose.

        What a run loads or compiles lies in its own, whatever the shell says: others may write where that leads.
        """
        theirs = "" if name in facts.NATIVE_LOADED else os.environ.get(name)
        return str(Path(theirs) / self.directory if theirs else locks / name)

    def _compile_only(self, run: Run) -> dict[str, str | None]:
        """A user's own command has what its user says; all else is executed where there is a device."""
        if run.kind == "command":
            return {}
        return {facts.NATIVE_COMPILE_ONLY: "1" if self._without_device else None}

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        return structs.asdict(options.read(recipe, options.NativeOptions))

    def tree(self, cache_dir: Path) -> Path:
        """A folder for the compiler's version, which the graphs' names lack."""
        return cache_dir / self.directory

    def unit(self, path: str) -> str:
        """Each NEFF is one."""
        return path if native.is_graph(path) else ""

    def alike(self, old: Path, new: Path) -> bool:
        """By what the NEFFs have in them."""
        from cachekit.compilers.neuron import describe

        return describe.contents(old) == describe.contents(new)

    def torn(self, path: Path) -> bool:
        """A damaged graph ends the harvest: a record without it would promise what is not so.

        Raises:
            CompileError: The graph is damaged, or is for another machine.
        """
        if reason := self._check(path, Claimed(compiler=self._version)):
            raise CompileError(
                "a compiled graph cannot be kept",
                cause=f"{path.name}: {reason}",
                hint="warm again; `cachekit doctor` looks at the disk",
            )
        return False

    def restore(self, module: Module, files: Sequence[Blob], cache_dir: Path) -> Restored:
        """A run's own tree: nothing stands in the way."""
        (blob,) = files
        tree = self.tree(cache_dir)
        size = native.restore(module, blob.location, tree, self._version, check=self._check, read=blob.through)
        return Restored(size=size)


def _unpredictable(machine: host.NeuronHost) -> dict[str, str]:
    if not machine.open:
        return {}
    known = "; ".join(f"{name}: {words}" for name, words in machine.open.items())
    return {"prediction": f"uncertain: a host's key has versions that the registry does not know ({known})"}


def _shapes(name: str) -> bool:
    """Whether a variable may reach a graph; the target is an ingredient by itself."""
    if name == facts.TARGET_OVERRIDE:
        return False
    ours = name.startswith(facts.NATIVE_PREFIX) and name not in facts.NATIVE_QUIET
    return ours or name in facts.NATIVE_GRAPH_VARIABLES
