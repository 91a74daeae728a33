"""Locks that nobody holds any more, and failures that Neuron would remember for ever.

Neuron's lock is an empty file without an owner: a killed compile leaves it, and every later process waits for it with
no time limit. Whether somebody holds one can only be inferred. It is removed only where that is certain; a lock that
is removed while its compile runs lets two processes write one module.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.entries import Entry, read_entry
from cachekit.compilers.neuron.processes import Host, Process, look
from cachekit.disk import PRIVATE, FileSystem, file_system

Verdict = Literal["stale", "maybe", "live"]
CLOCK_SLACK = 60.0  # seconds by which file times and the host's start may disagree
EXCERPT_LINES = 8
LONGEST_LINE = 300  # characters of each of them
HEAD, TAIL = 4 << 10, 64 << 10  # bytes of a log that are looked at

CLEAR_LOCKS = f"{facts.PARALLEL_COMPILE} --command clear-locks"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file of a module.

    Attributes:
        path: The file.
        entry: Its module.
        age: Seconds since it was written, when it was found.
        inode: With `modified`, what tells it from a later one of the same name.
        modified: When it was written, in nanoseconds since 1970.
        size: In bytes; Neuron's are empty.
        uid: Whose it is.
        quiet: Seconds since anything in the module's folder was written.
    """

    path: Path
    entry: Entry
    age: float
    inode: int
    modified: int
    size: int
    uid: int
    quiet: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A lock with what can be said of it.

    Attributes:
        lock: The lock.
        verdict: `stale` is certain; `live` is certain too; everything else is `maybe`.
        reason: Why.
        advice: What to do.
        holders: Processes that hold it, or may.
    """

    lock: Lock
    verdict: Verdict
    reason: str
    advice: str
    holders: tuple[Process, ...] = ()


def find(entries: Iterable[Entry], now: float | None = None) -> list[Lock]:
    """All locks of some modules, with their ages."""
    now = time.time() if now is None else now
    return [lock for entry in entries for name in entry.locks if (lock := _read(entry, entry.path / name, now))]


def _read(entry: Entry, path: Path, now: float) -> Lock | None:
    try:
        status = path.lstat()
        folder = entry.path.stat()
    except OSError:
        return None  # released meanwhile
    if not stat.S_ISREG(status.st_mode):
        return None
    last = max([folder.st_mtime, *(file.modified for file in entry.files())])
    return Lock(
        path, entry, now - status.st_mtime, status.st_ino, status.st_mtime_ns, status.st_size, status.st_uid, now - last
    )


def judge(lock: Lock, host: Host, system: FileSystem) -> Finding:
    """Say whether somebody holds a lock.

    Args:
        lock: The lock.
        host: This host's processes.
        system: Where the lock lies.
    """
    holders = _holders(lock, host)
    if holders:
        names = ", ".join(f"{process.name} ({process.pid})" for process in holders[:4])
        return Finding(lock, "live", f"{names} works on it", "wait for it to end", holders)
    wait = f"if nothing compiles on any host that uses it, remove {lock.path}, or run `{CLEAR_LOCKS}`"
    if lock.size:
        return Finding(lock, "maybe", f"it holds {lock.size} bytes, and Neuron's locks are empty", wait)
    if not system.local:
        where = system.network or "a file system of unknown kind"
        return Finding(lock, "maybe", f"it lies on {where}: another host may hold it", wait)
    if host.boot is not None and lock.modified / 1e9 < host.boot - CLOCK_SLACK:
        return Finding(lock, "stale", "it is older than this host's last start", "clear it")
    if host.container and system.kind not in PRIVATE:
        return Finding(lock, "maybe", "this is a container, and the folder comes from outside: others may use it", wait)
    if not host.whole:
        return Finding(lock, "maybe", "not all processes of this host can be seen", wait)
    if min(lock.age, lock.quiet) < facts.LOCK_SETTLED:
        return Finding(
            lock,
            "maybe",
            f"it, or its module, was written {max(0, min(lock.age, lock.quiet)):.0f} s ago",
            f"look again in {facts.LOCK_SETTLED / 60:.0f} minutes",
        )
    # A compiler that was started with another root named has nothing to do with this one.
    processes = [process for process in host.processes if process.root is None or _inside(lock.path, process.root)]
    compilers = tuple(process for process in processes if process.compiles)
    if compilers:
        names = ", ".join(f"{process.name} ({process.pid})" for process in compilers[:4])
        return Finding(lock, "maybe", f"{names} compiles something", f"when that has ended: {wait}", compilers)
    users = tuple(p for p in processes if p.uses_cache or (p.uses_cache is None and p.uid == lock.uid))
    if users:
        names = ", ".join(f"{process.name} ({process.pid})" for process in users[:4])
        advice = f"if it prints that another process must be compiling, it waits for this lock: {wait}"
        return Finding(lock, "maybe", f"{names} uses Neuron's cache and may hold it", advice, users)
    return Finding(lock, "stale", "no process of this host compiles or uses Neuron's cache", "clear it")


def _inside(path: Path, root: Path) -> bool:
    return os.path.realpath(path).startswith(f"{os.path.realpath(root).rstrip('/')}/")


def _holders(lock: Lock, host: Host) -> tuple[Process, ...]:
    """Processes that name the module, or have something in its folder open. Work folders are named after it too."""
    place = os.path.realpath(lock.entry.place)
    inside = (place, lock.entry.place)
    name = lock.entry.name
    found = []
    for process in host.processes:
        if process.pid == os.getpid():
            continue
        touched = any(file.startswith(folder + "/") for file in process.files or () for folder in inside)
        # The same module may be compiled into another root.
        ours = process.compiles and (process.root is None or _inside(lock.path, process.root))
        if touched or (ours and any(_names(word, name) for word in (*process.arguments, *(process.files or ())))):
            found.append(process)
    return tuple(found)


def _names(text: str, name: str) -> bool:
    """Whether a path names the module: itself, not one that it is the beginning of."""
    start = text.find(name)
    while start >= 0:
        following = text[start + len(name) : start + len(name) + 1]
        if not (following.isalnum() or following == "+"):
            return True
        start = text.find(name, start + 1)
    return False


def examine(
    entries: Iterable[Entry], *, host: Host | None = None, mounts: str | None = None, now: float | None = None
) -> list[Finding]:
    """Find and judge all locks of some modules.

    Args:
        entries: The modules.
        host: This host's processes; looked at by default, where there is a lock.
        mounts: The text of /proc/mounts; read by default.
        now: The time, for ages.
    """
    locks = find(entries, now)
    if not locks:
        return []
    seen = look() if host is None else host
    return [judge(lock, seen, file_system(lock.path.parent, mounts)) for lock in locks]


def clear(finding: Finding, *, host: Host | None = None, mounts: str | None = None, now: float | None = None) -> str:
    """Remove a lock that certainly nobody holds; judged anew, with the processes of this moment.

    Returns:
        Why it was left; empty where it is gone.
    """
    if finding.verdict != "stale":
        return finding.reason
    old = finding.lock
    try:
        entry = read_entry(old.entry.place, old.entry.compiler, old.entry.name)
    except OSError:
        return ""
    lock = _read(entry, old.path, time.time() if now is None else now)
    if lock is None:
        return ""  # its owner, or somebody else, was quicker
    again = judge(lock, look() if host is None else host, file_system(old.path.parent, mounts))
    if again.verdict != "stale":
        return again.reason
    return _unlink(old.path, old.inode, old.modified)


def _unlink(path: Path, inode: int, modified: int) -> str:
    """Remove a file if it is still the one that was judged."""
    try:
        status = path.lstat()
        if (status.st_ino, status.st_mtime_ns) != (inode, modified):
            return "it is another one than was judged"
        path.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


# Remembered failures


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A module whose failure Neuron remembers: it is never compiled again, and its run goes on without it.

    Attributes:
        entry: The module.
        log: The file that remembers.
        age: Seconds since it was written.
        excerpt: The lines of it that tell why.
        failure: What the classifier made of the log.
        inode: With `modified`, what tells the log from a later one.
        modified: When it was written, in nanoseconds since 1970.
        text: The log, of a long one its beginning and its end: what a failure is classified by.
    """

    entry: Entry
    log: Path
    age: float
    excerpt: tuple[str, ...]
    failure: str
    inode: int
    modified: int
    text: str = ""


