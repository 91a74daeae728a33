"""What a run compiled, kept: as a new record, or added to the record that the run had."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from cachekit import __version__
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.port import Harvest, Observed
from cachekit.compilers.prepare import Prepared
from cachekit.decode import from_json
from cachekit.errors import CachekitError, IntegrityError, StoreError
from cachekit.events import bypass
from cachekit.host import product
from cachekit.key.nearest import INTERRUPTED
from cachekit.process import user_name
from cachekit.recipe.ingredients import Fingerprint, flat, worker_variables
from cachekit.store import Store, leaks
from cachekit.store.archive import UnsafeArchiveError, members
from cachekit.store.durable import store_error
from cachekit.store.record import Module, Provenance, Record, Reuse, is_archive, marked

# Beside the key of a command: the command that made the record came to its end, else graphs may be missing.
FINISHED = "command.finished"
# How many edits ago the command began with no other record's graphs.
EDITS = "command.edits"
# How many runs of the command in a row found nothing of what those before them kept, and what the last one compiled.
INERT = "command.inert"
_UNFOUND = "command.unfound"
_PATIENCE = 2  # of them: what a command reads may change
_REPLACES_NOTHING = "a run with --recache replaces nothing before it has come to its end"
_HELPS_NOBODY = "no run of the command found what those before it kept"
# Inductor counted inside of the command, so its keys are portable ones.
REPORTED = "command.reported"


def command_marks(seen: Observed, *, finished: bool) -> dict[str, bool]:
    """What a command's record has beside its key."""
    return {FINISHED: finished, REPORTED: seen.exact}


def is_inert(record: Record) -> bool:
    """Whether what runs of a command kept helps none of them: then no more of it is kept."""
    times = record.soft.get(INERT)
    return isinstance(times, int) and times > _PATIENCE


def edits_of(record: Record) -> int:
    """How many edits of a command its record's graphs come from, beside its own."""
    return edits if isinstance(edits := record.soft.get(EDITS), int) else 0


def unfinished(prepared: Prepared) -> Prepared:
    """The same recipe, for what a run has compiled that is stopped: it has a key of its own.

    So nobody takes that record for a whole one, and the next run of the recipe begins with it, as with the nearest.
    """
    made = prepared.ingredients
    made = structs.replace(made, hard={**made.hard, INTERRUPTED: True})
    recipe = structs.replace(prepared.recipe, name=f"{prepared.recipe.name}, {INTERRUPTED}")
    return structs.replace(prepared, recipe=recipe, ingredients=made, place=prepared.place._replace(key=made.key))


def told_secrets(harvest: Harvest | None, prepared: Prepared) -> frozenset[str]:
    """The variables of this environment, and of the recipe's, whose secret values stand in what is kept, and where.

    Compilers write into their files what they find around them, and people into a recipe's name.

    Raises:
        OSError: A file cannot be read.
    """
    made = prepared.ingredients
    said = {"recipe": prepared.recipe.name, **flat("hard", made.hard), **flat("soft", made.soft)}
    variables = {**os.environ, **worker_variables(prepared.recipe)}
    return leaks.told(harvest.files.values() if harvest else (), said, variables)


def spared(seen: Observed, given: Record | None, cache_dir: CacheDir) -> float:
    """The seconds that compiling took of the graphs that a run found in what it was given.

    Each graph carries them from where it was compiled, in its own file or with its module. Where neither tells, they
    are the record's seconds, shared out by number. A graph that lay in the compiler's own folder anyway spared nothing.

    Args:
        seen: What the compiler did.
        given: The record that was restored.
        cache_dir: Where.
    """
    if given is None or not cache_dir.restored_bytes:
        return 0.0
    if seen.found_seconds is not None:
        return round(seen.found_seconds, 3)
    used = [module for module in given.modules if module.name in seen.modules & cache_dir.written]
    if any(module.seconds is not None for module in given.modules):
        return round(sum(module.seconds or 0.0 for module in used), 3)
    found, of = (len(used), len(given.modules)) if seen.modules else (seen.found, given.graphs)
    return round(given.cold_seconds * min(found / of, 1.0), 3) if of else 0.0


