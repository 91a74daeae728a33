"""What a check of `cachekit doctor` is and says, and what several checks ask of a folder."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cachekit import disk, private
from cachekit.config import Config
from cachekit.text import DAY, count, size

MINUTE, HOUR = 60.0, 3600.0
SMALL = 1 << 30  # bytes: less than this is not enough for one compile
FEW = 5000  # files: an Inductor cache is hundreds of them

State = Literal["ok", "problem", "unknown"]
STATES: tuple[State, ...] = ("ok", "problem", "unknown")


class Finding(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        state: `unknown` where it could not be looked at.
        said: What it is, one line.
        repair: How to repair it, in words; empty where nothing is wrong, or where the command says it all.
        run: The command that repairs it, to be copied whole.
        check: The name of the check; `doctor` sets it.
    """

    state: State
    said: str
    repair: str = ""
    run: str = ""
    check: str = ""


class Check(Struct, frozen=True):
    """A check of the set-up.

    Attributes:
        name: For people and programs: `neuron-locks`.
        look: Looks, and changes nothing. Findings come in the order in which people should see them.
        chosen: Of a compiler's: it matters only where that compiler is the one that compiles here.
        installed: Of a compiler's: whether it is installed as it should be, which a proof of it begins with.
    """

    name: str
    look: Callable[[Config], Iterable[Finding]]
    chosen: bool = False
    installed: bool = False


def trouble(path: Path, variable: str) -> Finding | None:
    """Why a folder that must be written to cannot be; None where it can.

    No folder is taken from whoever has it: what others put there would become one's own.

    Args:
        path: The folder; where it is not there yet, what is above it counts.
        variable: Says where it is.
    """
    place = disk.existing(path)
    repair = f"set {variable} to a folder that you may write to"
    if not place.is_dir():
        return Finding("problem", f"{place} is not a folder", repair)
    if not disk.may_write(place):
        return Finding("problem", f"{place} cannot be written by this user", repair)
    return None


def exposed(path: Path, variable: str) -> Finding | None:
    """Why a folder of code cannot be this user's alone; None where it can.

    Args:
        path: The folder; it need not be there yet.
        variable: Says where it is.
    """
    found = private.obstacle(path)
    if found is None:
        return None
    said = f"{path} is not used: somebody else can change what is there, and a compiler cache is code; {found.why}"
    return Finding("problem", said, run=found.mend or private.new_folder(variable))


def full(path: Path, variable: str) -> list[Finding]:
    """What is short on the disk of a folder, which a variable may name: bytes, or room for files."""
    place = disk.existing(path)
    state = os.statvfs(place)
    repair = f"free some space, or set {variable} to another disk" if variable else "free some space"
    found = []
    if (free := state.f_bavail * state.f_frsize) < SMALL:
        found.append(Finding("problem", f"only {size(free)} are free for {path}", repair, _usage("-h", place)))
    if state.f_files and state.f_favail < FEW:
        said = f"the file system of {path} has room for {state.f_favail:,} more files"
        found.append(Finding("problem", said, repair, _usage("-i", place)))
    return found


def _usage(how: str, place: Path) -> str:
    return f"df {how} {shlex.quote(str(place))}"


def age(seconds: float) -> str:
    """A time that is past, for people."""
    if seconds < HOUR:
        return count(round(seconds / 60), "minute") if seconds >= MINUTE else "less than a minute"
    return count(round(seconds / HOUR), "hour") if seconds < 2 * DAY else count(round(seconds / DAY), "day")


def of_others(path: Path, depth: int = 2) -> int:
    """How many folders, down to a depth, belong to another user; root may do what it wants."""
    me = os.geteuid()
    if not me:
        return 0
    number = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    number += entry.stat(follow_symlinks=False).st_uid != me
                    number += of_others(Path(entry.path), depth - 1) if depth > 1 else 0
    return number


def of_this_environment(program: Path) -> bool:
    """Whether a program on PATH is one of this Python's: beside it, linked to there, or run by it."""
    ours = {Path(sys.executable).parent.resolve()}
    for scheme in {sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")}:
        ours.add(Path(sysconfig.get_path("scripts", scheme)).resolve())
    try:
        with program.open("rb") as source:
            first = source.readline(4096)
    except OSError:
        first = b""
    runner = Path(os.fsdecode(first[2:].strip())).parent.resolve() if first.startswith(b"#!/") else None
    if runner in ours:
        return True
    if runner is not None and b"python" in first:
        return False  # where it lies says less than who runs it
    return program.parent.resolve() in ours or program.resolve().parent in ours
