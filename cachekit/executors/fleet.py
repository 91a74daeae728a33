"""A fleet in the store: its file, the notes of its commands, and what became of each."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cachekit import files, private
from cachekit.errors import StoreError, UnknownNameError
from cachekit.executors.port import ENDED, Engine, Fleet, FleetUnit, Seen, State
from cachekit.store.layout import Layout
from cachekit.text import DAY, cause_of

NOTE = "fleet.json"
CANCELLED = "cancelled"
NONE = "no fleet was submitted from this store"
_ERROR = re.compile(rb"^error\[[a-z-]+\]: (.*)(?:\n  cause: (.*))?$", re.MULTILINE)
_END = 64 << 10  # bytes of a log in which its error is looked for
LARGEST = 16 << 20  # bytes of what a command printed that are read


class _Ended(Struct, frozen=True):
    """How a command ended, as `executors.unit` notes it."""

    host: str
    began: float
    ended: float
    code: int


class _Begun(Struct, frozen=True):
    """That a command began, likewise."""

    host: str
    time: float


class UnitState(Struct, frozen=True, kw_only=True):
    """What became of a command.

    Attributes:
        number: In the fleet, from 0.
        name: For people.
        state: See `executors.port.State`.
        machine: Where it runs, or ran.
        code: Its exit code; None where nobody knows one.
        seconds: How long it ran, or has been running; None before it began.
        reason: The engine's words.
    """

    number: int
    name: str
    state: State
    machine: str = ""
    code: int | None = None
    seconds: float | None = None
    reason: str = ""


def stopped(folder: Path, number: int) -> Path:
    """The note of how a command ended, where its exit code does not tell: a `Seen`."""
    return folder / f"{number}.stopped"


def create(layout: Layout, **fields: Any) -> Fleet:
    """A new fleet, in the store; nothing is submitted yet. The fields are those of `Fleet`, but for the first ones.

    Raises:
        StoreError: The store cannot be written.
    """
    name = f"{time.strftime('%y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    folder = layout.fleets / name
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    fleet = Fleet(id=name, created=created, folder=str(folder), **fields)
    try:
        private.private_folder(folder)
        files.replace(folder / NOTE, msgspec.json.encode(fleet), mode=private.FILE)
    except OSError as error:
        raise StoreError(
            "the fleet cannot be noted in the store",
            cause=f"{cause_of(error)}; the note says what the fleet runs" if _open(layout) else cause_of(error),
            hint="--home DIR, with a folder of your own that the machines share",
        ) from error
    return fleet


def retire(layout: Layout, days: int) -> None:
    """Remove the fleets of which nothing was noted for so many days. Never fails a run."""
    oldest = time.time() - days * DAY
    for found in _folders(layout):
        notes = [one.stat(follow_symlinks=False).st_mtime for one in files.entries(found.path)]
        if notes and max(notes) < oldest:
            shutil.rmtree(found.path, ignore_errors=True)


def forget(fleet: Fleet) -> None:
    """Remove a fleet that no engine knows."""
    shutil.rmtree(fleet.path, ignore_errors=True)


def every(layout: Layout) -> Iterator[Fleet]:
    """This user's fleets, newest first."""
    for found in sorted(_folders(layout), key=lambda one: one.name, reverse=True):
        fleet = files.noted(Path(found.path, NOTE), Fleet)
        if fleet is not None and fleet.folder == found.path:
            yield fleet


def _folders(layout: Layout) -> list[os.DirEntry[str]]:
    """The folders of this user's fleets; none where others could have put them there, or a link to elsewhere."""
    return [] if _open(layout) else [found for found in files.entries(layout.fleets) if not found.is_symlink()]


def _open(layout: Layout) -> bool:
    """Whether others can change what is noted of fleets: what runs, and which process to end."""
    return private.obstacle(layout.fleets / NOTE) is not None


def one(layout: Layout, beginning: str) -> Fleet:
    """The fleet whose name begins so; the newest where nothing is said.

    Raises:
        UnknownNameError: None does, or several do.
        StoreError: Its file cannot be read.
    """
    known = list(every(layout))
    names = {fleet.id for fleet in known}
    newest = max((found.name for found in _folders(layout) if files.entries(found.path)), default="")
    for name in {newest} if not beginning else {found.name for found in _folders(layout)} - names:
        if name not in names and name and name.startswith(beginning):
            raise StoreError(
                f"the notes of fleet {name} cannot be read",
                cause=f"{layout.fleets / name / NOTE} is missing, damaged, or of a store in another folder",
                hint=(
                    f"its commands go on: an engine calls them cachekit-{name}; `cachekit fleet ls` lists other fleets"
                ),
            )
    if not known:
        raise UnknownNameError(NONE, hint="cachekit warm RECIPE --on ENGINE")
    found = [fleet for fleet in known if fleet.id.startswith(beginning)]
    if not found or (beginning and len(found) > 1):
        raise UnknownNameError(
            f"{len(found) or 'no'} fleet{'s begin' if found else ' begins'} with {beginning!r}",
            hint="`cachekit fleet ls` lists them",
        )
    return found[0]


