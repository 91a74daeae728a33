"""All runs of this user that a store has seen: by their journals, and by the figures of journals that were removed.

`state/stats/<uid>/<month>.jsonl` has a line for each run of the month with what its journal came to; of several lines
of a run the last one counts. Lines are only appended, and a journal is removed only after its line was read back. So
each run counts once, with any number of processes that count and remove, and any of them killed, without a lock.
Figures cannot be derived from records, so they are not in the index, which may be deleted.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit import events, files, private, whose
from cachekit.decode import from_json
from cachekit.store.counting import Counted, count
from cachekit.store.durable import make_folders, sync_folder
from cachekit.store.layout import Layout
from cachekit.text import DAY, cause_of

RUN = re.compile(r"(\d{4})(\d{2})(\d{2})T\d{6}Z-[0-9a-f]{8}")
RULE = 6  # by which runs are counted: a journal that is still there and was counted by another rule is counted anew


class _Line(Struct, frozen=True, array_like=True, gc=False):
    """A run's line; size and time (ns) are those of its journal."""

    run: str
    rule: int
    size: int
    changed: int
    counted: Counted


class History(Struct, frozen=True):
    """What is known of this user's runs with a store.

    Attributes:
        runs: All of this user by name, which is also their order in time.
        problems: What could not be read.
    """

    runs: dict[str, Counted] = {}
    problems: tuple[str, ...] = ()


def day_of(run: str) -> str:
    """The day, in UTC, on which a run began: 2026-11-21."""
    return f"{run[:4]}-{run[4:6]}-{run[6:8]}"


def journals(layout: Layout) -> dict[str, os.DirEntry[str]]:
    """This user's journals in a store by the names of their runs, oldest first."""
    found: dict[str, os.DirEntry[str]] = {}
    for folder in files.entries(layout.journal):
        for entry in files.entries(folder.path):
            name = entry.name.removesuffix(".jsonl")
            if name != entry.name and RUN.fullmatch(name):
                found[name] = entry
    return dict(sorted(found.items()))


def history(layout: Layout) -> History:
    """Count everything; what was counted before, and has not changed, is not read again."""
    there = journals(layout)
    problems: list[str] = []
    known = _known(layout, problems)
    fresh: list[_Line] = []
    removed = False
    for entry in there.values():
        try:
            fresh += _counted(Path(entry.path), known)
        except FileNotFoundError:
            removed = True
        except OSError as error:
            problems.append(f"{entry.path}: {cause_of(error)}")
    if removed:  # since they were listed: their lines were there before that
        known |= _known(layout, [])
    known |= {line.run: line for line in fresh}
    # A run that goes on will be counted anew. A store that cannot be written is counted anew each time.
    with suppress(OSError):
        _append(layout, [line for line in fresh if not _unfinished(line.counted)])
    return History({name: known[name].counted for name in sorted(known)}, tuple(problems))


def recount(layout: Layout) -> dict[str, Counted]:
    """Every journal that can be read and has ended, counted from its events; what was kept of it is not looked at."""
    found = {}
    for run, entry in journals(layout).items():
        with suppress(OSError):
            counted = count(events.read(Path(entry.path)))
            if not _unfinished(counted):
                found[run] = counted
    return found


def _counted(journal: Path, known: dict[str, _Line]) -> list[_Line]:
    """The line of a journal, where it is not known; raises OSError."""
    status = journal.stat()
    line = known.get(journal.stem)
    if line is not None and (line.rule, line.size, line.changed) == (RULE, status.st_size, status.st_mtime_ns):
        return []
    return [_Line(journal.stem, RULE, status.st_size, status.st_mtime_ns, count(events.read(journal)))]


def _unfinished(counted: Counted) -> bool:
    return any(cell.figures.get("unfinished") for cell in counted.cells)


def _known(layout: Layout, problems: list[str], months: str = "*") -> dict[str, _Line]:
    """The lines of all months, by run."""
    known: dict[str, _Line] = {}
    damaged: dict[str, Path] = {}
    for path in sorted(layout.stats.glob(f"{months}.jsonl")):
        try:
            with files.opened(path) as source:
                if stranger := whose.outsider(source.fileno(), path):
                    problems.append(f"{path} is not counted: {stranger}")
                    continue
                raw = source.read()
        except OSError as error:
            problems.append(f"{path}: {cause_of(error)}")
            continue
        for text in filter(None, raw.split(b"\n")):
            try:
                line = from_json(text, _Line)
                known[line.run] = line
            except msgspec.DecodeError:
                # Most likely torn by a kill: then its journal is still there, or the line was written again.
                if run := RUN.search(text.decode("ascii", "replace")):
                    damaged[run[0]] = path
    lost = damaged.keys() - known.keys() - journals(layout).keys() if damaged else ()
    problems += [f"{damaged[run]}: the figures of run {run} are damaged" for run in sorted(lost)]
    return known


def _append(layout: Layout, lines: Iterable[_Line]) -> None:
    """Append lines, durably; raises OSError."""
    months: dict[str, list[bytes]] = {}
    for line in lines:
        months.setdefault(line.run[:6], []).append(msgspec.json.encode(line))
    for month, texts in months.items():
        path = layout.stats / f"{month}.jsonl"
        make_folders([path.parent], layout.home)
        # Begins with a newline: whoever was killed before may have left half a line.
        with open(path, "ab", buffering=0, opener=private.opened) as target:
            data = memoryview(b"\n".join([b"", *texts, b""]))
            while data:
                data = data[target.write(data) :]
            os.fsync(target.fileno())
        sync_folder(path.parent)


def retire(layout: Layout, days: int, now: float | None = None) -> int:
    """Remove journals that are older than `days`, when their figures are kept; returns how many. Never fails a run."""
    oldest = (time.time() if now is None else now) - days * DAY
    # A run lies in the folder of the month in which it began: younger folders hold nothing that is old.
    last = time.strftime("%Y%m", time.gmtime(oldest))
    folders = [layout.journal, *(Path(entry.path) for entry in files.entries(layout.journal) if entry.name <= last)]
    months: dict[str, list[Path]] = {}
    for path in (path for place in folders for path in _older(layout, place, oldest)):
        is_journal = path.suffix == ".jsonl" and RUN.fullmatch(path.stem)
        months.setdefault(path.stem[:6] if is_journal else "", []).append(path)
    removed = 0
    for month, paths in months.items():
        with suppress(OSError):
            for path in _kept(layout, month, paths) if month else paths:
                with suppress(OSError):
                    layout.inside.unlink(path)
                    removed += 1
    return removed


def _older(layout: Layout, place: Path, oldest: float) -> list[Path]:
    found = []
    with suppress(OSError), layout.inside.folder(place) as folder, os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                ours = entry.name.endswith(".jsonl") and stat.S_ISREG(state.st_mode)
                if ours and state.st_mtime < oldest:
                    found.append(place / entry.name)
    return found


def _kept(layout: Layout, month: str, paths: list[Path]) -> list[Path]:
    """Keep the figures of a month's journals; returns those whose figures are there now."""
    fresh: list[_Line] = []
    known = _known(layout, [], month)
    for path in paths:
        with suppress(OSError):
            fresh += _counted(path, known)
    if fresh:
        _append(layout, fresh)
        known = _known(layout, [], month)
    return [path for path in paths if path.stem in known]
