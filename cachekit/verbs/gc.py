"""Take out of the store what nobody needs: what no record names, and records beyond a size, an age or a compiler.

Which records go first is decided by their last use. Pinned ones stay, and those that somebody uses at this moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cachekit import config as settings
from cachekit.store import uses
from cachekit.store.gate import held
from cachekit.store.layout import Layout
from cachekit.store.leftovers import Leftover, leftovers, quarantined, sized, unfinished
from cachekit.store.pins import pinned
from cachekit.store.reach import Entry, Reach, blobs, copy_of
from cachekit.store.removal import Remover, Victim, files_of
from cachekit.values import by_value
from cachekit.verbs.session import Session

ROUNDS = 3  # looks at what was published while it was at work
RECENT = 86_400.0  # seconds: somebody may still be fetching it


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay.

    Attributes:
        max_size: Bytes of the whole store; None is no limit.
        max_age: Seconds since a record was used last; None is no limit.
        compiler: Only records of compilers' folders, or of versions in their names, that fit this pattern go; all of
            them where no limit is given. Empty means all compilers.
    """

    max_size: int | None = None
    max_age: float | None = None
    compiler: str = ""

    @classmethod
    def given(
        cls, home: Path | str | None, max_size: int | str | None, max_age: float | str | None, compiler: str = ""
    ) -> Limits:
        """Limits as somebody gives them, `50GB` and `30d`; those of the settings where none is given.

        The settings' limits are for all records: with a compiler only limits count that are given with it.

        Raises:
            UsageError: One is no size, or no time.
        """
        config = settings.load({"home": home, "gc_max_size": max_size, "gc_max_age": max_age})
        return cls(
            None if compiler and max_size is None else config.gc_max_size,
            None if compiler and max_age is None else config.gc_max_age,
            compiler,
        )


@dataclass(frozen=True, slots=True)
class Collected:
    """What went, or would go.

    Attributes:
        home: The store's folder.
        dry_run: Nothing was removed.
        limits: What was asked for.
        records: Records, each with its files and their sizes, in the order in which they go.
        files: Everything else, with sizes, each with the reason.
        before: Bytes of the store.
        pinned: Bytes of the records that stay because they are pinned.
        used: And because somebody uses them now.
        kept: What was to go and stayed, with the reason.
        seconds: Wall time.
    """

    home: Path
    dry_run: bool
    limits: Limits
    records: tuple[tuple[Victim, Mapping[Path, int]], ...]
    files: Mapping[Path, tuple[int, str]]
    before: int
    pinned: int
    used: int
    kept: tuple[tuple[Victim, str], ...] = ()
    seconds: float = 0.0

    __hash__ = by_value

    @property
    def size(self) -> int:
        """Bytes that went."""
        return sum(size for size, _ in self.files.values()) + sum(sum(files.values()) for _, files in self.records)

    @property
    def after(self) -> int:
        """Bytes of the store afterwards."""
        return self.before - self.size

    def as_dict(self) -> dict[str, Any]:
        """For programs: every path that goes, below the store's folder where it lies in that."""
        return {
            "dry_run": self.dry_run,
            "records": [
                {
                    "key": victim.entry.key,
                    "recipe": victim.entry.recipe,
                    "directory": victim.entry.directory,
                    "model_type": victim.entry.model_type,
                    "last_used": _moment(victim.used),
                    "why": victim.why,
                    "bytes": sum(files.values()),
                    "files": [{"path": self._below(path), "bytes": size} for path, size in files.items()],
                }
                for victim, files in self.records
            ],
            "files": [
                {"path": self._below(path), "bytes": size, "why": why} for path, (size, why) in self.files.items()
            ],
            "kept": [{"key": victim.entry.key, "why": why} for victim, why in self.kept],
            "bytes": self.size,
            "before": self.before,
            "after": self.after,
            "max_size": self.limits.max_size,
            "max_age": self.limits.max_age,
            "compiler": self.limits.compiler,
            "pinned_bytes": self.pinned,
            "used_bytes": self.used,
            "seconds": round(self.seconds, 3),
        }

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)


