"""The Neuron adapter: fingerprint, how a run is started, harvest and restore of modules in the compiler's own root.

Neuron's root is one folder of the host that every process shares, whether it knows of cachekit or not. What belongs to
a run is what the run itself reported (`watch.py`); modules go in and out verbatim (`modules.py`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.compilers.adapter import CachePlace
from cachekit.compilers.neuron import (
    cores,
    facts,
    fit,
    flags,
    host,
    installed,
    locks,
    modules,
    nki,
    options,
    place,
    remembered,
    root,
    split,
)
from cachekit.compilers.neuron.entries import read_needed, scan_if_there
from cachekit.compilers.neuron.fit import Claimed
from cachekit.compilers.neuron.watch import NeuronWatch
from cachekit.compilers.port import (
    ComparedBuilds,
    Compiler,
    Failed,
    Harvest,
    Node,
    Observed,
    Restored,
    Run,
    Sink,
    Watch,
)
from cachekit.disk import file_system
from cachekit.errors import CompileError, UsageError
from cachekit.key.cost import Growth
from cachekit.private import new_folder, private_folder
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint, watched_variables, worker_variables
from cachekit.store.blobs import Blob
from cachekit.store.record import Module
from cachekit.whose import standing

CONSTANT_RATES = (0.0, 1.0)  # that XLA writes into a graph (measured with torch-xla 2.9)
# Of these a recipe may set none: cachekit does.
OURS = frozenset(
    {
        facts.CC_FLAGS, facts.EXTRACT_ONLY, facts.NPC_IGNORE_SCRIPT_ERROR, facts.NKI_COMPILE_CACHE,
        *facts.NKI_NO_TRACE_CACHE,
    }
)  # fmt: skip


class OnNeuron(Compiler):
    """What the adapters of Neuron have in common: the machine, the flags, and which NEFF is used here.

    Args:
        machine: What is compiled for; this host by default, looked at when it is needed.
        node: This host's place, where several train together.
    """

    name: str
    trial_needs_all = True  # collectives name all workers
    required: tuple[str, ...] = installed.REQUIRED
    without_device = facts.XLA_WITHOUT_DEVICE  # what is in doubt on a machine that has none
    # A graph is cut into tiles, each of them instructions that are scheduled: wider layers and more tokens are more of
    # them, and cost less than in proportion.
    growth = Growth(layers=3.0, tokens=0.3, width=0.7, source="assumed: no compile on Neuron was measured")

    def __init__(self, machine: host.NeuronHost | None = None, node: Node | None = None) -> None:
        self._machine = machine
        self.node = node or Node()

    @property
    def machine(self) -> host.NeuronHost:
        """What is compiled for.

        Raises:
            CompilerUnavailableError: This host has no toolchain for this compiler.
        """
        if self._machine is None:
            self._machine = host.this_host(self.required)
        return self._machine

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        """Versions are told without their commit, which the registry does not know of every release."""
        machine = self.machine
        found = machine.packages
        names = [*facts.TOOLCHAIN_PACKAGES, "transformers"]
        if recipe is not None and split.asked(recipe):
            split.check(recipe, machine)  # what cannot be split needs no package for it
            split.check_packages(recipe, machine)
            names += split.packages(recipe)
        toolchain = {name: installed.public(found[name]) for name in names if name in found}
        return Fingerprint(
            compiler=self.name,
            directory=f"{facts.COMPILER_DIRECTORY_PREFIX}{toolchain[facts.COMPILER_PACKAGE]}",
            toolchain=toolchain,
            target={"chip": machine.target, "lnc": machine.lnc},
            soft={
                f"{facts.COMPILER_PACKAGE}-build": found[facts.COMPILER_PACKAGE],
                **{name: found[name] for name in facts.TRAINING_PACKAGES if name in found and name not in toolchain},
            },
            bf16=True,
            workers=max(cores.of_run(machine, recipe), 1),
            instance=machine.instance,
            elsewhere=not machine.here,
            soft_variables=facts.RUNTIME_VARIABLES,
            known_variables=facts.GRAPH_VARIABLES | facts.SPLIT_VARIABLES,
            lacks={
                **({"container": machine.partly} if machine.partly else {}),
                **({"device": machine.astray} if machine.astray else {}),
                **({"device": self.without_device} if machine.here and not machine.cores else {}),
                **({"release": f"{doubt.message}: {doubt.cause}"} if (doubt := installed.doubt(found)) else {}),
                **(split.LACKS if recipe is not None and split.asked(recipe) else {}),
            },
        )

    def flags(self, recipe: Recipe) -> list[str]:
        """The compiler's flags, as spelled and in order: the recipe's, or else this shell's NEURON_CC_FLAGS."""
        return flags.without_wrapper_options(recipe.compiler.flags or self._shell_words())

    def _shell_words(self) -> list[str]:
        words, problem = flags.split(os.environ.get(facts.CC_FLAGS, "") if self.machine.here else "")
        if problem:
            raise UsageError(f"{facts.CC_FLAGS} cannot be read", cause=problem, hint="check the quotes in it")
        return words

    def _check(self, path: Path, said: Claimed) -> str | None:
        """Why a NEFF is not to be used on this machine: it is damaged, is another module's, or is for another chip."""
        return fit.check(path, said, target=self.machine.target, lnc=self.machine.lnc)


