"""Processes of this host that may be compiling, from /proc: names, arguments, open files, libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from cachekit import process
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.root import resolve

# What a container's runtime leaves in it for others to see.
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


class Process(Struct, frozen=True):
    """A process of this host, as far as it can be seen."""

    pid: int  # its number
    name: str  # its program: the compiler's, where a Python runs one
    uid: int  # whose it is; -1 where it cannot be known
    arguments: tuple[str, ...]  # its command line
    files: tuple[str, ...] | None  # what it has open; None where that cannot be seen
    uses_cache: bool | None  # it has Neuron's cache code loaded; None where that cannot be seen
    # Of a compiler, Neuron's cache root that its environment names; None where it names none, or cannot be seen, and
    # for all others: what can be seen is the environment that a process was started with, and a training may set its
    # root as it runs.
    root: Path | None = None

    @property
    def compiles(self) -> bool:
        """It is a compiler's process, or starts them."""
        return self.name in facts.COMPILER_PROCESSES


class Snapshot(Struct, frozen=True):
    """What can be known of this host when a lock is judged."""

    processes: tuple[Process, ...]  # all that can be seen
    whole: bool  # whether that is all of them
    boot: float | None  # when it started, seconds since 1970; None where that is unknown
    container: bool  # it is a container: a folder that comes from outside may be in use by processes not seen here


def look(proc: Path = process.PROC, *, container: bool | None = None, without: int | None = None) -> Snapshot:
    """Look at this host; costs some milliseconds a hundred processes.

    Left out are workers and launchers below the process `without`: they wait for a lock, or hold it while a compiler of
    theirs names the module and for a moment before and after, which a single look cannot tell from a lock that is
    stale. Compilers are never left out.
    """
    own = frozenset(process.below(without, proc)) if without is not None else frozenset()
    try:
        found = tuple(
            one
            for one in _processes(proc)
            if one.pid not in own or (one.compiles and one.name != facts.PARALLEL_COMPILE)
        )
    except OSError:
        return Snapshot((), whole=False, boot=None, container=True)
    # With hidepid, other users' processes are not listed: then the first one is missing as well.
    whole = any(one.pid == 1 for one in found)
    return Snapshot(found, whole, process.boot_time(proc), _in_container(found) if container is None else container)


def compiles_below(pid: int, proc: Path = process.PROC) -> list[tuple[str, ...]]:
    """Command lines of the compilers that a process has started, itself or by others, and that compile now."""
    found = []
    for number in process.below(pid, proc):
        try:
            words = process.arguments(number, proc)
        except OSError:
            continue  # it has ended
        named = next((n for n, word in enumerate(words[:3]) if word.rpartition("/")[2] == facts.COMPILER), None)
        if named is not None and facts.COMPILE_COMMAND[1] in words[named + 1 :]:
            found.append(words[named:])
    return found


def _processes(proc: Path) -> Iterator[Process]:
    for pid in process.numbers(proc):
        try:
            words, comm = process.arguments(pid, proc), process.kernel_name(pid, proc)
        except OSError:
            continue  # it has ended
        program, uses = _program(comm, words), process.has_loaded(pid, facts.CACHE_LIBRARIES, proc)
        named = _root(pid, proc) if program in facts.COMPILER_PROCESSES else None
        yield Process(pid, program, process.owner(pid, proc), words, process.open_files(pid, proc), uses, named)


def _program(comm: str, arguments: tuple[str, ...]) -> str:
    # A script's process is named after its interpreter: `python3.12 /opt/…/bin/neuronx-cc compile …`. The kernel cuts
    # names at 15 characters.
    for word in arguments[:3]:
        base = word.rpartition("/")[2]
        if base in facts.COMPILER_PROCESSES:
            return base
    cut = 15
    return next((name for name in facts.COMPILER_PROCESSES if name[:cut] == comm), comm)


def _root(pid: int, proc: Path) -> Path | None:
    variables = process.environment(pid, proc)
    if variables is None:
        return None
    found = resolve(variables, cwd=proc / str(pid) / "cwd", mounts="")
    return None if found.origin == "default" else found.path


def _in_container(found: tuple[Process, ...]) -> bool:
    # Process 2 of a whole Linux host is the kernel's; in a namespace of processes it is anybody.
    if not any(one.pid == 2 and one.name == "kthreadd" for one in found):  # noqa: PLR2004
        return True
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in CONTAINER_MARKS)