def gc(session: Session, limits: Limits, *, dry_run: bool = False) -> Collected:
    """Remove what nobody needs, while others go on.

    Args:
        session: Collaborators.
        limits: What may stay.
        dry_run: Only say what would go.

    Raises:
        StoreError: The store cannot be written, or not all of its index be read.
        WaitedTooLongError: Others publish all the time.
    """
    start = time.monotonic()
    layout = session.store.layout
    if not layout.blobs.exists() and not layout.records.exists():
        return Collected(layout.home, dry_run, limits, (), {}, 0, 0, 0)
    reach = session.store.reach(lambda done, of: session.journal.show("store.reading", done=done, of=of))
    plan = _Plan(session, reach, limits)
    if dry_run:
        return replace(plan.collected(), dry_run=True, seconds=time.monotonic() - start)
    remover = Remover(
        layout, session.store.gate, reach, tell=lambda count: session.journal.show("gc.removing", files=count)
    )
    first, reasons = plan, plan.reasons()
    for _ in range(ROUNDS):
        remover.leftovers(plan.scraps)
        remover.blobs(plan.orphans)
        remover.records(plan.victims)
        plan = _Plan(session, reach, limits)
        if limits.max_size is None or plan.before <= limits.max_size or not plan.victims:
            break
        reasons |= plan.reasons()
    removed = remover.removed
    done = Collected(
        layout.home, False, limits, tuple(removed.records),
        {path: (size, reasons.get(path, "of no record")) for path, size in removed.files.items()},
        plan.before + removed.size, plan.pinned, plan.used, tuple(removed.kept), time.monotonic() - start,
    )  # fmt: skip
    session.journal.emit(
        "gc.end", records=len(done.records), files=len(done.files), bytes=done.size, before=first.before,
        after=done.after, seconds=round(done.seconds, 3),
    )  # fmt: skip
    return done


@dataclass(slots=True)
class _State:
    """What the store holds, while it is thought through what goes."""

    reach: Reach
    sizes: dict[str, int]
    size: int
    notes: dict[str, int] = field(default_factory=dict)