def states(fleet: Fleet, engine: Engine) -> tuple[UnitState, ...]:
    """What became of each command: what the engine says of it, and where it has forgotten it, its last note.

    Raises:
        EngineError: The engine does not answer.
    """
    seen = engine.look(fleet)
    return tuple(_state(fleet, number, unit, seen) for number, unit in enumerate(fleet.units))


def _state(fleet: Fleet, number: int, unit: FleetUnit, all_seen: Mapping[int, Seen]) -> UnitState:
    ended = files.noted(fleet.path / f"{number}.ended", _Ended)
    begun = files.noted(fleet.path / f"{number}.begun", _Begun)
    seen = all_seen.get(number)
    if seen is None and (fleet.path / CANCELLED).exists() and (ended is None or ended.code):
        seen = Seen("cancelled")
    if seen is None:
        reason = "" if ended else "the engine does not know it, and it left no exit code"
        seen = Seen("lost" if ended is None else "done" if ended.code == 0 else "failed", reason=reason)
    elif seen.state in {"cancelled", "timed-out"} and ended is not None and ended.code == 0:
        seen = Seen("done", seen.machine)  # it had ended well before it was asked to end
    if seen.state in {"done", "failed"} and ended is None:
        reason = seen.reason or "it left no exit code"
        if begun is None and not log(fleet, number):
            reason += f"; it did not begin: does its machine see {fleet.folder}?"
        seen = Seen("lost" if seen.state == "done" else "failed", seen.machine, reason)
    seconds = None
    if seen.state != "waiting" and ended is not None:
        seconds = ended.ended - ended.began
    elif seen.state == "running" and begun is not None:
        seconds = time.time() - begun.time
    code = ended.code if ended is not None and seen.state in ENDED else None
    machine = ended.host if ended else begun.host if begun else ""
    return UnitState(
        number=number,
        name=unit.name,
        state=seen.state,
        machine=seen.machine or (machine if seen.state != "waiting" else ""),
        code=code,
        seconds=None if seconds is None else round(max(seconds, 0.0), 3),
        reason=seen.reason,
    )


def cancel(fleet: Fleet, engine: Engine) -> None:
    """Cancel the commands of a fleet, running and waiting; also when the engine has forgotten it, that is known.

    Raises:
        EngineError: The engine does not answer, or refuses.
    """
    engine.cancel(fleet)
    files.note(fleet.path / CANCELLED, b"", mode=private.FILE)


def printed(fleet: Fleet, number: int) -> bytes:
    """What a command printed on stdout in its last attempt; nothing where that cannot be read."""
    try:
        return files.read(fleet.path / f"{number}.out", LARGEST)
    except OSError:
        return b""


def log(fleet: Fleet, number: int) -> list[Path]:
    """The files with what a command told, and what its engine told of it, as far as they are there."""
    names = (f"{number}.engine", f"{number}.log", f"{number}.out")
    return [path for name in names if (path := fleet.path / name).is_file() and path.stat().st_size]


def error(fleet: Fleet, number: int, *, failed: bool) -> str:
    """The last error in what a command told, or in what its engine told of it, with its cause; else empty.

    Where there is none, it is the engine's last line; and of a command that `failed`, its own last line.
    """
    lines: list[str] = []
    for path in reversed(log(fleet, number)):
        end = tail(path, _END)
        if found := _ERROR.findall(end):
            return b": ".join(filter(None, found[-1])).decode(errors="replace")
        if (path.suffix == ".engine" or (failed and path.suffix == ".log")) and end.strip():
            lines.insert(0, end.strip().splitlines()[-1].decode(errors="replace"))
    return "; ".join(lines)


def tail(path: Path, most: int) -> bytes:
    """The end of a file; nothing where it cannot be read."""
    try:
        with files.opened(path) as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - most))
            return source.read(most)
    except OSError:
        return b""
