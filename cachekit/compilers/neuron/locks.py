"""Locks that nobody holds any more.

Neuron's lock is an empty file without an owner: a killed compile leaves it, and every later process waits for it with
no time limit. Whether somebody holds one can only be inferred. It is removed only where that is certain; a lock that
is removed while its compile runs lets two processes write one module.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.entries import CacheEntry, read_entry
from cachekit.compilers.neuron.processes import Process, Snapshot, look
from cachekit.disk import PRIVATE, FileSystem, file_system
from cachekit.text import cause_of

Verdict = Literal["stale", "maybe", "live"]
CLOCK_SLACK = 60.0  # seconds by which file times and the host's start may disagree

CLEAR_LOCKS = f"{facts.PARALLEL_COMPILE} --command clear-locks"


class Lock(Struct, frozen=True):
    """A lock file of a module."""

    path: Path
    entry: CacheEntry
    age: float  # seconds since it was written, when it was found
    inode: int  # with `modified`, what tells it from a later one of the same name
    modified: int  # when it was written, in nanoseconds since 1970
    size: int  # in bytes; Neuron's are empty
    uid: int  # whose it is
    quiet: float  # seconds since anything in the module's folder was written


class LockState(Struct, frozen=True):
    """A lock with what can be said of it."""

    lock: Lock
    verdict: Verdict  # `stale` is certain; `live` is certain too; everything else is `maybe`
    reason: str
    advice: str
    holders: tuple[Process, ...] = ()  # processes that hold it, or may


def find(entries: Iterable[CacheEntry], now: float | None = None) -> list[Lock]:
    """All locks of some modules, with their ages."""
    now = time.time() if now is None else now
    return [lock for entry in entries for name in entry.locks if (lock := _read(entry, entry.path / name, now))]


def _read(entry: CacheEntry, path: Path, now: float) -> Lock | None:
    try:
        status = path.lstat()
        folder = entry.path.stat()
    except OSError:
        return None  # released meanwhile
    if not stat.S_ISREG(status.st_mode):
        return None
    last = max([folder.st_mtime, *(file.st_mtime for file in entry.files().values())])
    return Lock(
        path, entry, now - status.st_mtime, status.st_ino, status.st_mtime_ns, status.st_size, status.st_uid, now - last
    )


def judge(lock: Lock, host: Snapshot, system: FileSystem) -> LockState:
    """Say whether somebody holds a lock, by this host's processes and by where the lock lies."""
    holders = _holders(lock, host)
    if holders:
        names = ", ".join(f"{process.name} ({process.pid})" for process in holders[:4])
        return LockState(lock, "live", f"{names} is working on it", "wait for it to end", holders)
    wait = f"if nothing compiles on any host that uses it, remove {lock.path}, or run `{CLEAR_LOCKS}`"
    if lock.size:
        return LockState(lock, "maybe", f"it holds {lock.size} bytes, and Neuron's locks are empty", wait)
    if not system.local:
        where = system.network or "a file system of unknown kind"
        return LockState(lock, "maybe", f"it is on {where}: another host may hold it", wait)
    if host.boot is not None and lock.modified / 1e9 < host.boot - CLOCK_SLACK:
        return LockState(lock, "stale", "it is older than this host's last start", "clear it")
    if host.container and system.kind not in PRIVATE:
        return LockState(
            lock, "maybe", "this is a container, and the folder comes from outside: others may use it", wait
        )
    if not host.whole:
        return LockState(lock, "maybe", "not all processes of this host can be seen", wait)
    if min(lock.age, lock.quiet) < facts.LOCK_SETTLED:
        return LockState(
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
        return LockState(lock, "maybe", f"{names} compiles something", f"when that has ended: {wait}", compilers)
    users = tuple(p for p in processes if p.uses_cache or (p.uses_cache is None and p.uid == lock.uid))
    if users:
        names = ", ".join(f"{process.name} ({process.pid})" for process in users[:4])
        advice = f"if it prints that another process must be compiling, it waits for this lock: {wait}"
        return LockState(lock, "maybe", f"{names} uses Neuron's cache and may hold it", advice, users)
    return LockState(lock, "stale", "no process of this host compiles or uses Neuron's cache", "clear it")


def _inside(path: Path, root: Path) -> bool:
    return os.path.realpath(path).startswith(f"{os.path.realpath(root).rstrip('/')}/")


def _holders(lock: Lock, host: Snapshot) -> tuple[Process, ...]:
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
    entries: Iterable[CacheEntry], *, host: Snapshot | None = None, mounts: str | None = None, now: float | None = None
) -> list[LockState]:
    """Find and judge all locks of some modules; the host, its mounts and the time may be given."""
    locks = find(entries, now)
    if not locks:
        return []
    seen = look() if host is None else host
    return [judge(lock, seen, file_system(lock.path.parent, mounts)) for lock in locks]


def clear(
    finding: LockState, *, host: Snapshot | None = None, mounts: str | None = None, now: float | None = None
) -> str:
    """Remove a lock that certainly nobody holds; judged anew, with the processes of this moment.

    Gives why it was left; nothing where it is gone.
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
    return remove(old.path, old.inode, old.modified)


def remove(path: Path, inode: int, modified: int) -> str:
    """Remove a file if its inode and its time are still those that were judged; gives why it was left, if it was."""
    try:
        status = path.lstat()
        if (status.st_ino, status.st_mtime_ns) != (inode, modified):
            return "it is not the lock that was judged"
        path.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return cause_of(error)
    return ""