class _Plan:
    """What goes, decided at one moment."""

    def __init__(self, session: Session, reach: Reach, limits: Limits) -> None:
        self._layout = layout = session.store.layout
        self._limits = limits
        self._now = time.time()
        self._pins = frozenset(pinned(layout))
        self._held = held(layout)
        sizes, strangers = blobs(layout)
        notes = {path.name: size for path, size in sized(layout.verified)}
        self._state = _State(reach.copied(), sizes, 0, notes)
        self.scraps = leftovers(
            layout, session.config.live_dir, {entry.key for entry in reach.entries.values()} | self._pins, sizes
        )
        self.before = (
            sum(sizes.values())
            + sum(strangers.values())
            + sum(notes.values())
            + sum(entry.size for entry in reach.entries.values())
            + sum(size for _, _, size in (*quarantined(layout), *unfinished(layout)))
            + sum(one.size for one in self.scraps if not _counted(layout, one.path))
        )
        kept = _of_flawed(layout, reach, sizes)
        self.orphans = sorted(
            digest for digest in sizes if not (digest in reach.named or digest in self._held.blobs or digest in kept)
        )
        gone = {one.path for one in self.scraps}
        self._orphan_files = {
            path: size
            for digest in self.orphans
            for path, size in _blob(layout, self._state, digest).items()
            if path not in gone
        }
        self._size = self.before - sum(one.size for one in self.scraps) - sum(self._orphan_files.values())
        self._press()
        self._records = list(self._choose())
        self.victims = [victim for victim, _ in self._records]
        going = {victim.entry.path for victim in self.victims}
        stay = [entry for path, entry in reach.entries.items() if path not in going]
        self.pinned = _bytes(self._state, (entry for entry in stay if entry.key in self._pins))
        self.used = _bytes(self._state, (entry for entry in stay if entry.key in self._held.keys - self._pins))

    def reasons(self) -> dict[Path, str]:
        """Why each file that is no record's goes."""
        return {one.path: one.why for one in self.scraps}

    def collected(self) -> Collected:
        files = {one.path: (one.size, one.why) for one in self.scraps}
        files |= {path: (size, "of no record") for path, size in self._orphan_files.items()}
        return Collected(
            self._layout.home, True, self._limits, tuple(self._records), files, self.before, self.pinned, self.used
        )

    def _press(self) -> None:
        """Under pressure what was set aside goes before anything of use, the oldest first."""
        limit = self._limits.max_size
        if limit is None:
            return
        known = {one.path for one in self.scraps}
        old = [one for one in unfinished(self._layout) if one[0] < self._now - RECENT]
        for _, path, size in sorted([*quarantined(self._layout), *old]):
            if self._size <= limit:
                return
            if path not in known:
                self.scraps.append(Leftover(path, size, "beyond the limit, and of no use"))
                self._size -= size

    def _choose(self) -> Iterator[tuple[Victim, dict[Path, int]]]:
        """The records that go, each with its files."""
        limits = self._limits
        everything = limits.compiler and limits.max_size is None and limits.max_age is None
        for victim in self._candidates():
            age = self._now - victim.used
            if everything:
                why = f"of {victim.entry.directory}"
            elif limits.max_age is not None and age > limits.max_age:
                why = "not used for so long"
            elif limits.max_size is not None and self._size > limits.max_size:
                why = "beyond the limit"
            else:
                continue
            files = files_of(self._layout, self._state.reach, victim.entry, self._held.blobs)
            self._size -= sum(files.values())
            yield replace(victim, why=why), files

    def _candidates(self) -> list[Victim]:
        layout = self._layout
        found = [
            Victim(entry, uses.last(layout, entry.key, entry.published), "")
            for entry in self._state.reach.entries.values()
            if not entry.foreign
            and entry.key not in self._pins
            and entry.key not in self._held.keys
            and fits(entry.directory, self._limits.compiler)
        ]
        pending = {path.name for path in layout.remotes.glob("*/pending/*")}  # no other place has them yet
        return sorted(found, key=lambda victim: (victim.entry.key in pending, victim.used, victim.entry.path))


def fits(directory: str, pattern: str) -> bool:
    """Whether a compiler's folder, its version, or that without its commit, fits a pattern; all fit none."""
    version = directory.partition("-")[2]
    names = {directory, version, directory.partition("+")[0], version.partition("+")[0]}
    return not pattern or any(fnmatchcase(name, pattern) for name in names)


def _of_flawed(layout: Layout, reach: Reach, sizes: Mapping[str, int]) -> set[str]:
    """Copies of records that are damaged in the index, and what they name: `verify --repair` needs them."""
    flawed = {path for path, entry in reach.entries.items() if entry.flaw}
    found: set[str] = set()
    for digest in (digest for digest in sizes if digest not in reach.named) if flawed else ():
        record = copy_of(layout.blob(digest))
        if record is not None and layout.record(record.directory, record.model_type, record.key) in flawed:
            found |= {digest, *(file.sha256 for file in record.files)}
    return found


def _blob(layout: Layout, state: _State, digest: str) -> dict[Path, int]:
    files = {}
    if digest in state.sizes:
        files[layout.blob(digest)] = state.sizes[digest]
    if digest in state.notes:
        files[layout.verified / digest] = state.notes[digest]
    return files


def _bytes(state: _State, entries: Iterator[Entry]) -> int:
    wanted = {digest for entry in entries for digest in entry.files}
    return sum(state.sizes.get(digest, 0) for digest in wanted)


def _counted(layout: Layout, path: Path) -> bool:
    return path.parent in {layout.partial, layout.quarantine, layout.verified}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
