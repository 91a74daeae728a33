"""See to it that modules are compiled: judge each by its files, and call the compiler for those that are not finished.

The compiler is called as the wrapper calls it, on any host: `neuronx-cc compile --framework=XLA GRAPH --output NEFF
FLAGS`. While it runs the module holds Neuron's own lock, so that other processes wait; `model.done` comes last.
"""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from cachekit.compilers.neuron import facts, fit, locks, modules, place, remembered
from cachekit.compilers.neuron.entries import CacheEntry, read_entry, read_needed
from cachekit.compilers.neuron.failures import HOST_OOM, TIMED_OUT, UNKNOWN, CompileFailure, classify
from cachekit.compilers.neuron.fit import Check, claim
from cachekit.compilers.neuron.flags import read_flags
from cachekit.compilers.neuron.log.compiler import read_compiler_log
from cachekit.compilers.neuron.processes import look
from cachekit.compilers.neuron.remembered import DAYS, FailureMemory
from cachekit.compilers.port import Sink
from cachekit.errors import CompileError
from cachekit.process import SUBREAPER
from cachekit.text import DAY, duration, first_of

POLL = 0.2  # seconds between two tries for somebody else's lock
LOOK = 5.0  # and between two looks whether it is held at all
SHOWN = 5  # failed modules that an error names


class _Running(Struct):
    """Compilers that run now, so that an interruption ends them, and what came of the others."""

    check: Check
    processes: set[subprocess.Popen[bytes]] = set()
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    seconds: dict[str, float] = {}
    logs: dict[str, str] = {}
    """What the compiler said, by module that failed."""

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.processes:
                process.terminate()


def complete(
    entries: Iterable[CacheEntry],
    memory: FailureMemory,
    *,
    jobs: int,
    timeout: float,
    tell: Sink,
    check: Check = fit.check,
    again: bool = False,
) -> dict[str, float]:
    """Have every module compiled, `jobs` at once; gives the seconds by module, of those that were compiled here.

    One that failed before is tried again unless the failure is known to come again and young (with `again` that one
    too). Those that ran out of the host's memory get a second try, alone. A NEFF that `check` refuses is compiled anew.
    `timeout` is for one compile, or for somebody else's, in seconds.

    Raises:
        CompileError: Some could not be compiled; the others are kept.
    """
    entries = [read_needed(entry.path, "was extracted in this run, and cannot be compiled") for entry in entries]
    failures: dict[str, CompileFailure] = {}
    todo: list[CacheEntry] = []
    for entry in entries:
        if entry.finished and not modules.damage(entry, check):
            continue
        if not again and (failure := _known(entry, memory, tell)):
            failures[entry.module] = failure
        else:
            todo.append(entry)
    place.sweep(Path(tempfile.gettempdir()))  # what killed compiles left
    running = _Running(check)
    failures |= _compile_all(todo, jobs, timeout, tell, running)
    starved = [entry for entry in todo if entry.module in failures and failures[entry.module].kind is HOST_OOM]
    if starved and jobs > 1:
        tell({"event": "retry", "graphs": len(starved), "reason": "out of memory when compiled alongside others"})
        for entry in starved:
            del failures[entry.module]
        failures |= _compile_all(starved, 1, timeout, tell, running)
    if failures:
        with suppress(OSError):
            for entry in todo:
                if entry.module in failures:
                    log = running.logs.get(entry.module, "")
                    memory.remember(entry.name, failures[entry.module], compiler=entry.compiler, log=log)
        raise _error(failures, len(entries))
    return running.seconds


