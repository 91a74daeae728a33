"""One run of the worker on Neuron: its variables and launchers, what its output tells, and what must still be compiled.

A trial runs under `neuron_parallel_compile`, which lets the worker write down its graphs and compiles them; a training
runs under torchrun alone. Neither's exit code is believed: a trial is judged by the files that it leaves.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import compile_entries, facts, locks, place
from cachekit.compilers.neuron import log_events as ev
from cachekit.compilers.neuron.entries import Entry, scan
from cachekit.compilers.neuron.failure_memory import FailureMemory
from cachekit.compilers.neuron.host import Host
from cachekit.compilers.neuron.logs import LogReader
from cachekit.compilers.neuron.memory import jobs_for_memory
from cachekit.compilers.neuron.run_log import RunLog
from cachekit.compilers.port import Node, Observed, Sink
from cachekit.errors import MissError
from cachekit.recipe import Recipe

LEASH = (sys.executable, "-m", "cachekit.training.leash")  # a launcher in between need not pass a kill on


class NeuronWatch:
    """See `compilers.port.Watch`.

    Args:
        recipe: The recipe.
        live_root: Neuron's cache root on this host.
        machine: This host.
        flags: The compiler's flags, without the wrapper's own.
        node: This host's place among several.
        trial: See the port; so for `found` and `strict`.
        clock: Seconds.
    """

    def __init__(
        self,
        recipe: Recipe,
        live_root: Path,
        machine: Host,
        flags: Sequence[str],
        node: Node,
        *,
        trial: bool,
        found: bool,
        strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recipe, self._root, self._machine, self._node = recipe, live_root, machine, node
        self._trial, self._found, self._strict = trial, found, strict
        self._options = recipe.compiler.options
        self._clock = clock
        self._reader, self._log = LogReader(), RunLog()
        self._phase = ""
        self._surprises: dict[str, None] = {}
        self._told = (0, 0, 0)
        self._last_words = clock()
        self._done = False
        self._compiling = False
        self._before = {entry.module: entry.state for entry in self._entries()}
        self._own: dict[str, float | None] = {}
        self.environment: Mapping[str, str | None] = self._environment(flags)
        self.prefix: Sequence[str] = self._prefix()

    # How the run is started

    def _environment(self, flags: Sequence[str]) -> dict[str, str | None]:
        # The flag wins with AWS's wrapper, the variable is what others read: both name the same folder.
        words = [*flags, f"{facts.CACHE_DIR_FLAG}={self._root}"]
        path = os.environ.get("PATH", os.defpath)
        tools = str(Path(sys.executable).parent)
        changes: dict[str, str | None] = {
            facts.CC_FLAGS: shlex.join(words),
            facts.CACHE_URL: str(self._root),
            facts.EXTRACT_ONLY: "1" if self._trial and not self._npc else None,
            # The wrapper looks the compiler up on PATH, also where cachekit was started by its full path.
            "PATH": path if tools in path.split(os.pathsep) else f"{tools}{os.pathsep}{path}",
        }
        if self._trial and jobs_for_memory() == 1:
            changes[facts.NPC_RETRIES] = "1"  # AWS's advice for trn1.2xlarge: the first try may run out of memory
        if self._recipe.parallel.nodes > 1:
            changes |= {name: os.environ.get(name, value) for name, value in facts.EFA_VARIABLES.items()}
        return changes

    @property
    def _npc(self) -> str | None:
        return shutil.which(facts.PARALLEL_COMPILE)

    def _prefix(self) -> list[str]:
        layout = self._recipe.parallel
        groups = layout.tensor_parallel_size * layout.pipeline_parallel_size
        copies = layout.data_parallel_size
        workers = max(self._machine.cores, 1) if copies == "auto" else copies * groups
        # Also for one worker: without torchrun Transformers hangs from 4.44 on [SDK: BERT tutorial].
        command = [
            *LEASH,
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc_per_node={workers}",
            *self._rendezvous(),
            "--no_python",
        ]
        if self._trial and (npc := self._npc):
            return [npc, "--num_parallel", str(self._jobs), *command]
        return command

    def _rendezvous(self) -> list[str]:
        nodes = self._recipe.parallel.nodes
        if nodes == 1:  # a free port: two runs on one host must not meet
            return ["--nnodes=1", "--master_addr=127.0.0.1", f"--master_port={_free_port()}"]
        node = self._node
        return [
            f"--nnodes={nodes}",
            f"--node_rank={node.rank}",
            f"--master_addr={node.address}",
            f"--master_port={node.port}",
        ]

    @property
    def _jobs(self) -> int:
        said = self._options.get("num_parallel")
        return max(int(said), 1) if said else jobs_for_memory()

    # Before it starts

    def begin(self, tell: Sink) -> None:
        """See the port: a lock that a killed compile left behind would be waited for without end."""
        for finding in locks.examine(self._entries()):
            name = finding.lock.entry.name
            if finding.verdict == "stale" and not locks.clear(finding):
                tell({"event": "lock-cleared", "module": name, "reason": finding.reason})
            elif finding.verdict == "maybe":
                tell({"event": "lock-found", "module": name, "reason": finding.reason, "advice": finding.advice})
        place.sweep(self._root)

    # What it tells

    def output(self, words: bytes) -> Sequence[Mapping[str, Any]]:
        """See the port."""
        self._last_words = self._clock()
        told: list[Mapping[str, Any]] = []
        for event in self._reader.feed(words):
            self._log.add(event)
            told += self._tell(event)
        now = (len(self._log.hits), len(self._log.compiled), len(self._log.extracted))
        if now != self._told:
            self._told = now
            told.append(
                {"event": "graphs", "found": now[0], "compiled": now[1], "extracted": now[2], "phase": self._phase}
            )
        return told

    def _tell(self, event: ev.Event) -> list[Mapping[str, Any]]:
        match event:
            case ev.Compiled(module=module) | ev.CompileCommand(module=module):
                if self._found:
                    self._surprises[self._phase or "start"] = None
                if self._strict:
                    raise MissError(
                        f"a graph is not warm: {module or 'its name was not told'}",
                        cause=f"it began to compile in: {self._phase or 'start'}",
                        hint="the record lacks it; train without --require-warm once, which adds it",
                    )
            case ev.WorkerStarted() | ev.Listed():
                self._compiling = True
            case ev.Summary() | ev.WorkerDone():
                self._compiling = False
            case ev.Waiting(module=module, minutes=minutes):
                self._free(module)
                return [{"event": "lock", "module": module, "minutes": minutes}]
            case ev.CachedFailure(module=module):
                return [{"event": "failed-before", "module": module}]
            case _:
                pass
        return []

    def _free(self, name: str) -> None:
        """Its owner may have died meanwhile."""
        waited_for = [entry for entry in self._entries() if entry.name == name]
        for finding in locks.examine(waited_for):
            locks.clear(finding)

    def event(self, event: Mapping[str, Any]) -> None:
        """See the port."""
        if event.get("event") == "at":
            self._phase = str(event.get("phase", ""))
        elif event.get("event") == "done":
            self._done = True
            self._phase = "compiling" if self._trial else self._phase
            self._last_words = self._clock()

    def finished(self) -> bool:
        """See the port: several workers may hang at exit after all was said [SDK: bert.rst]."""
        limit = float(self._options.get("exit_timeout", facts.EXIT_TIMEOUT))
        return self._done and not self._compiling and self._clock() - self._last_words > limit

    # What must still be compiled

    def complete(self, tell: Sink) -> None:
        """See the port: judge by the files, and compile what was extracted and is not there."""
        self._log.add_all(self._reader.close())
        self._own |= compile_entries.complete(
            self._needed(),
            FailureMemory(self._root / facts.OUR_FOLDER / "failures"),
            jobs=self._jobs,
            timeout=float(self._options.get("compile_timeout", facts.COMPILE_TIMEOUT)),
            tell=tell,
        )

    def _needed(self) -> list[Entry]:
        """Every module that the trial reported; where the log says nothing, every one that is new."""
        reported = set(self._log.modules)
        entries = self._entries()
        if reported:
            return [entry for entry in entries if entry.name in reported]
        return [entry for entry in entries if self._before.get(entry.module) != entry.state]

    def _entries(self) -> list[Entry]:
        """The modules of this compiler in the root."""
        try:
            everything = scan(self._root)
        except FileNotFoundError:
            return []
        folders = self._folders(everything.compilers)
        return [entry for entry in everything.entries if entry.compiler in folders]

    def _folders(self, there: Sequence[str]) -> frozenset[str]:
        """This compiler's folders: named in the log, or its version with any commit."""
        if self._log.compilers:
            return frozenset(self._log.compilers)
        version = self._machine.packages[facts.COMPILER_PACKAGE]
        wanted = f"{facts.COMPILER_DIRECTORY_PREFIX}{version}"
        return frozenset(name for name in there if name == wanted or name.startswith(f"{wanted}+"))

    def observed(self) -> Observed:
        """See the port."""
        self._log.add_all(self._reader.close())
        compiled = {**{name: seconds for name, (seconds, _) in self._log.compiled.items()}, **self._own_names()}
        found = set(self._log.hits) - set(compiled)
        if self._trial:
            found |= set(self._log.extracted) - set(compiled)
        names = {entry.name: entry.module for entry in self._entries()}
        needed = [entry.module for entry in self._needed()]
        return Observed(
            found=len(found),
            compiled=len(compiled),
            compile_seconds=round(sum(seconds or 0.0 for seconds in compiled.values()), 3),
            surprises=tuple(self._surprises),
            notes=self._notes(),
            modules=frozenset(needed),
            seconds={names[name]: seconds for name, seconds in compiled.items() if seconds and name in names},
        )

    def _notes(self) -> tuple[str, ...]:
        """Workers that used other graphs than the rest: with collectives in them such a run can stop [sdk#779]."""
        if self._trial or len(self._log.by_process) < 2:  # noqa: PLR2004 - one has nothing to differ from
            return ()
        shared = frozenset.intersection(*map(frozenset, self._log.by_process.values()))
        alone = {name: len(used - shared) for name, used in sorted(self._log.by_process.items()) if used - shared}
        if not alone:
            return ()
        told = ", ".join(f"{name} {count}" for name, count in alone.items())
        return (f"workers used graphs that not all of them used: {told}",)

    def _own_names(self) -> dict[str, float | None]:
        return {module.partition("/")[2]: seconds for module, seconds in self._own.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