class Neuron(OnNeuron):
    """See `compilers.port.Compiler`."""

    name = "neuron"
    runtime = "cachekit.compilers.neuron.runtime"
    # A module lies under its compiler's version and is named after its graph and flags: those are the whole key.
    foreign: tuple[str, ...] = ("compiler.name", "target.", f"toolchain.{facts.COMPILER_PACKAGE}")
    guest = "cachekit.compilers.neuron.guest"
    marks_finished = True

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """The flags in order, and the variables of this process that change graphs."""
        options.check_environment(recipe, OURS)
        options.read(recipe, options.XlaOptions)
        options.check_machine(recipe, self.machine, self.flags(recipe))
        split.check(recipe, self.machine)
        # The target is an ingredient by itself, however it is said.
        names = facts.GRAPH_VARIABLES - {facts.TARGET_OVERRIDE}
        names |= facts.SPLIT_VARIABLES if split.asked(recipe) else frozenset()
        return {
            "flags": self.flags(recipe),
            "environment": nki.named_in(watched_variables(recipe, names.__contains__)) if self.machine.here else {},
            # A first step at rate zero is another graph: XLA writes 0 and 1 into it (measured with torch-xla 2.9).
            "first_rate_zero": recipe.training.warmup_steps > 0,
            # So is a rate that is one of these from the start. Only then it is named, so that no other key changes.
            **({"constant_rate": rate} if (rate := recipe.training.learning_rate) in CONSTANT_RATES else {}),
            **split.ingredients(recipe),
        }

    def root(self, recipe: Recipe) -> CachePlace:
        """Where Neuron looks and writes, as AWS's order has it, the recipe's own variables included."""
        return root.resolve({**os.environ, **worker_variables(recipe)})

    def cache_dir(self, recipe: Recipe) -> Path | None:
        """The root that this host's other processes use as well."""
        found = self.root(recipe)
        if found.path is None or file_system(found.path).network:
            raise UsageError(
                f"Neuron's cache root {found.url} is not on a local disk",
                cause=f"it is set by {found.origin}; AWS warns of damaged caches on network file systems",
                hint=f"unset {facts.CACHE_URL}, or set it to a local folder; `cachekit store import` takes its modules",
            )
        if found.path.exists() and not found.path.is_dir():
            raise UsageError(
                f"Neuron's cache root {found.path} is not a folder",
                cause=f"it is set by {found.origin}",
                hint=f"set {facts.CACHE_URL} to a local folder",
            )
        # Graphs are programs: what lies there runs on the device.
        for name, folder, variable in (
            ("cache root", found.path, facts.CACHE_URL),
            ("work folder", root.work_folder(), "TMPDIR"),
        ):
            whose = standing(folder)
            if whose.whose != "own":
                # To close a root that has somebody else's programs in it would only hide them.
                mend = "" if root.stranger(folder) else whose.mend
                raise UsageError(
                    f"Neuron's {name} {folder} is not used: somebody else can change what is there",
                    cause=whose.why,
                    hint=mend or new_folder(variable),
                )
        if why := root.stranger(found.path):
            raise UsageError(
                f"Neuron's cache root {found.path} is not used: somebody else made, or can change, what is there",
                cause=why,
                hint=new_folder(facts.CACHE_URL),
            )
        if facts.NKI_PACKAGE in self.machine.packages:
            nki.check_folder()
        return found.path

    def make_way(self, cache_dir: Path, tell: Sink, withdrawn: Collection[str] = ()) -> None:
        """Locks that nobody holds any more, which would be waited for without end, and half-built work.

        Of failures those that may well not come again; a restored module would take their place in any case. NKI's
        folder of kernels is closed to others, before NKI makes one that is open to all.
        """
        entries = scan_if_there(cache_dir).of(self.machine.packages[facts.COMPILER_PACKAGE])
        for finding in locks.examine(entries):
            if finding.verdict == "stale" and not locks.clear(finding):
                tell({"event": "lock-cleared", "module": finding.lock.entry.name, "reason": finding.reason})
        for found in remembered.by_neuron(entries):
            failure = found.failure
            if failure.clearable and not remembered.clear(found):
                tell({"event": "failure-cleared", "module": found.entry.name, "class": failure.kind.name})
        place.sweep(cache_dir)
        if facts.NKI_PACKAGE in self.machine.packages:
            private_folder(nki.folder())
        nki.sweep(cache_dir, withdrawn)

    def watch(self, run: Run) -> Watch:
        """A command is found on the user's own PATH, which stays, as do the cores that it names."""
        recipe = run.recipe
        if run.kind != "command":
            self.node.check(recipe)
        # They affect no graph, so this shell's are heard whatever the recipe says.
        own = [*recipe.compiler.flags, *self._shell_words()]
        watch = NeuronWatch(run, self.machine, self.flags(recipe), self.node, check=self._check, own=own)
        if run.kind == "command":
            theirs = {"PATH", facts.VISIBLE_CORES}
            watch.environment = {name: value for name, value in watch.environment.items() if name not in theirs}
        return watch

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """What Neuron is told, it is told by variables; here is what trains a split model."""
        return split.settings(recipe, self.machine.packages)

    def contents(self, cache_dir: Path) -> frozenset[str]:
        """Names of finished modules."""
        return frozenset(entry.module for entry in scan_if_there(cache_dir).entries if entry.finished)

    def compare(self, old: Path, new: Path) -> ComparedBuilds:
        from cachekit.compilers.neuron import describe

        def alike(name: str) -> bool:
            return describe.contents(old / name / facts.NEFF) == describe.contents(new / name / facts.NEFF)

        return ComparedBuilds.of(self.contents(old), self.contents(new), alike)

    def failed(self, cache_dir: Path, names: Iterable[str]) -> Mapping[str, Failed]:
        """What Neuron remembers, and what cachekit does, which calls the compiler directly."""
        wanted = frozenset(names)
        entries = [one for one in scan_if_there(cache_dir).entries if one.module in wanted and not one.finished]
        return remembered.by_any(entries, cache_dir / facts.OUR_FOLDER / "failures")

    def harvest(
        self,
        cache_dir: Path,
        before: frozenset[str],
        fingerprint: Fingerprint,
        workspace: Path,
        observed: Observed | None = None,
    ) -> Harvest | None:
        """What the run reported, found or made; without a report, what is new."""
        names = observed.modules if observed else self.contents(cache_dir) - before
        lost = "was compiled or found in this run, and cannot be kept"
        # In this order they are fetched and restored: what a training loads first comes first.
        order = {name: number for number, name in enumerate(observed.order if observed else ())}
        ordered = sorted(names, key=lambda name: (order.get(name, len(order)), name))
        wanted = [read_needed(cache_dir / name, lost) for name in ordered]
        seconds: Mapping[str, float] = observed.seconds if observed else {}
        found = modules.collect(wanted, workspace, self._check, seconds)
        if observed and found.left:  # a record without them would promise what is not so
            first = found.left[0]
            raise CompileError(
                f"{len(found.left)} of {len(wanted)} compiled graphs cannot be kept",
                cause=f"{first.name}: {first.reason}",
                hint=f"look at {first.path}, and warm again",
            )
        return found.harvest

    def restore(self, module: Module, files: Sequence[Blob], cache_dir: Path) -> Restored:
        """One that is there already stays, and one that another process works on; one that lacks a kernel is left."""
        modules.check_module(module)
        paths = [file.path for file in files]
        there = place.standing(cache_dir / module.name)[0]
        if there in {"absent", "replaceable"} and (lacks := nki.put(module, paths, cache_dir)):
            return Restored("left", reason=lacks)
        return modules.restore(module, paths, cache_dir, check=self._check)