def _known(entry: CacheEntry, memory: FailureMemory, tell: Sink) -> CompileFailure | None:
    """The failure that keeps a module from being tried again: as we remember it, or as Neuron does, without end.

    The log of one of unknown class is all that is known of it, and stays until the module is compiled.
    """
    if known := memory.recall(entry.name, compiler=entry.compiler):  # the compiler, called directly, leaves none
        return known.failure
    for found in remembered.by_neuron([entry]):
        failure = found.failure
        if failure.deterministic and found.age < DAYS * DAY:
            return failure
        if not failure.deterministic and not failure.clearable:
            tell({"event": "failure-tried-again", "module": entry.name, "class": failure.kind.name})
            return None
        if reason := remembered.clear(found):
            return CompileFailure(failure.kind, failure.code, f"{failure.message}; it cannot be cleared: {reason}")
        tell({"event": "failure-cleared", "module": entry.name, "class": failure.kind.name})
    return None


def _compile_all(
    entries: list[CacheEntry], jobs: int, timeout: float, tell: Sink, running: _Running
) -> dict[str, CompileFailure]:
    """Compile modules, the largest graph first; adds to their seconds and returns the failures by module."""
    failures: dict[str, CompileFailure] = {}
    if not entries:
        return failures
    from concurrent.futures import ThreadPoolExecutor, as_completed

    entries = sorted(entries, key=_graph_size, reverse=True)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            work = {pool.submit(_compile_one, entry, timeout, running): entry for entry in entries}
            for count, done in enumerate(as_completed(work)):
                entry = work[done]
                took, failure = done.result()
                if failure is not None:
                    failures[entry.module] = failure
                elif took is not None:
                    running.seconds[entry.module] = took
                tell(
                    {
                        "event": "compiled",
                        "module": entry.name,
                        "seconds": failure.seconds if failure else took,
                        "failure": failure.kind.name if failure else "",
                        "done": count + 1,
                        "of": len(entries),
                    }
                )
        except BaseException:
            running.stop()
            raise
    return failures


def _graph_size(entry: CacheEntry) -> int:
    graph = _graph(entry)
    return graph.stat().st_size if graph else 0


def _graph(entry: CacheEntry) -> Path | None:
    return next((entry.path / name for name in facts.HLO_FILES if name in entry.names), None)


def _compile_one(entry: CacheEntry, timeout: float, running: _Running) -> tuple[float | None, CompileFailure | None]:
    """Compile one module; returns its seconds (None: somebody else did it) or its failure."""
    graph = _graph(entry)
    if graph is None:
        return None, CompileFailure(UNKNOWN, message=f"it has no graph to compile: {', '.join(entry.names) or 'empty'}")
    deadline = time.monotonic() + timeout
    with _lock(entry, deadline, running) as problem:
        if problem:
            return None, problem
        now = read_entry(entry.place, entry.compiler, entry.name)
        if now.state == "success" and not modules.damage(now, running.check):
            return None, None
        start = time.monotonic()
        with place.building(Path(tempfile.gettempdir())) as folder:
            failure = _run(entry, graph, folder, timeout, running)
        took = round(time.monotonic() - start, 3)
        return (None, structs.replace(failure, seconds=took)) if failure else (took, None)


@contextmanager
def _lock(entry: CacheEntry, deadline: float, running: _Running) -> Iterator[CompileFailure | None]:
    """Hold Neuron's lock of a module; gives a failure where the lock stays taken for too long.

    The file stays open as long as the lock is held: that is how another cachekit sees that it has an owner, also while
    no compiler runs for it any more and the NEFF is still being checked.
    """
    path = entry.path / f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}"
    looked = -LOOK
    while True:
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            break
        except FileExistsError:
            if time.monotonic() - looked >= LOOK:  # it costs some milliseconds
                looked = time.monotonic()
                host = look()
                found = locks.examine([read_entry(entry.place, entry.compiler, entry.name)], host=host)
                if any(not locks.clear(finding, host=host) for finding in found if finding.verdict == "stale"):
                    continue
            if time.monotonic() > deadline or running.stopped:
                yield CompileFailure(TIMED_OUT, message=f"another process holds {path.name}")
                return
            time.sleep(POLL)
    try:
        yield None
    finally:
        with suppress(OSError):  # a lock that is no longer ours is somebody else's
            if os.path.samestat(path.lstat(), os.fstat(handle)):
                path.unlink()
        os.close(handle)