def poisoned(
    entries: Iterable[Entry], classify: Callable[[str], str] | None = None, now: float | None = None
) -> list[Poisoned]:
    """All remembered failures among some modules.

    Args:
        entries: The modules.
        classify: Names the class of a failure by its log's text.
        now: The time, for ages.
    """
    now = time.time() if now is None else now
    found = []
    for entry in entries:
        log = entry.path / facts.FAILURE_LOG
        if entry.state != "failed":
            continue
        try:
            status = log.stat()
            text = _ends(log)
        except OSError:
            continue
        failure = classify(text) if classify else ""
        found.append(
            Poisoned(entry, log, now - status.st_mtime, excerpt(text), failure, status.st_ino, status.st_mtime_ns, text)
        )
    return found


def forget(failure: Poisoned) -> str:
    """Remove a remembered failure, so that its graph is compiled again.

    Returns:
        Why it was left: somebody works on the module, or the failure is a newer one; empty where it is gone.
    """
    try:
        entry = read_entry(failure.entry.place, failure.entry.compiler, failure.entry.name)
    except OSError:
        return ""
    if entry.locks:
        return "its module is locked"
    return _unlink(failure.log, failure.inode, failure.modified)


def _ends(log: Path) -> str:
    with log.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        if size <= HEAD + TAIL:
            return source.read().decode("utf-8", "replace")
        head = source.read(HEAD)
        source.seek(size - TAIL)
        return head.decode("utf-8", "replace") + "\n…\n" + source.read(TAIL).decode("utf-8", "replace")


def excerpt(text: str) -> tuple[str, ...]:
    """The lines of a failed compile's log that tell why: those with errors, else the last ones; each cut to 300."""
    lines = [_cut(line.strip()) for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line for mark in facts.ERROR_MARKS)]
    return tuple(dict.fromkeys(telling or lines[-EXCERPT_LINES:]))[:EXCERPT_LINES]


def _cut(line: str) -> str:
    """The first line quotes the whole command before it says what went wrong."""
    places = [place for mark in facts.ERROR_MARKS if (place := line.find(mark)) >= 0]
    start = min(places, default=0)
    return line[start if start > LONGEST_LINE // 2 else 0 :][:LONGEST_LINE]