def _carried(modules: tuple[Module, ...], given: Record | None) -> tuple[Module, ...]:
    """Modules, with the seconds that a record has of the same ones: those that were found took none here."""
    known = {module.name: module for module in given.modules} if given else {}
    return tuple(
        structs.replace(one, seconds=had.seconds)
        if one.seconds is None and (had := known.get(one.name)) is not None and had.files == one.files
        else one
        for one in modules
    )


def new_record(
    prepared: Prepared,
    modules: tuple[Module, ...],
    seen: Observed,
    *,
    marks: Mapping[str, bool | int] | None = None,
    given: Record | None = None,
    reused: Reuse | UnsetType = UNSET,
) -> Record:
    """The record of a key that had none.

    Args:
        prepared: The key.
        modules: What compiled, and what was used from another record.
        seen: What the compiler did.
        marks: What is recorded beside the key.
        given: Another record, which the run was given.
        reused: What came from there.
    """
    return Record(
        key=prepared.key,
        compiler=prepared.fingerprint.compiler,
        directory=prepared.fingerprint.directory,
        model_type=prepared.model_type,
        recipe=prepared.recipe.name,
        hard=dict(prepared.ingredients.hard),
        soft={**prepared.ingredients.soft, **(marks or {})},
        modules=_carried(modules, given),
        graphs=seen.found + seen.compiled,
        compile_seconds=seen.compile_seconds,
        provenance=provenance(prepared.fingerprint),
        reused=reused,
    )


def provenance(fingerprint: Fingerprint) -> Provenance:
    """Who makes a record here and now, with what, on which machine."""
    return Provenance(
        created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        cachekit=__version__,
        user=user_name(),
        host=socket.gethostname(),
        platform=platform.platform(),
        toolchain={name: value for name, value in {**fingerprint.soft, **fingerprint.toolchain}.items() if value},
        instance=fingerprint.instance or product(),
    )


def joined(store: Store, whole: Record, had: Record | None) -> Record:
    """Add to a record that was fetched what a run that failed had left here under its key, if it has not all of that.

    Args:
        store: Has both records' files.
        whole: The record that was fetched, and is in the store.
        had: What was there before.

    Raises:
        StoreError: The store cannot be written.
    """
    if had is None or had.soft.get(FINISHED, True):
        return whole
    known = _entries(store, whole.modules)
    left = [one for one in had.modules if not is_archive(one) or _entries(store, [one]) - known]
    with store.changing(whole.key):
        now = store.lookup(whole.place) or whole  # another run may have added to it
        modules = _together(now.modules, tuple(one for one in left if not store.lacking(one.files)))
        if modules == now.modules:
            return now
        kept = marked(structs.replace(now, modules=modules), now, had)
        store.publish(kept, {}, reused=[(one, store.origins.of(one)) for one in (now, had)])
    return kept


def _entries(store: Store, modules: Iterable[Module]) -> set[str]:
    """The names of what lies in those of the modules that are archives; nothing of one that cannot be read."""
    names: set[str] = set()
    for module in filter(is_archive, modules):
        with suppress(OSError, UnsafeArchiveError):
            names |= {one.name for one in members(store.layout.blob(module.files[0].sha256))}
    return names


