"""Look at everything that the store holds, and say what of it is bad: `cachekit verify`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import facts, native, neff
from cachekit.compilers.neuron.fit import claim, misfit
from cachekit.compilers.neuron.flags import read_flags
from cachekit.compilers.neuron.native_check import examine
from cachekit.errors import IntegrityError
from cachekit.remotes.layout import file_path
from cachekit.store.layout import Layout
from cachekit.store.leftovers import leftovers, quarantined
from cachekit.store.reach import Entry, blobs, judged, read_entry, unreadable
from cachekit.store.record import File, Module, Record
from cachekit.store.verify import MISSING, Verifier
from cachekit.verbs.session import Session

LANES = 4  # blobs hashed at once, at most


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not what it should be.

    Attributes:
        kind: `record`; `blob`: a file of modules; `copy`: that of a record among the blobs; `neff`: a compiled graph
            that is what its record says, and cannot be used all the same, or an archive with such a graph in it.
        entry: The record that it is of, or the first of several.
        keys: Of all of them.
        file: The module and its file, or what it is.
        path: Where it lies in the store.
        digest: Of the blob that should be there; empty for records.
        reason: What is wrong.
    """

    kind: str
    entry: Entry
    keys: tuple[str, ...]
    file: str
    path: Path
    digest: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "kind": self.kind,
            "keys": list(self.keys),
            "recipe": self.entry.recipe,
            "directory": self.entry.directory,
            "file": self.file,
            "path": str(self.path),
            "sha256": self.digest,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check found.

    Attributes:
        home: The store's folder.
        quick: Nothing was hashed.
        records: That were looked at.
        foreign: Of those, a later cachekit's, of which nothing can be said.
        blobs: Files that records name.
        size: Their bytes.
        problems: What is bad.
        notes: What is odd, and no damage.
        orphans: Blobs that no record names, and their bytes: `gc` removes them.
        leftovers: What dead processes left, and its bytes: `gc` removes that, too.
        quarantined: Files that were set aside earlier, and their bytes.
        seconds: Wall time.
    """

    home: Path
    quick: bool
    records: int = 0
    foreign: int = 0
    blobs: int = 0
    size: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    orphans: tuple[int, int] = (0, 0)
    leftovers: tuple[int, int] = (0, 0)
    quarantined: tuple[int, int] = (0, 0)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        pairs = {"orphans": self.orphans, "leftovers": self.leftovers, "quarantined": self.quarantined}
        return {
            "quick": self.quick,
            "records": self.records,
            "of_later_versions": self.foreign,
            "blobs": self.blobs,
            "bytes": self.size,
            "bad": [problem.as_dict() for problem in self.problems],
            "notes": list(self.notes),
            **{name: {"files": files, "bytes": size} for name, (files, size) in pairs.items()},
            "seconds": round(self.seconds, 3),
        }


def verify(session: Session, *, quick: bool = False) -> Verified:
    """Check records, blobs, copies of records, and compiled graphs; nothing is changed.

    Args:
        session: Collaborators.
        quick: Only look which files there are, and how large they are.

    Raises:
        StoreError: The store cannot be read.
    """
    start = time.monotonic()
    layout = session.store.layout
    if not layout.root.exists():
        return Verified(layout.home, quick)
    reach = session.store.reach(lambda done, of: session.journal.show("store.reading", done=done, of=of), strict=False)
    sizes, strangers = blobs(layout)
    judge = Judge(session, layout, quick=quick)
    problems, notes = judge.look(reach.entries.values(), sizes)
    keys = {entry.key for entry in reach.entries.values()}
    left = leftovers(layout, session.config.live_dir, keys, sizes)
    aside = list(quarantined(layout))
    reach.refresh(strict=False)  # published meanwhile
    # What a record that cannot be read names is nobody's only as far as one can tell: `gc` removes nothing then.
    told = all(entry.copy for entry in reach.entries.values())
    orphans = [size for digest, size in sizes.items() if digest not in reach.named] if told else []
    done = Verified(
        layout.home,
        quick,
        len(keys),
        sum(entry.foreign for entry in reach.entries.values()),
        judge.seen,
        judge.size,
        tuple(problems),
        (*notes, *(f"{path} is no blob, and lies among them" for path in sorted(strangers))),
        (len(orphans), sum(orphans)),
        (len(left), sum(one.size for one in left)),
        (len(aside), sum(size for _, _, size in aside)),
        time.monotonic() - start,
    )
    session.journal.emit("verify.end", **{name: value for name, value in done.as_dict().items() if name != "notes"})
    return done


def failure(found: Verified, problems: Iterable[Problem] | None = None) -> IntegrityError | None:
    """The error to end with, where something is bad still."""
    bad = list(found.problems if problems is None else problems)
    if not bad:
        return None
    keys = {key for problem in bad for key in problem.keys}
    first = bad[0]
    return IntegrityError(
        f"{len(keys)} of {found.records} records cannot be used: {', '.join(sorted(key[:12] for key in keys)[:5])}"
        + (" and more" if len(keys) > 5 else ""),  # noqa: PLR2004
        cause=f"{first.file or first.path}: {first.reason}",
        hint="cachekit verify --repair" if problems is None else "warm them again, or `cachekit rm KEY`",
    )


class Judge:
    """Judges records and what they name.

    Args:
        session: Told how far it is.
        layout: The store's paths.
        quick: Hash nothing.
    """

    def __init__(self, session: Session, layout: Layout, *, quick: bool) -> None:
        self._session = session
        self._layout = layout
        self._quick = quick
        self._verifier = Verifier(layout)
        self.seen = 0
        self.size = 0

    def look(self, entries: Iterable[Entry], sizes: Mapping[str, int]) -> tuple[list[Problem], list[str]]:
        """What is wrong with these records, and what is odd.

        Args:
            entries: The records.
            sizes: Of all blobs, by digest.
        """
        entries = sorted(entries, key=lambda entry: entry.path)
        good = [entry for entry in entries if not entry.flaw and not entry.foreign]
        problems = [
            Problem("record", entry, (entry.key,), "its record", entry.path, "", entry.flaw)
            for entry in entries
            if entry.flaw and self._is_as(entry)
        ]
        wanted = {digest: size for entry in good for digest, size in _named(entry)}
        self.seen, self.size = len(wanted), sum(wanted.values())
        # The sizes of one digest may differ in a stranger's record: then that record is wrong, whatever is there.
        bad = {
            (digest, size): _amiss(sizes.get(digest), size)
            for entry in good
            for digest, size in _named(entry)
            if sizes.get(digest) != size
        }
        if not self._quick:
            missing = {digest for digest, _ in bad}
            bad |= self._hash({digest: size for digest, size in wanted.items() if digest not in missing})
        problems += self._of_blobs(good, bad)
        if self._quick:
            return problems, []
        broken = {digest for digest, _ in bad}
        more, notes = self._graphs([entry for entry in good if broken.isdisjoint(entry.files)])
        return problems + more, notes

    def _hash(self, wanted: Mapping[str, int]) -> dict[tuple[str, int], str]:
        bad: dict[tuple[str, int], str] = {}
        done, total = 0, sum(wanted.values())
        lanes = min(LANES, os.cpu_count() or 1)
        with ThreadPoolExecutor(lanes, thread_name_prefix="verify") as pool:

            def damage(item: tuple[str, int]) -> tuple[str, int, str]:
                digest, size = item
                return digest, size, self._verifier.damage(File(digest, size, digest), "nothing")

            items = iter(wanted.items())
            while part := list(islice(items, 64)):  # so that Ctrl-C does not wait for all of them
                for digest, size, reason in pool.map(damage, part):
                    done += size
                    if reason:
                        bad[digest, size] = reason
                self._session.journal.show("verify.progress", bytes=done, total=total)
        return bad

    def _of_blobs(self, entries: Iterable[Entry], bad: Mapping[tuple[str, int], str]) -> list[Problem]:
        """One problem for each blob, with all records that it is of."""
        found: dict[tuple[str, str], Problem] = {}
        for entry in entries if bad else ():
            hit = [(digest, size) for digest, size in _named(entry) if (digest, size) in bad]
            reasons = self._again(entry, hit) if hit else {}
            if not reasons:
                continue
            names = _names(entry)
            for (digest, _), reason in reasons.items():
                kind = "copy" if digest == entry.copy else "blob"
                known = found.get((kind, digest))
                if known is not None:
                    found[kind, digest] = replace(known, keys=(*known.keys, entry.key))
                    continue
                name = "the copy of its record" if kind == "copy" else names.get(digest, "")
                path = self._layout.blob(digest)
                found[kind, digest] = Problem(kind, entry, (entry.key,), name, path, digest, reason)
        return list(found.values())

    def _again(self, entry: Entry, hit: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """What is wrong with blobs of a record, looked at again while it lies there.

        It may have been removed since, with its blobs, and published once more, byte for byte. Blobs come before their
        record and go after it: those of one that is the same file before and after the look were meant to be there.
        """
        reasons = {}
        with suppress(OSError):
            before = read_entry(entry.path)
            for digest, size in hit:
                if self._quick:
                    try:
                        found = self._layout.blob(digest).stat().st_size
                    except FileNotFoundError:
                        found = None
                    reason = _amiss(found, size) if found != size else ""
                else:
                    reason = self._verifier.damage(File(digest, size, digest), "nothing")
                if reason:
                    reasons[digest, size] = reason
            if before.copy == entry.copy and read_entry(entry.path).stamp == before.stamp:
                return reasons
        return {}

    def _is_as(self, entry: Entry) -> bool:
        try:
            return read_entry(entry.path).copy == entry.copy
        except FileNotFoundError:
            return False
        except OSError:
            return not entry.copy

    # Compiled graphs

    def _graphs(self, entries: Iterable[Entry]) -> tuple[list[Problem], list[str]]:
        problems: list[Problem] = []
        notes: list[str] = []
        judged_already: dict[tuple[str, str], tuple[str, bool]] = {}
        ours = [entry for entry in entries if native.is_neurons(entry.directory)]
        for number, entry in enumerate(ours):
            self._session.journal.show("verify.graphs", done=number, of=len(ours))
            record = record_of(entry)
            for module, graph in _graphs_of(record) if record else ():
                if (module.name, graph.sha256) not in judged_already:
                    judged_already[module.name, graph.sha256] = self._graph(module, graph)
                    reason, damaged = judged_already[module.name, graph.sha256]
                    if reason and not damaged:
                        notes.append(f"{file_path(module, graph)}: {reason}")
                reason, damaged = judged_already[module.name, graph.sha256]
                if reason and damaged and self._is_as(entry):
                    path = self._layout.blob(graph.sha256)
                    name = file_path(module, graph)
                    problems.append(Problem("neff", entry, (entry.key,), name, path, graph.sha256, reason))
        return problems, notes

    def _graph(self, module: Module, graph: File) -> tuple[str, bool]:
        """What is wrong with a compiled graph, or an archive of them, and whether that is known to be damage."""
        path = self._layout.blob(graph.sha256)
        if native.is_name(module.name):
            with suppress(OSError):  # gone meanwhile
                found = examine(path, module.name.partition("/")[0])
                return found.harm or found.oddity, bool(found.harm)
            return "", False
        try:
            whole = neff.read(path, leaks=False)
        except neff.NeffError as error:
            return error.reason, error.damaged
        except OSError:
            return "", False  # gone meanwhile
        compiler, _, name = module.name.partition("/")
        flags = next((file for file in module.files if file.path == facts.FLAGS_FILE), None)
        words = read_flags(self._layout.blob(flags.sha256)) if flags else None
        return misfit(whole, claim(compiler, name, words)) or "", True


def record_of(entry: Entry) -> Record | None:
    """The record of an entry, if it is still as it was."""
    try:
        raw = entry.path.read_bytes()
    except OSError:
        return None
    return judged(raw)[0]


def _named(entry: Entry) -> Iterator[tuple[str, int]]:
    yield from entry.files.items()
    yield entry.copy, entry.size


def _names(entry: Entry) -> dict[str, str]:
    record = record_of(entry)
    modules = reversed(record.modules) if record else ()
    return {file.sha256: file_path(module, file) for module in modules for file in reversed(module.files)}


def _amiss(found: int | None, wanted: int) -> str:
    return MISSING if found is None else f"{found:,} bytes instead of {wanted:,}"


def _graphs_of(record: Record) -> Iterator[tuple[Module, File]]:
    for module in record.modules:
        for file in module.files:
            if file.path == facts.NEFF or native.is_name(module.name):
                yield module, file


def again(session: Session, place: Path) -> list[Problem]:
    """What is wrong with the record that lies there now, and with all that it names."""
    layout = session.store.layout
    try:
        entry = read_entry(place)
    except FileNotFoundError:
        return []
    except OSError as error:
        entry = unreadable(place, error)
    sizes = {}
    for digest, _ in _named(entry) if entry.copy else ():
        with suppress(OSError):
            sizes[digest] = layout.blob(digest).stat().st_size
    problems, _ = Judge(session, layout, quick=False).look([entry], sizes)
    return problems
