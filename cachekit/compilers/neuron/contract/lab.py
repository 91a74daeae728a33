"""The experiments: a script of three lines, run in roots of its own with what a real run may meet.

Each is made once, when a check first asks for it; several checks read it. The user's root is never read or written.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import facts, host, locks, processes
from cachekit.compilers.neuron.contract import asked
from cachekit.compilers.neuron.contract.asked import Packages
from cachekit.compilers.neuron.contract.bench import Bench, Run, Running
from cachekit.compilers.neuron.contract.check import UnknownError
from cachekit.compilers.neuron.contract.native_lab import Trials
from cachekit.compilers.neuron.contract.once import once
from cachekit.compilers.neuron.entries import Entry, read_entry, scan
from cachekit.compilers.neuron.flags import read_flags

# One small graph; the argument makes another one of it.
SCRIPT = """\
import sys, torch, torch_xla
rows = torch.ones(2 + int(sys.argv[1]), 3).to(torch_xla.device())
print((rows * 2 + 1).sum().item())
"""
FLAGS = ("--model-type", "transformer")  # those of the published key f7f529f3
WRONG_FLAG = "--cachekit-asks-whether-this-is-refused"
LIMIT = 300.0  # seconds for a run of the script; a compile of this graph is expected to take some
ATTEMPTS = 3  # to kill a compile while it runs
TELLING = 3.0  # seconds until the process that holds a lock should be there
WAIT = 150.0  # seconds for a waiter's first word: it says something once a minute


@dataclass(frozen=True, slots=True)
class Killed:
    """A compile that was killed while it held its lock.

    Attributes:
        root: Its root.
        finding: What was said of its lock while it ran.
        entry: Its module afterwards.
        sizes: Bytes of the locks that stayed.
    """

    root: Path
    finding: locks.Finding
    entry: Entry
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Waited:
    """A run that met a lock which nobody holds.

    Attributes:
        run: What it printed until the lock was taken away.
        early: It had ended by then: it did not wait.
        mapped: Whether its process was seen to use Neuron's cache; None where that could not be seen.
        ended: How it ended afterwards; None where it did not.
    """

    run: Run
    early: bool
    mapped: bool | None
    ended: Run | None


class Lab:
    """A laboratory on this host.

    Args:
        folder: An empty temporary folder on a local disk.
        script: The command that makes a graph; it gets a number as its argument.
        quick: Nothing is compiled.
        tell: Told what begins.
        environ: The environment; the process's own by default.
        limit: Seconds for one run of the script.
        wait: Seconds for a waiter's first word.
    """

    def __init__(
        self,
        folder: Path,
        *,
        script: Sequence[str] = (sys.executable, "-c", SCRIPT),
        quick: bool = False,
        tell: Callable[[str], None] = lambda _: None,
        environ: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        wait: float = WAIT,
    ) -> None:
        self.bench = Bench.make(folder, os.environ if environ is None else environ)
        self.made: dict[str, Any] = {}
        self._script, self._quick, self._tell = script, quick, tell
        self.limit, self._wait = limit, wait

    # What is installed

    @once
    def packages(self) -> Packages:
        """What Neuron's packages say of themselves.

        Raises:
            UnknownError: They are not installed, or by half, or are placeholders.
        """
        found = asked.packages(self.bench)
        if wrong := host.placeholders(found.metadata):
            raise UnknownError(f"{', '.join(wrong)}: PyPI's placeholder, not AWS's package")
        required = host.NATIVE if host.is_native(found.metadata) else host.REQUIRED
        if missing := [name for name in required if name not in found.metadata]:
            raise UnknownError(f"{', '.join(missing)} not installed: no Neuron here")
        return found

    @property
    def is_native(self) -> bool:
        """Whether it is TorchNeuron, which does without XLA, that is installed here."""
        try:
            return host.is_native(self.packages.metadata)
        except UnknownError:
            return False

    @once
    def native(self) -> Trials:
        """The experiments on TorchNeuron."""
        return Trials(self)

    def asked_root(self, **variables: str) -> str:
        """Where libneuronxla says that its cache is."""
        self.packages  # noqa: B018 - without them there is nothing to ask
        return self.ask(facts.XLA_MODULE, asked.ROOT, **variables)

    def ask(self, what: str, source: str, *arguments: str, **variables: str | None) -> str:
        """What some lines of Python answer, in a process of their own."""
        run = self.bench.run(what, (sys.executable, "-c", source, *arguments), variables)
        if (said := run.said(asked.FRONT)) is None:
            raise UnknownError(f"{what} cannot be asked: {run.end}")
        return said

    # The script

    def root(self, name: str) -> Path:
        """A root of the laboratory."""
        return self.bench.folder / "roots" / name

    def _variables(self, root: Path, flags: Sequence[str]) -> dict[str, str]:
        words = [f"{facts.CACHE_DIR_FLAG}={root}", *flags]
        return {facts.CC_FLAGS: shlex.join(words), facts.CACHE_URL: str(root), facts.NUM_CORES: "1"}

    def probe(self, what: str, root: Path, *, flags: Sequence[str] = FLAGS, **variables: str) -> Run:
        """Run the script in a root."""
        self.may(what)
        changed = {**self._variables(root, flags), **variables}
        return self.bench.run(what, (*self._script, "1"), changed, limit=self.limit)

    def may(self, what: str, *, compiles: bool = True) -> None:
        """Tell what begins.

        Raises:
            UnknownError: It is not to be done: it compiles, or there is no Neuron.
        """
        if self._quick and compiles:
            raise UnknownError("it compiles, and --quick was given")
        self.packages  # noqa: B018 - without Neuron the script would fail, or run on something else
        self._tell(what)

    def entries(self, root: Path) -> list[Entry]:
        """The modules of a root.

        Raises:
            UnknownError: There is none.
        """
        try:
            found = scan(root).entries
        except FileNotFoundError:
            found = ()
        if not found:
            raise UnknownError("the script left no module in its root")
        return list(found)

    # A compile, and what it left

    @once
    def first(self) -> Run:
        """The script with an empty root; the flag and the variable name different ones."""
        other = str(self.root("variable"))
        run = self.probe("a compile in an empty root", self.root("flag"), **{facts.CACHE_URL: other})
        if run.code:
            raise UnknownError(f"the script failed: {run.end}")
        return run

    @once
    def first_root(self) -> Path:
        """Where the first compile's module is."""
        self.first  # noqa: B018
        for name in ("flag", "variable"):
            if any(self.root(name).glob("*/*")):
                return self.root(name)
        raise UnknownError("the compile left nothing in either root")

    @once
    def compiled(self) -> list[Entry]:
        """What the first compile left."""
        return self.entries(self.first_root)

    @once
    def named(self) -> list[Entry]:
        """Modules to read names and flags of; with --quick those that were only extracted."""
        if self._quick:
            self.extracted  # noqa: B018
            return self.entries(self.root("extracted"))
        return self.compiled

    @once
    def second(self) -> Run:
        """The script once more: nothing should compile."""
        self.compiled  # noqa: B018
        return self.probe("the same again", self.first_root)

    def without(self, name: str) -> Run:
        """The script after a file was removed from each module of a copy of the root."""
        if name not in self.made:
            self.made[name] = self._without(name)
        found: Run = self.made[name]
        return found

    def _without(self, name: str) -> Run:
        root, source = self.root(f"without-{name.replace('.', '-')}"), self.first_root
        for entry in self.compiled:
            if name not in entry.names:
                raise UnknownError(f"the module has no {name}")
        shutil.copytree(source, root)
        for entry in self.entries(root):
            (entry.path / name).unlink()
        return self.probe(f"the same without {name}", root)

    # Graphs without compile

    @once
    def extracted(self) -> Run:
        """The script in extraction mode."""
        self.may("extraction of its graph", compiles=False)
        changed = {**self._variables(self.root("extracted"), FLAGS), facts.EXTRACT_ONLY: "1"}
        return self.bench.run("the extraction", (*self._script, "1"), changed, limit=self.limit)

    @once
    def direct(self) -> tuple[Run, Path, Entry]:
        """The compiler called on an extracted graph, as cachekit calls it: the run, the NEFF, the module."""
        self.extracted  # noqa: B018
        source, root = self.root("extracted"), self.root("ours")
        self.entries(source)
        self.may("neuronx-cc on the extracted graph")
        shutil.copytree(source, root)
        # Of several graphs the largest is the script's own.
        graphs = [(entry, entry.path / name) for entry in self.entries(root) for name in facts.HLO_FILES[:1]]
        entry, graph = max(graphs, key=lambda pair: pair[1].stat().st_size if pair[1].is_file() else -1)
        output = self.bench.folder / "direct.neff"
        words = [*facts.COMPILE_COMMAND, str(graph), facts.OUTPUT_OPTION, str(output)]
        words += [*(read_flags(entry.path / facts.FLAGS_FILE) or ()), facts.COMPILE_VERBOSITY]
        return self.bench.run("neuronx-cc compile", words, limit=self.limit), output, entry

    @once
    def ours(self) -> tuple[Run, Entry]:
        """The script with the module that was completed here, NEFF first and done last."""
        run, output, entry = self.direct
        if run.code or not output.is_file():
            raise UnknownError(f"neuronx-cc made no NEFF: {run.end}")
        shutil.copyfile(output, entry.path / facts.NEFF)
        (entry.path / facts.DONE).touch()
        return self.probe("the script with a module that cachekit completed", self.root("ours")), entry

    @once
    def parallel(self) -> Run:
        """`neuron_parallel_compile` on the script."""
        return self._npc(facts.PARALLEL_COMPILE, self.root("npc"), FLAGS)

    def _npc(self, what: str, root: Path, flags: Sequence[str]) -> Run:
        self.may(what)
        # Without a folder of its own it would remove that of a run that goes on beside this one.
        own = (
            facts.NPC_PARALLEL_OPTION,
            "1",
            facts.NPC_WORK_OPTION,
            str(self.bench.folder / "tmp" / f"npc-{root.name}"),
        )
        command = (facts.PARALLEL_COMPILE, *own, *self._script, "1")
        return self.bench.run(what, command, self._variables(root, flags), limit=2 * self.limit)

    # What goes wrong

    @once
    def killed(self) -> Killed:
        """A compile killed with SIGKILL while it holds its lock."""
        self.compiled  # noqa: B018 - where no compile ends well there is nothing to kill
        for number in range(ATTEMPTS):
            self.may("a compile that is killed")
            if caught := self._kill(self.root(f"killed-{number}")):
                return caught
        raise UnknownError(f"of {ATTEMPTS} compiles none could be killed while it held a lock")

    def _kill(self, root: Path) -> Killed | None:
        """Kill a compile; None where it was quicker."""
        seen: list[locks.Finding] = []
        first = 0.0

        def caught() -> bool:
            nonlocal first
            if now := locks.examine(_locked(root)):
                seen[:] = now
                first = first or time.monotonic()
            # A lock is there a moment before its compiler is; one whose compiler cannot be told stays as it is.
            return any(found.verdict == "live" for found in seen) or bool(first and time.monotonic() - first > TELLING)

        with self._started(root) as running:
            running.until(caught, self.limit)
            running.kill()
        if not seen:
            return None
        place = next((found for found in seen if found.verdict == "live"), seen[0]).lock.entry
        entry = read_entry(place.place, place.compiler, place.name)
        if entry.state == "success":
            return None
        sizes = tuple((entry.path / name).stat().st_size for name in entry.locks)
        return Killed(root, next(found for found in seen if found.lock.entry.name == entry.name), entry, sizes)

    @once
    def waited(self) -> Waited:
        """The script with a lock that nobody holds; then the lock is taken away."""
        left = self.killed
        lock = left.entry.path / f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}"
        lock.touch()
        self.may("a run that meets the lock of a killed one")
        with self._started(left.root) as running:
            running.until(lambda: any(e.kind == "waiting" for e in running.so_far().events), self._wait)
            run = running.so_far()
            own = set(running.tree())
            uses = [one.uses_cache for one in processes.look().processes if one.pid in own]
            mapped = True if True in uses else None if not uses or None in uses else False
            if running.process.poll() is not None:
                run = running.so_far()
                return Waited(run, early=True, mapped=mapped, ended=run)
            lock.unlink(missing_ok=True)
            ended = running.until(lambda: running.process.poll() is not None, self.limit)
            return Waited(run, early=False, mapped=mapped, ended=running.so_far() if ended else None)

    def _started(self, root: Path) -> AbstractContextManager[Running]:
        return self.bench.start((*self._script, "1"), self._variables(root, FLAGS))

    @once
    def failed(self) -> tuple[Run, Entry]:
        """The script with a flag that the compiler does not know."""
        self.compiled  # noqa: B018
        run = self.probe("a compile that must fail", self.root("failed"), flags=(*FLAGS, WRONG_FLAG))
        found = self.entries(self.root("failed"))
        return run, next((entry for entry in found if entry.state == "failed"), found[0])

    @once
    def failed_again(self) -> Run:
        """The same once more."""
        self.failed  # noqa: B018
        return self.probe("the same again", self.root("failed"), flags=(*FLAGS, WRONG_FLAG))

    @once
    def parallel_failed(self) -> Run:
        """`neuron_parallel_compile` on a root that remembers the failure."""
        _, entry = self.failed
        if entry.state != "failed":
            raise UnknownError("no failure is remembered to begin with")
        what = "neuron_parallel_compile on a remembered failure"
        return self._npc(what, self.root("failed"), (*FLAGS, WRONG_FLAG))


def _locked(root: Path) -> list[Entry]:
    try:
        return [entry for entry in scan(root).entries if entry.locks]
    except FileNotFoundError:
        return []
