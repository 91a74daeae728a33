"""All runs that a store has seen: those whose journals are there, and the sums of those whose journals were removed.

Two kinds of files lie in the store's `state/stats`. `runs.json` remembers what each journal came to while the journal
is as it was: anybody may remove it, it is made again. `<month>.json` has the sums of runs whose journals are gone, with
the runs' names. It is written before a journal is removed, so a run that is killed between the two leaves a run that is
in both, and counts once.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit import files
from cachekit.store.counting import Cell, Counted, count
from cachekit.store.layout import Layout

RUN = re.compile(r"(\d{4})(\d{2})(\d{2})T\d{6}Z-[0-9a-f]{8}")
SCHEMA = 1
RULE = 3  # by which runs were counted: what was remembered by another is counted anew


class _Known(Struct, frozen=True, array_like=True, gc=False):
    size: int
    changed: int  # ns
    counted: Counted


class _Memory(Struct, frozen=True):
    schema: int
    runs: dict[str, _Known]


class _Versioned(Struct, frozen=True):
    schema: int


class NewerError(ValueError):
    """A file of a later version of cachekit, which is left alone."""


class Day(Struct, frozen=True, array_like=True):
    """A cell of all removed runs of a day."""

    day: str
    cell: Cell


class Month(Struct, frozen=True):
    """Runs of a month whose journals were removed: their names, and their sums by day."""

    schema: int
    runs: list[str]
    days: list[Day]


@dataclass(frozen=True, slots=True)
class History:
    """What is known of a store's runs.

    Attributes:
        runs: Those whose journals are there, by name, which is also their order in time.
        removed: Names of the others.
        days: Sums of the others.
        problems: What could not be read.
    """

    runs: dict[str, Counted] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    days: tuple[Day, ...] = ()
    problems: tuple[str, ...] = ()


def day_of(run: str) -> str:
    """The day, in UTC, on which a run began: 2026-11-21."""
    return f"{run[:4]}-{run[4:6]}-{run[6:8]}"


def journals(layout: Layout) -> dict[str, os.DirEntry[str]]:
    """The journals of a store by the names of their runs, oldest first."""
    found: dict[str, os.DirEntry[str]] = {}
    for folder in _entries(layout.journal):
        for entry in _entries(folder.path):
            name = entry.name.removesuffix(".jsonl")
            if name != entry.name and RUN.fullmatch(name):
                found[name] = entry
    return dict(sorted(found.items()))


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def history(layout: Layout) -> History:
    """Count everything; what was counted before, and has not changed, is not read again."""
    memory = _memory(layout)
    runs: dict[str, _Known] = {}
    problems: list[str] = []
    fresh = False
    for name, entry in journals(layout).items():
        try:
            state = entry.stat()
            known = memory.get(name)
            if known is None or (known.size, known.changed) != (state.st_size, state.st_mtime_ns):
                known = _Known(state.st_size, state.st_mtime_ns, count(files.read(entry.path)))
                fresh = True
        except FileNotFoundError:
            continue  # removed meanwhile: its sums are read below
        except OSError as error:
            problems.append(f"{entry.path}: {error.strerror or error}")
            continue
        runs[name] = known
    # After the journals, never before: a run that is being removed is in one of the two at any moment.
    removed: set[str] = set()
    days: list[Day] = []
    for entry in _entries(folder(layout)):
        if ".damaged-" in entry.name:
            problems.append(f"{entry.path}: sums that were damaged, and set aside")
        if re.fullmatch(r"\d{6}\.json", entry.name):
            try:
                month = _month(Path(entry.path))
            except (OSError, NewerError, msgspec.DecodeError) as error:
                problems.append(f"{entry.path}: {error}")
                continue
            removed.update(month.runs)
            days += month.days
    if fresh or memory.keys() - runs.keys():
        _remember(layout, runs)
    kept = {name: known.counted for name, known in runs.items() if name not in removed}
    return History(kept, frozenset(removed), tuple(days), tuple(problems))


def folder(layout: Layout) -> Path:
    """Where sums lie."""
    return layout.state / "stats"


def _memory(layout: Layout) -> dict[str, _Known]:
    try:
        memory = msgspec.json.decode(files.read(folder(layout) / "runs.json"), type=_Memory)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return memory.runs if memory.schema == RULE else {}


def _remember(layout: Layout, runs: dict[str, _Known]) -> None:
    # A store that cannot be written is counted anew each time.
    files.note(folder(layout) / "runs.json", msgspec.json.encode(_Memory(RULE, runs)))


def _write(layout: Layout, name: str, raw: bytes) -> None:
    place = folder(layout)
    place.mkdir(parents=True, exist_ok=True)
    from cachekit.store.durable import publish

    finished = place / f".{name}.{uuid.uuid4().hex}"
    try:
        finished.write_bytes(raw)
        publish({finished: place / name}, layout.root, mode=0o644)
    finally:
        finished.unlink(missing_ok=True)


def _month(path: Path) -> Month:
    raw = files.read(path)
    if msgspec.json.decode(raw, type=_Versioned).schema > SCHEMA:
        raise NewerError("a newer cachekit wrote it")
    return msgspec.json.decode(raw, type=Month)


# Removing old journals


def retire(layout: Layout, days: int, now: float | None = None) -> int:
    """Remove journals that are older than `days`, when their sums are kept; returns how many. Never fails a run."""
    oldest = (time.time() if now is None else now) - days * 86_400
    # A run lies in the folder of the month in which it began: younger folders hold nothing that is old.
    last = time.strftime("%Y%m", time.gmtime(oldest))
    folders = [layout.journal, *(Path(entry.path) for entry in _entries(layout.journal) if entry.name <= last)]
    old = [path for place in folders for path in _older(place, oldest)]
    removed = 0
    with suppress(OSError, NewerError):
        if not old:
            return 0
        with _alone(layout) as mine:
            months: dict[str, list[Path]] = {}
            for path in old if mine else ():
                is_journal = path.suffix == ".jsonl" and RUN.fullmatch(path.stem)
                months.setdefault(path.stem[:6] if is_journal else "", []).append(path)
            for month, paths in months.items():
                kept = _keep(layout, month, paths) if month else paths
                for path in kept:
                    with suppress(OSError):
                        path.unlink()
                        removed += 1
    return removed


def _older(place: Path, oldest: float) -> list[Path]:
    found = []
    for entry in _entries(place):
        with suppress(OSError):
            if entry.is_file() and entry.stat().st_mtime < oldest:
                found.append(Path(entry.path))
    return found


def _keep(layout: Layout, month: str, paths: list[Path]) -> list[Path]:
    """Keep the sums of these journals; returns those that may be removed now."""
    known = _known_month(layout, month)
    runs = set(known.runs)
    cells = {(one.day, one.cell.recipe, one.cell.remote): dict(one.cell.figures) for one in known.days}
    kept = []
    for path in paths:
        if path.stem not in runs:
            try:
                counted = count(files.read(path))
            except OSError:
                continue
            for cell in counted.cells:
                sums = cells.setdefault((day_of(path.stem), cell.recipe, cell.remote), {})
                for name, value in cell.figures.items():
                    sums[name] = sums.get(name, 0) + value
            runs.add(path.stem)
        kept.append(path)
    if runs != set(known.runs):
        days = [Day(day, Cell(recipe, remote, figures)) for (day, recipe, remote), figures in sorted(cells.items())]
        raw = msgspec.json.encode(Month(SCHEMA, sorted(runs), days))
        _write(layout, f"{month}.json", raw)
    return kept


def _known_month(layout: Layout, name: str) -> Month:
    path = folder(layout) / f"{name}.json"
    try:
        return _month(path)
    except FileNotFoundError:
        pass
    except msgspec.DecodeError:
        path.replace(path.with_suffix(f".damaged-{uuid.uuid4().hex[:8]}"))  # kept for a person to look at
    return Month(SCHEMA, [], [])


@contextmanager
def _alone(layout: Layout) -> Iterator[bool]:
    """Whether nobody else removes journals now; who does, does it for us too."""
    from filelock import FileLock, Timeout

    folder(layout).mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder(layout) / "lock", timeout=0)
    try:
        lock.acquire()
    except (Timeout, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
