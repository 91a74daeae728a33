"""One run of the worker on Neuron: what its output tells, and what must still be compiled.

No exit code is believed: a trial is judged by the files that it leaves.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cachekit.compilers.neuron import compile_entries, facts, locks, options, remembered
from cachekit.compilers.neuron.entries import CacheEntry, scan_if_there
from cachekit.compilers.neuron.fit import Check
from cachekit.compilers.neuron.flags import wrapper_options
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.log.event import Event, module_in
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log
from cachekit.compilers.neuron.processes import compiles_below, look
from cachekit.compilers.neuron.run_command import RunCommand
from cachekit.compilers.port import UNTOLD, Node, Observed, Run, Sink, Watch, not_warm
from cachekit.errors import CachekitError, CompileError, MissError

LOOK = 1.0  # seconds between two looks for compilers
LOOK_LOCKS = 5.0  # and between two at locks that may have lost their owner


class NeuronWatch(Watch):
    """See `compilers.port.Watch`.

    Args:
        run: The run, in Neuron's cache root on this host.
        machine: This host.
        flags: The compiler's flags, without the wrapper's own.
        node: This host's place among several.
        check: Judges each NEFF, for this host.
        own: Words among which the wrapper's own options are: those that a run may have are passed on.
        clock: Seconds.
    """

    listens = True

    def __init__(
        self,
        run: Run,
        machine: NeuronHost,
        flags: Sequence[str],
        node: Node,
        *,
        check: Check,
        own: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recipe, self._root, self._machine = run.recipe, run.cache_dir, machine
        self._check = check
        self._options = options.read(run.recipe, options.XlaOptions)
        self._trial, self._found, self._strict = run.kind == "trial", run.found, run.strict
        self._restored = run.restored
        self._clock = clock
        self._reader, self._log = LogReader(), Log()
        self._phase = ""
        self._begun: set[str] = set()
        self._compiled_in: dict[str, str] = {}
        self._told = (0, 0, 0)
        self._last_words = clock()
        self._done = False
        self._sees = False  # the compilers of the run are looked for
        self._busy: set[float] = set()
        self._listed = False
        self._locked: set[str] = set()
        self._free_since: dict[tuple[str, int, int], float] = {}
        self._looked = self._looked_at_locks = clock()
        self._before = {entry.module: entry.state for entry in self._entries()}
        self._own: dict[str, float | None] = {}
        self._wrapper, self._left_out = wrapper_options(own)
        self._npc = shutil.which(facts.PARALLEL_COMPILE)
        command = RunCommand(run, machine, node, self._npc)
        super().__init__(command.environment([*flags, *self._wrapper]))
        self.workers, self.prefix = command.workers, command.prefix()

    # Before it starts

    def begin(self, tell: Sink) -> None:
        """What is locked may be waited for, without end where nobody holds the lock any more."""
        for note in self._left_out:
            tell({"event": "note", "note": note})
        for finding in locks.examine(self._entries()):
            name = finding.lock.entry.name
            self._locked.add(name)
            what = "lock-held" if finding.verdict == "live" else "lock-found"
            tell({"event": what, "module": name, "reason": finding.reason, "advice": finding.advice})

    # What it tells

    def output(self, words: bytes) -> Sequence[Mapping[str, Any]]:
        self._last_words = self._clock()
        self._compiles_begun()
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

    def _tell(self, event: Event) -> list[Mapping[str, Any]]:
        module = event.module
        match event.kind:
            case "command":
                self._begun.add(module)
            case "compiled" if module not in self._begun:
                self._compiles(module)
            case "listed":
                self._listed = True
            case "worker-started":
                self._busy.add(event.numbers["worker"])
            case "worker-done":
                self._busy.discard(event.numbers["worker"])
                self._listed = False
            case "summary":
                self._busy.clear()
                self._listed = False
            case "remaining" if event.numbers.get("locked"):
                # npc does not say which: whatever of the trial's is locked now.
                self._locked |= {entry.name for entry in self._entries() if entry.locks}
            case "waiting":
                self._locked.add(module)
                return [{"event": "lock", "module": module, "minutes": event.numbers.get("minutes", 0.0)}]
            case "cached-failure" if not self._trial:
                raise self._failed_before(module)
            case "cached-failure":
                return [{"event": "failed-before", "module": module}]
            case _:
                pass
        return []

    def _compiles_begun(self) -> None:
        """Compiles that were seen to begin: what the worker told before them has been read by now, so also in what."""
        begun, self._begun = self._begun, set()
        for module in begun:
            self._compiles(module)

    def _compiles(self, module: str) -> None:
        """A graph is compiled: what a trial is for, and what a training should not."""
        self._compiled_in.setdefault(module, self._phase or "start")
        if self._strict:
            why, hint = self._why_it_compiles(module)
            raise MissError(
                f"a graph is not warm: {module or 'no name was logged'}",
                cause=f"the graph began to compile in: {self._phase or 'start'}{why}",
                hint=hint,
            )

    def _why_it_compiles(self, module: str) -> tuple[str, str]:
        """What more is known of the cause, and what helps."""
        known = next((name for name in self._restored if name.partition("/")[2] == module), "")
        if known and (reason := self._restored[known]):
            hint = (
                f"warm it here; remove what is not Neuron's from {self._root / known} (`cachekit doctor` shows locks)"
            )
            return f"; the record has it, but it was not restored: {reason}", hint
        if known:
            hint = "was it changed or removed since? `cachekit doctor --neuron-contract` shows what Neuron accepts"
            return "; the record has it, and it was there when the run began", hint
        return "", "the record lacks it; train without --require-warm once, which adds it"

    def _failed_before(self, module: str) -> CachekitError:
        """A training that meets a failure which Neuron remembers goes no further."""
        for found in remembered.by_neuron(entry for entry in self._entries() if entry.name == module):
            failure = found.failure
            return CompileError(
                f"{module} failed to compile in an earlier run, and Neuron never tries it again",
                cause=f"{failure.kind.name}: {failure.message or 'no reason was kept'}",
                hint=f"{failure.advice}; to have it tried again, remove {found.log}",
            )
        return CompileError(f"{module} failed to compile in an earlier run", hint="cachekit warm says why")

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        """The log tells of a compile at its end only, and of a lock once a minute."""
        now, self._sees = self._clock(), True
        self._compiles_begun()
        if not self._trial and now - self._looked >= LOOK:
            self._looked = now
            seen = {next(filter(None, map(module_in, command)), "") for command in compiles_below(pid)}
            self._begun |= seen - set(self._compiled_in)
        if not self._locked or now - self._looked_at_locks < LOOK_LOCKS:
            return []
        self._looked_at_locks = now
        return self._free()

    def _free(self) -> list[Mapping[str, Any]]:
        """Clear the locks that have lost their owner meanwhile. Who waits for a lock does not hold it.

        But a worker of ours that waits looks like one that holds: the wrapper has the lock also between the compiler's
        end and its copy of the NEFF. So nobody must be seen at it for as long as a lock takes to settle, since a
        compiler was last seen.
        """
        entries = [entry for entry in self._entries() if entry.name in self._locked]
        self._locked = {entry.name for entry in entries if entry.locks}
        before, self._free_since = self._free_since, {}
        told: list[Mapping[str, Any]] = []
        for finding in locks.examine(entries, host=look(without=os.getpid())) if self._locked else ():
            if finding.verdict != "stale":
                continue
            this = (str(finding.lock.path), finding.lock.inode, finding.lock.modified)
            since = self._free_since[this] = before.get(this, self._looked_at_locks)
            settled = self._looked_at_locks - since >= facts.LOCK_SETTLED
            if settled and not locks.clear(finding, host=look(without=os.getpid())):
                told.append({"event": "lock-cleared", "module": finding.lock.entry.name, "reason": finding.reason})
        return told

    def event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "at":
            self._phase = str(event.get("phase", ""))
        elif event.get("event") == "done":
            self._done = True
            self._phase = "compiling" if self._trial else self._phase
            self._last_words = self._clock()

    def finished(self) -> bool:
        """Several workers may hang at exit after all was said [SDK: bert.rst]."""
        compiling = self._listed or bool(self._busy)
        return self._done and not compiling and self._clock() - self._last_words > self._options.exit_timeout

    def failed(self, code: int) -> bool:
        """`neuron_parallel_compile` ends with the number of its failures; torchrun tells of workers."""
        return code != 0 and (not self._trial or not self._npc or bool(self._log.exits))

    # What must still be compiled

    def complete(self, tell: Sink) -> None:
        """Judge by the files, and compile what was extracted and is not there."""
        self._log.add_all(self._reader.close())
        needed = self._needed(self._entries())
        if lost := sorted(set(self._log.modules) - {entry.name for entry in needed}):
            raise CompileError(
                f"{len(lost)} of {len(self._log.modules)} graphs are not in {self._root}",
                cause=f"{lost[0]} was reported by the trial run, and is not there: it is in another root, or removed",
                hint=f"make sure that nothing else sets {facts.CACHE_URL} or {facts.CACHE_DIR_FLAG}, and warm again",
            )
        if self._strict and (missing := [entry.module for entry in needed if not entry.finished]):
            raise not_warm(f"{len(missing)} graphs are not compiled, {missing[0]} for one")
        self._own |= compile_entries.complete(
            needed,
            remembered.FailureMemory(self._root / facts.OUR_FOLDER / "failures"),
            jobs=self._options.jobs,
            timeout=self._options.compile_timeout,
            tell=tell,
            check=self._check,
            # npc's wrapper has done so already.
            again=facts.RETRY_FLAG in self._wrapper and not self._npc,
        )

    def _needed(self, entries: Iterable[CacheEntry]) -> list[CacheEntry]:
        """Every module that the run reported.

        Where the log says nothing, those that the run was seen to compile: what else is new may be another project's.
        Where nobody looks for its compilers, or a trial leaves them for later, every one that is new.
        """
        reported = set(self._log.modules)
        if not reported and self._sees and not self._trial:
            reported = {"", *self._compiled_in, *self._begun}
        if reported:
            return [entry for entry in entries if entry.name in reported]
        return [entry for entry in entries if self._before.get(entry.module) != entry.state]

    def _entries(self) -> list[CacheEntry]:
        """The modules of this compiler in the root: of the folders that the log names, or of its version."""
        found, named = scan_if_there(self._root), self._log.compilers
        if named:
            return [entry for entry in found.entries if entry.compiler in named]
        return found.of(self._machine.packages[facts.COMPILER_PACKAGE])

    def observed(self, told: Observed = UNTOLD) -> Observed:
        self._log.add_all(self._reader.close())
        when = {**dict.fromkeys(self._begun, self._phase or "start"), **self._compiled_in} if self._found else {}
        compiled = {**{name: seconds for name, (seconds, _) in self._log.compiled.items()}, **self._own_names()}
        found = set(self._log.hits) - set(compiled)
        if self._trial:
            found |= set(self._log.extracted) - set(compiled)
        entries = self._entries()
        names = {entry.name: entry.module for entry in entries}
        # What a training used must be finished to be kept; what a trial needs has been seen to.
        needed = [entry.module for entry in self._needed(entries) if self._trial or entry.finished]
        return Observed(
            found=len(found),
            compiled=len(compiled),
            compile_seconds=round(sum(seconds or 0.0 for seconds in compiled.values()), 3),
            surprises=tuple(dict.fromkeys(when.values())),
            notes=self._notes(),
            modules=frozenset(needed),
            order=tuple(names[name] for name in self._log.modules if name in names),
            seconds={names[name]: seconds for name, seconds in compiled.items() if seconds and name in names},
        )

    def needs(self) -> frozenset[str]:
        reported = set(self._log.modules)
        return frozenset(entry.module for entry in self._entries() if entry.name in reported)

    def _notes(self) -> tuple[str, ...]:
        """Workers that used other graphs than the rest: with collectives in them such a run can stop [sdk#779]."""
        if self._trial or len(self._log.by_process) < 2:  # noqa: PLR2004 - one has nothing to differ from
            return ()
        shared = frozenset.intersection(*map(frozenset, self._log.by_process.values()))
        alone = {name: len(used - shared) for name, used in sorted(self._log.by_process.items()) if used - shared}
        if not alone:
            return ()
        told = ", ".join(f"{name} {count}" for name, count in alone.items())
        return (f"some of the workers used graphs that others did not use: {told}",)

    def _own_names(self) -> dict[str, float | None]:
        return {module.partition("/")[2]: seconds for module, seconds in self._own.items()}