def _run(entry: CacheEntry, graph: Path, folder: Path, timeout: float, running: _Running) -> CompileFailure | None:
    """Call the compiler and publish what it made; returns why not."""
    output, log = folder / facts.NEFF, folder / "output.txt"
    source = graph
    if graph.suffix == ".gz":
        source = folder / graph.stem
        with gzip.open(graph, "rb") as packed, source.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    if shutil.which(facts.COMPILER) is None:
        return classify(f"No such file or directory: '{facts.COMPILER}'")
    words = read_flags(entry.path / facts.FLAGS_FILE)
    command = [
        *SUBREAPER,  # the compiler starts others, which must not go on without cachekit
        *facts.COMPILE_COMMAND,
        str(source),
        facts.OUTPUT_OPTION,
        str(output),
        *(words or ()),
        facts.COMPILE_VERBOSITY,
    ]
    with log.open("wb") as told:
        try:
            code = _call(command, folder, told, timeout, running)
        except subprocess.TimeoutExpired as error:
            return CompileFailure(TIMED_OUT, message=f"{facts.COMPILER} did not end within {error.timeout:.0f} s")
    if code != 0:
        text = log.read_bytes()[-65536:].decode("utf-8", "replace")
        failure = classify(text, exit_code=code if code > 0 else None, signal=-code if code < 0 else None)
        if failure.kind is UNKNOWN or not failure.certain:  # what it printed does not tell; perhaps its log does
            errors, certain = _own_log(folder / facts.COMPILER_LOG_FILE)
            text, failure = f"{text}\n{errors}", certain or failure
        running.logs[entry.module] = text
        return failure
    said = claim(entry.compiler, entry.name, words)
    reason = running.check(output, said) if output.is_file() else "it is not there"
    if reason:
        return CompileFailure(UNKNOWN, message=f"{facts.COMPILER} succeeded, but its NEFF cannot be used: {reason}")
    _publish(entry, output)
    return None


def _own_log(path: Path) -> tuple[str, CompileFailure | None]:
    """The errors in the compiler's log of its own, and what they tell for certain."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            runs = read_compiler_log(lines)
    except OSError:
        return "", None
    failure = runs[-1].failure if runs else None
    return runs[-1].errors if runs else "", failure if failure and failure.certain else None


def _call(command: list[str], folder: Path, words: Any, timeout: float, running: _Running) -> int:
    with running.lock:
        if running.stopped:
            return -signal.SIGTERM
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
        )
        running.processes.add(process)
    try:
        return process.wait(timeout)
    finally:
        process.terminate()  # where it still runs: it ends all that is below it, and then itself
        process.wait()
        with running.lock:
            running.processes.discard(process)


def _publish(entry: CacheEntry, output: Path) -> None:
    """The NEFF, and then the mark that it is whole; what was remembered of a failure goes.

    The copy is made beside the module: what a kill leaves there is swept, and the module holds nothing foreign.
    """
    with place.building(entry.path.parent) as folder:
        near = folder / facts.NEFF
        shutil.copyfile(output, near)
        (entry.path / facts.DONE).unlink(missing_ok=True)
        near.replace(entry.path / facts.NEFF)
        (entry.path / facts.FAILURE_LOG).unlink(missing_ok=True)
        (entry.path / facts.DONE).touch()


def _words(failure: CompileFailure) -> str:
    code = f" ({failure.code})" if failure.code else ""
    after = f" after {duration(failure.seconds)}" if failure.seconds is not None else ""
    return f"{failure.kind.name}{code}{after}: {failure.message or 'no reason was given'}"


def _error(failures: dict[str, CompileFailure], total: int) -> CompileError:
    named = [f"{module.partition('/')[2]}: {_words(failure)}" for module, failure in failures.items()]
    first = next(iter(failures.values()))
    return CompileError(
        f"{len(failures)} of {total} graphs did not compile",
        cause=first_of(named, SHOWN, "; "),
        hint=first.advice,
    )