class Keeping(Struct, frozen=True):
    """What a run had, and where it ran.

    Attributes:
        store: Keeps what compiled.
        prepared: The key.
        record: The key's record, if there is one.
        cache_dir: The run's compiler cache dir.
        nearest: The nearest record, whose graphs the run was given because the key had none.
        replaces: What compiled takes the place of what there was.
        ended: The run came to its end; before that it replaces nothing.
        marks: What is recorded beside the key; a mark that any run has set stays.
    """

    store: Store
    prepared: Prepared
    record: Record | None
    cache_dir: CacheDir
    nearest: Record | None = None
    replaces: bool = False
    ended: bool = True
    marks: Mapping[str, bool] = {}

    def keep(self, seen: Observed) -> tuple[Record | None, str]:
        """Keep what compiled completely; never fails the run, which has worked.

        Returns:
            The record that there is now, if there is one; and why nothing could be kept.
        """
        try:
            if self.replaces and not self.ended and (there := self.store.lookup(self.prepared.place)):
                return there, _REPLACES_NOTHING
            with self.store.workspace() as workspace:
                # Only what the run used beyond the record: the store has the rest, which may be gigabytes. And what a
                # stopped compile has left is not a module.
                had = {module.name for module in self.record.modules} if self.record else set()
                whole = self.prepared.compiler.contents(self.cache_dir.tree)
                wanted = structs.replace(seen, modules=(seen.modules & whole) - had) if seen.modules else seen
                tree, before, fingerprint = self.cache_dir.tree, self.cache_dir.before, self.prepared.fingerprint
                if seen.inert and self.record and is_inert(self._counting(self.record, seen)):
                    return self._publish(None, seen), _HELPS_NOBODY
                harvest = self.prepared.compiler.harvest(tree, before, fingerprint, workspace, wanted)
                return self._publish(harvest, seen), ""
        except (CachekitError, OSError) as error:
            if isinstance(error, StoreError | OSError) and not self._compiled(seen):
                return self.record, ""
            if isinstance(error, OSError):
                error = store_error(self.store.layout.home, error)
            said = f"{error.said}; {error.hint}" if error.hint else error.said
            self.store.journal.emit("train.not-kept", reason=said)
            bypass(self.store.journal, "store-not-writable" if isinstance(error, StoreError) else "not-kept", said)
            return self.record, said

    def _compiled(self, seen: Observed) -> bool:
        """Whether there is something new; also where nobody can tell."""
        try:
            new = self.prepared.compiler.contents(self.cache_dir.tree) - self.cache_dir.before
        except (CachekitError, OSError):
            return True
        return bool(seen.compiled or new)

    def keep_unfinished(self, seconds: float, reported: frozenset[str]) -> Record | None:
        """Keep what a run has compiled that is being stopped, without its own report; never fails.

        Args:
            seconds: How long it compiled.
            reported: The modules that it named so far: in a folder that it shares, others are not its own.

        Returns:
            The record; None where nothing new is finished, or it cannot be kept.
        """
        compiler, tree, before = self.prepared.compiler, self.cache_dir.tree, self.cache_dir.before
        try:
            # A graph may have many kernels; and what a worker counts need not be finished.
            new = compiler.contents(tree) - before
            mine = Observed(modules=new & reported) if self.cache_dir.shared else None
            kernels = compiler.binaries(mine.modules if mine else new)
            told = _counted(self.cache_dir.work / "events.jsonl")
            graphs = min(kernels, told.compiled or kernels)
            with self.store.workspace() as workspace:
                fingerprint = self.prepared.fingerprint
                harvest = compiler.harvest(tree, before, fingerprint, workspace, mine) if graphs else None
                seen = Observed(told.found, graphs, round(seconds, 3))
                return self._publish(harvest, seen) if harvest else None
        except (CachekitError, OSError) as error:
            self.store.journal.emit("train.not-kept", reason=str(error))
            return None

    def _publish(self, harvest: Harvest | None, seen: Observed) -> Record | None:
        """Put what is new into the store; None if there is nothing to keep."""
        new = harvest.modules if harvest else ()
        unused = self.nearest is None or (not seen.found and (seen.exact or not self.ended))
        if self.record is None and not new and unused:
            return None
        store, place = self.store, self.prepared.place
        with store.changing(place.key):
            # Hours may have passed: others have added theirs, or compiled anew.
            now = None if self.replaces else store.lookup(place)
            if now is None and self.record is not None and not self.replaces:  # revoked, for one
                refused = store.refusal.of(place.key)
                raise IntegrityError(
                    f"{place.key[:12]} is not in the store any more, so nothing is added to it",
                    cause=(refused.reason if refused else "")
                    or store.flaw(place.key)
                    or "it was removed during the run",
                    hint="run the command again",
                )
            kept = self._first(new, seen) if now is None else self._more(now, new, seen)
            kept = marked(kept, *(one for one in (now, self.nearest) if one), told=told_secrets(harvest, self.prepared))
            if kept is now:
                return kept
            files = {file.sha256 for module in kept.modules for file in module.files}
            ours = harvest.files if harvest else {}
            fresh = {sha256: path for sha256, path in ours.items() if sha256 in files}
            store.publish(kept, fresh, reused=self.cache_dir.given, tree=self.cache_dir.tree)
        return kept

    def _first(self, new: tuple[Module, ...], seen: Observed) -> Record:
        # A compiler that names what a run used has those of the nearest record among that.
        old = self.nearest.modules if self.nearest and not seen.modules else ()
        reused: Reuse | UnsetType = UNSET
        if self.nearest is not None:
            cold = round(seen.compile_seconds + spared(seen, self.nearest, self.cache_dir), 3)
            reused = Reuse(self.nearest.key, seen.found, cold)
        marks: dict[str, bool | int] = dict(self.marks)
        if self.nearest is not None and marks:
            marks[EDITS] = edits_of(self.nearest) + 1
        return new_record(self.prepared, _together(old, new), seen, marks=marks, given=self.nearest, reused=reused)

    def _more(self, now: Record, new: tuple[Module, ...], seen: Observed) -> Record:
        modules = _together(now.modules, new)
        marks = {name: said or bool(now.soft.get(name)) for name, said in self.marks.items()}
        soft = {**self._counting(now, seen).soft, **marks}
        added = modules != now.modules
        if not added and soft == now.soft:
            return now
        # What compiled beyond the record is added to the record's seconds, if it was measured by itself.
        more = seen.compile_seconds if added and seen.timed else 0.0
        return structs.replace(
            now,
            soft=soft,
            modules=modules,
            # What the run needed in all: the record may have counted some of what it compiled.
            graphs=max(now.graphs, seen.found + seen.compiled),
            compile_seconds=round(now.compile_seconds + more, 3),
            reused=now.reused
            if now.reused is UNSET
            else structs.replace(now.reused, cold_seconds=round(now.reused.cold_seconds + more, 3)),
        )

    def _counting(self, record: Record, seen: Observed) -> Record:
        """A record that also says how many runs in a row found nothing of it.

        A run that compiles what the one before it compiled is of a setting that comes back, and counts as a first one.
        """
        had = record.soft.get(INERT)
        left = {name: said for name, said in record.soft.items() if name not in {INERT, _UNFOUND}}
        if not seen.inert:
            return structs.replace(record, soft=left) if seen.found and had else record
        new = sorted(self.prepared.compiler.contents(self.cache_dir.tree) - self.cache_dir.before)
        unfound = hashlib.sha256("\n".join(new).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        times = had if isinstance(had, int) and record.soft.get(_UNFOUND) != unfound else 0
        return structs.replace(record, soft={**left, INERT: times + 1, _UNFOUND: unfound})


class _Counted(Struct):
    event: Literal["graphs"] = "graphs"
    found: int = 0
    compiled: int = 0


def _counted(events: Path) -> _Counted:
    """How many graphs a worker has found and compiled, as it told last; none where it told nothing."""
    told = _Counted()
    with suppress(OSError):
        for line in events.read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):
                told = from_json(line, _Counted)
    return told


def _together(old: tuple[Module, ...], new: tuple[Module, ...]) -> tuple[Module, ...]:
    names = {module.name for module in old}
    return (*old, *(module for module in new if module.name not in names))
