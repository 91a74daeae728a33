"""How much of what a recipe needs is cached, module by module: where it lies, what failed and why, what is missing.

What a recipe needs is what its record names, here or on any remote; without one, what a trial that failed had
reported; without that, nobody knows more than how many graphs the nearest record has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from cachekit.compilers import Compiler, Failed
from cachekit.compilers.prepare import Prepared
from cachekit.errors import AuthError, CachekitError, MissError, RemoteError, UsageError
from cachekit.remotes.remote import Found, Remote
from cachekit.store import divergent
from cachekit.store.layout import LOCAL
from cachekit.store.notes import Attempt, attempt_of
from cachekit.store.record import DamagedRecordError, Record
from cachekit.values import by_value
from cachekit.verbs.plan import plan
from cachekit.verbs.session import Session

CACHE_DIR = "compiler cache dir"  # the compiler's own folder on this host, among the places
Basis = Literal["record", "trial", "nearest", "unknown"]
State = Literal["cached", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A module that is needed.

    Attributes:
        name: The compiler's; empty for a trial that failed before it named any.
        where: The places that have it whole: `local`, remotes, the compiler's own folder.
        size: Bytes, where they are known.
        failed: Why it is not there, where its compile failed.
    """

    name: str
    where: tuple[str, ...] = ()
    size: int | None = None
    failed: Failed | None = None

    @property
    def state(self) -> State:
        """A module that lies somewhere is cached, whatever failed before."""
        return "cached" if self.where else "failed" if self.failed else "missing"

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        failed = structs.asdict(self.failed) if self.failed and not self.where else None
        return {
            "name": self.name,
            "status": self.state,
            "where": list(self.where),
            "bytes": self.size,
            "failed": failed,
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """What there is of a recipe.

    Attributes:
        basis: What the list of modules is taken from.
        units: The modules that are needed, as far as they are known.
        graphs: How many graphs that is, where it is known; of the nearest record where there is no better.
        builds: Where a key was built twice with other bytes; see `store.divergent`.
        notes: What could not be looked at.
        trial: The last trial of the key, where it failed.
    """

    prepared: Prepared
    basis: Basis
    units: tuple[Unit, ...]
    graphs: int | None = None
    builds: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    trial: Attempt | None = None

    __hash__ = by_value

    def of(self, state: State) -> tuple[Unit, ...]:
        """The modules in one state."""
        return tuple(unit for unit in self.units if unit.state == state)

    @property
    def whole(self) -> bool:
        """Everything is cached, and what that is is known for certain."""
        return self.basis == "record" and len(self.of("cached")) == len(self.units)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        prepared = self.prepared
        return {
            "recipe": prepared.recipe.name,
            "source": prepared.source,
            "key": prepared.key,
            "compiler": prepared.fingerprint.compiler,
            "directory": prepared.fingerprint.directory,
            "elsewhere": prepared.fingerprint.instance if prepared.fingerprint.elsewhere else "",
            "model_type": prepared.model_type,
            "status": "covered" if self.whole else "failed" if self.of("failed") else "missing",
            "basis": self.basis,
            "needed": len(self.units) or None,
            "cached": len(self.of("cached")),
            "failed": len(self.of("failed")),
            "missing": len(self.of("missing")),
            "graphs": self.graphs,
            "modules": [unit.as_dict() for unit in self.units],
            "builds": [dict(note) for note in self.builds],
            "notes": list(self.notes),
            "trial": msgspec.to_builtins(self.trial) if self.trial else None,
            "problem": None,
        }


def coverage(session: Session, prepared: Prepared) -> Coverage:
    """Find out what of a recipe is cached, on this machine and on the remotes; runs and fetches nothing.

    A remote that cannot be asked is told, and noted.
    """
    notes: list[str] = []
    place = prepared.place
    own = session.store.read(*place)
    shared = [found for remote in session.remotes.readable if (found := _ask(session, remote, place, notes))]
    attempt = attempt_of(session.store.layout, prepared.key)
    records = [record for record in (own, *(found.shared.record for found in shared)) if record is not None]
    wanted: dict[str, int | None] = dict.fromkeys(attempt.needed if attempt else ())
    for record in reversed(records):
        wanted |= {module.name: sum(file.size for file in module.files) for module in record.modules}
    where: dict[str, list[str]] = {name: [] for name in wanted}
    for module in own.modules if own else ():
        if not session.store.lacking(module.files):
            where[module.name].append(LOCAL)
    for found in shared:
        for name in _there(session, found, notes):
            where[name].append(found.remote.name)
    live, failures = _on_host(session, prepared, wanted, notes)
    for name in live & wanted.keys():
        where[name].append(CACHE_DIR)
    units = [Unit(name, tuple(where[name]), size, failures.get(name)) for name, size in sorted(wanted.items())]
    if attempt and not records and not any(unit.state == "failed" for unit in units):
        units.append(Unit("", failed=_of_trial(attempt)))
    basis, graphs = _basis(session, prepared, records, attempt)
    for found in shared if own else ():
        divergent.tell(session.store.layout, session.journal, own, found.shared.record, found.remote.name)  # type: ignore[arg-type]
    noted = divergent.noted(session.store.layout, prepared.key)
    return Coverage(prepared, basis, tuple(units), graphs, tuple(noted), tuple(notes), attempt)


class CoverageOfAll(Struct, frozen=True):
    """What of several recipes is cached.

    Attributes:
        recipes: The documents of each.
        require_warm: What is not cached is an error.
    """

    recipes: tuple[dict[str, Any], ...]
    require_warm: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For programs: how many are covered, and each."""
        return _summary(self.recipes)

    def error(self) -> MissError | None:
        """What to raise where something is not cached, and should be."""
        return _not_covered(self.recipes) if self.require_warm else None


def coverage_of_all(
    session: Session,
    wanted: Sequence[tuple[str, Callable[[], tuple[Compiler, Prepared]]]],
    *,
    skip: bool,
    require_warm: bool = False,
) -> CoverageOfAll:
    """What of several recipes is cached.

    Args:
        session: Collaborators.
        wanted: Each with its name, and what prepares it for its compiler.
        skip: One that cannot be used here, another compiler's, say, does not hide the others.
        require_warm: See `CoverageOfAll`.
    """
    found = []
    for name, prepare in wanted:
        try:
            compiler, prepared = prepare()
            found.append(coverage(structs.replace(session, compiler=compiler), prepared).as_dict())
        except CachekitError as error:
            if not skip:
                raise
            found.append(_unusable(name, error.as_dict()))
    return CoverageOfAll(tuple(found), require_warm)


def _summary(listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = ("covered", "failed", "missing", "unusable")
    return {
        **{kind: sum(document["status"] == kind for document in listed) for kind in kinds},
        "modules": {
            name: sum(document[name] or 0 for document in listed) for name in ("needed", "cached", "failed", "missing")
        },
        "recipes": list(listed),
    }


def _unusable(name: str, problem: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of which nothing can be told here: another compiler's, say."""
    counts: dict[str, Any] = {"needed": None, "cached": 0, "failed": 0, "missing": 0}
    return {"recipe": name, "source": name, "key": None, "status": "unusable", **counts, "problem": dict(problem)}


def _not_covered(documents: Iterable[Mapping[str, Any]]) -> MissError | None:
    lacking = [document for document in documents if document["status"] != "covered"]
    if not lacking:
        return None
    names = ", ".join(str(document["recipe"]) for document in lacking[:3]) + (", ..." if len(lacking) > 3 else "")  # noqa: PLR2004
    first = lacking[0]
    why = f"{first['recipe']}: {first['status']}"
    if first["needed"]:
        why += f", {first['cached']} of {first['needed']} modules are cached"
    return MissError(f"not covered: {names}", cause=why, hint=f"cachekit warm {first['source']}")


def _ask(session: Session, remote: Remote, place: tuple[str, str, str], notes: list[str]) -> Found | None:
    try:
        return remote.find(*place, anew=True)
    except (RemoteError, AuthError) as error:
        session.remotes.failed(remote, error)
        notes.append(f"{remote.name} could not be asked: {error.cause or error.message}")
    except DamagedRecordError as error:
        notes.append(f"{remote.name} has a damaged record: {error}")
    return None


def _there(session: Session, found: Found, notes: list[str]) -> list[str]:
    """The modules of a shared record whose files are all on its cache."""
    paths = {sha256: path for sha256, (_, path) in found.shared.paths().items() if sha256 not in found.shared.inline}
    try:
        lying = found.remote.exist(sorted(set(paths.values())))
    except (RemoteError, AuthError) as error:
        session.remotes.failed(found.remote, error)
        notes.append(f"{found.remote.name} could not be asked: {error.cause or error.message}")
        return []
    gone = {sha256 for sha256, path in paths.items() if path not in lying}
    return [
        module.name for module in found.shared.record.modules if gone.isdisjoint(file.sha256 for file in module.files)
    ]


def _on_host(
    session: Session, prepared: Prepared, wanted: Mapping[str, int | None], notes: list[str]
) -> tuple[frozenset[str], Mapping[str, Failed]]:
    """What the compiler's own folder has, and what is known there of failures."""
    if prepared.fingerprint.elsewhere or not wanted:
        return frozenset(), {}
    try:
        root = session.compiler.cache_dir(prepared.recipe)
        if root is None:
            return frozenset(), {}
        return session.compiler.contents(root), session.compiler.failed(root, wanted)
    except (UsageError, OSError) as error:
        notes.append(f"the compiler's own folder could not be looked at: {error}")
        return frozenset(), {}


def _basis(
    session: Session, prepared: Prepared, records: list[Record], attempt: Attempt | None
) -> tuple[Basis, int | None]:
    if records:
        return "record", max(record.graphs for record in records)
    if attempt and attempt.needed:
        return "trial", len(attempt.needed)
    found = plan(prepared, session.store).near
    near = found.known if found else None
    # Another compiler makes other graphs of the same recipe.
    kin = near is not None and near.compiler == prepared.fingerprint.compiler
    return ("nearest", near.graphs) if near is not None and kin else ("unknown", None)


def _of_trial(attempt: Attempt) -> Failed:
    return Failed(attempt.code, attempt.message, attempt.log, attempt.when)
