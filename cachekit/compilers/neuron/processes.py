"""Processes of this host that may be compiling, from /proc: names, arguments, open files, libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.root import resolve
from cachekit.leash import below

PROC = Path("/proc")
# What a container's runtime leaves in it for others to see.
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this host, as far as it can be seen.

    Attributes:
        pid: Its number.
        name: Its program: the compiler's, where a Python runs one.
        uid: Whose it is; -1 where it cannot be known.
        arguments: Its command line.
        files: What it has open; None where that cannot be seen.
        uses_cache: It has Neuron's cache code loaded; None where that cannot be seen.
        root: Of a compiler, Neuron's cache root that its environment names; None where it names none, or cannot be
            seen, and for all others: what can be seen is the environment that a process was started with, and a
            training may set its root as it runs.
    """

    pid: int
    name: str
    uid: int
    arguments: tuple[str, ...]
    files: tuple[str, ...] | None
    uses_cache: bool | None
    root: Path | None = None

    @property
    def compiles(self) -> bool:
        """It is a compiler's process, or starts them."""
        return self.name in facts.COMPILER_PROCESSES


@dataclass(frozen=True, slots=True)
class Host:
    """What can be known of this host when a lock is judged.

    Attributes:
        processes: All that can be seen.
        whole: Whether that is all of them.
        boot: When it started, seconds since 1970; None where that is unknown.
        container: It is a container: a folder that comes from outside may be in use by processes not seen here.
    """

    processes: tuple[Process, ...]
    whole: bool
    boot: float | None
    container: bool


def look(proc: Path = PROC, *, container: bool | None = None, without: int | None = None) -> Host:
    """Look at this host; costs some milliseconds a hundred processes.

    Args:
        proc: Where the kernel tells of processes.
        container: Whether it is a container; found out by default.
        without: A process whose own workers and launchers are left out: they wait for a lock, or hold it while a
            compiler of theirs names the module and for a moment before and after, which a single look cannot tell
            from a lock that is stale. Compilers are never left out.
    """
    own = frozenset(below(without, proc)) if without is not None else frozenset()
    try:
        found = tuple(
            process
            for process in _processes(proc)
            if process.pid not in own or (process.compiles and process.name != facts.PARALLEL_COMPILE)
        )
    except OSError:
        return Host((), whole=False, boot=None, container=True)
    # With hidepid, other users' processes are not listed: then the first one is missing as well.
    whole = any(process.pid == 1 for process in found)
    return Host(found, whole, _boot(proc), _in_container(found) if container is None else container)


def compiles_below(pid: int, proc: Path = PROC) -> list[tuple[str, ...]]:
    """Command lines of the compilers that a process has started, itself or by others, and that compile now."""
    found = []
    for number in below(pid, proc):
        try:
            raw = (proc / str(number) / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        arguments = tuple(os.fsdecode(part) for part in raw.rstrip(b"\0").split(b"\0"))
        named = next((n for n, word in enumerate(arguments[:3]) if word.rpartition("/")[2] == facts.COMPILER), None)
        if named is not None and facts.COMPILE_COMMAND[1] in arguments[named + 1 :]:
            found.append(arguments[named:])
    return found


def _processes(proc: Path) -> Iterator[Process]:
    for name in sorted(name for name in os.listdir(proc) if name.isdecimal()):  # noqa: PTH208
        folder = proc / name
        try:
            raw = (folder / "cmdline").read_bytes()
            comm = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue  # it has ended
        arguments = tuple(os.fsdecode(part) for part in raw.rstrip(b"\0").split(b"\0")) if raw else ()
        try:
            uid = folder.stat().st_uid
        except OSError:
            uid = -1
        program, uses = _program(comm, arguments), _uses_cache(folder)
        named = _root(folder) if program in facts.COMPILER_PROCESSES else None
        yield Process(int(name), program, uid, arguments, _open_files(folder), uses, named)


def _program(comm: str, arguments: tuple[str, ...]) -> str:
    # A script's process is named after its interpreter: `python3.12 /opt/…/bin/neuronx-cc compile …`. The kernel cuts
    # names at 15 characters.
    for word in arguments[:3]:
        base = word.rpartition("/")[2]
        if base in facts.COMPILER_PROCESSES:
            return base
    cut = 15
    return next((name for name in facts.COMPILER_PROCESSES if name[:cut] == comm), comm)


def _open_files(folder: Path) -> tuple[str, ...] | None:
    found = []
    try:
        for handle in os.listdir(folder / "fd"):  # noqa: PTH208
            try:
                found.append(os.readlink(folder / "fd" / handle))  # noqa: PTH115
            except OSError:
                continue  # closed meanwhile
    except PermissionError:
        return None
    except OSError:
        return ()
    return tuple(found)


def _uses_cache(folder: Path) -> bool | None:
    try:
        maps = (folder / "maps").read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        return None
    except OSError:
        return False
    return any(library in maps for library in facts.CACHE_LIBRARIES)


def _root(folder: Path) -> Path | None:
    try:
        raw = (folder / "environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0"))
    found = resolve({name: value for name, _, value in pairs}, cwd=folder / "cwd", mounts="")
    return None if found.origin == "default" else found.path


def _boot(proc: Path) -> float | None:
    try:
        for line in (proc / "stat").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _in_container(found: tuple[Process, ...]) -> bool:
    # Process 2 of a whole Linux host is the kernel's; in a namespace of processes it is anybody.
    if not any(process.pid == 2 and process.name == "kthreadd" for process in found):  # noqa: PLR2004
        return True
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in CONTAINER_MARKS)
