"""How much of what a recipe needs is cached, module by module: where it lies, what failed and why, what is missing.

What a recipe needs is what its record names, here or on any remote; without one, what a trial that failed had
reported; without that, nobody knows more than how many graphs the nearest record has. Of many recipes, a remote's index
says how many modules a record there has, so that no record need be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cachekit.compilers import Failed
from cachekit.compilers.prepare import Prepared
from cachekit.errors import (
    AuthError,
    CachekitError,
    Helps,
    MissError,
    RemoteError,
    UntrustedError,
    UsageError,
    from_code,
)
from cachekit.key.nearest import INTERRUPTED
from cachekit.remotes.index import Known
from cachekit.remotes.judging import advice, best
from cachekit.remotes.nearest_on import said_of
from cachekit.remotes.remote import Found, Outcome, Remote
from cachekit.store import divergent
from cachekit.store.divergent import DivergentBuilds
from cachekit.store.layout import LOCAL, Place
from cachekit.store.notes import Attempt, attempt_of
from cachekit.store.record import DamagedRecordError, Record
from cachekit.text import first_of, not_asked
from cachekit.values import Answer
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import warm_it
from cachekit.verbs.session import Session

CACHE_DIR = "compiler cache dir"  # the compiler's own folder on this host, among the places
Basis = Literal["record", "index", "trial", "nearest", "unknown"]
Status = Literal["cached", "failed", "missing"]


class Unit(Struct, frozen=True):
    """A module that is needed.

    Attributes:
        name: The compiler's; empty for a trial that failed before it named any.
        status: A module that lies somewhere is cached, whatever failed before.
        where: The places that have it whole: `local`, remotes, the compiler's own folder.
        bytes: Of it, where that is known.
        failed: Why it is not there, where its compile failed.
    """

    name: str
    status: Status
    where: tuple[str, ...] = ()
    bytes: int | None = None
    failed: Failed | None = None


class Coverage(Answer, frozen=True, kw_only=True, tag="cachekit/coverage-recipe/1"):
    """What there is of a recipe.

    Attributes:
        elsewhere: The type of the machine that is meant; empty where it is this one.
        basis: What the list of modules is taken from. `index`: a remote has the record, and its index says how many
            modules that has; which, and whether each file of them lies there, was not looked at.
        where: The places that have modules of it.
        needed: How many modules are needed, as far as that is known.
        graphs: How many graphs that is, where it is known; of the nearest record where there is no better.
        builds: Where the key was built twice with other bytes.
        notes: What could not be looked at.
        untrusted: Where a record of the key lies that may not be used, with the reason.
        helps: And what helps; see `Planned`.
        unanswered: The error of a remote that could not be asked, and may have what is missing; then it is `unknown`.
        trial: The last trial of the key, where it failed.
        problem: Why nothing can be told of the recipe here, where it is `unusable`.
    """

    recipe: str
    source: str
    key: str | None = None
    compiler: str = ""
    directory: str = ""
    elsewhere: str = ""
    model_type: str = ""
    status: Literal["covered", "failed", "missing", "unknown", "unusable"]
    basis: Basis = "unknown"
    where: tuple[str, ...] = ()
    needed: int | None = None
    cached: int = 0
    failed: int = 0
    missing: int = 0
    graphs: int | None = None
    modules: tuple[Unit, ...] = ()
    builds: tuple[DivergentBuilds, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    helps: Helps | Literal[""] = ""
    unanswered: CachekitError | None = None
    trial: Attempt | None = None
    problem: CachekitError | None = None

    @property
    def whole(self) -> bool:
        """Everything is cached, and what that is is known: for certain, unless a remote's index says so (`basis`)."""
        return self.status == "covered"


def coverage(session: Session, prepared: Prepared) -> Coverage:
    """Find out what of a recipe is cached, on this machine and on the remotes; runs and fetches nothing.

    A remote that cannot be asked is told, and noted.
    """
    return _coverage(session, prepared, _ask(session, [prepared], certain=True))


def _coverage(session: Session, prepared: Prepared, asked: Sequence[_Asked]) -> Coverage:
    notes: list[str] = []
    own = session.store.read(prepared.place)
    shared = [found for one in asked if (found := _found(session, one, prepared.key, notes))]
    attempt = attempt_of(session.store.layout, prepared.key)
    records = [record for record in (own, *(found.shared.record for found in shared)) if record is not None]
    wanted: dict[str, int | None] = dict.fromkeys(attempt.needed if attempt else ())
    for record in reversed(records):
        wanted |= {module.name: sum(file.size for file in module.files) for module in record.modules}
    where: dict[str, list[str]] = {name: [] for name in wanted}
    for module in own.modules if own else ():
        if not session.store.lacking(module.files):
            where[module.name].append(LOCAL)
    for one in asked:
        for name in _there(one, prepared.key, notes):
            where[name].append(one.remote.name)
    here, failures = _on_host(prepared, wanted, notes)
    for name in here & wanted.keys():
        where[name].append(CACHE_DIR)
    units = [_unit(name, tuple(where[name]), size, failures.get(name)) for name, size in sorted(wanted.items())]
    if attempt and not records and not any(unit.status == "failed" for unit in units):
        units.append(Unit("", "failed", failed=_of_trial(attempt)))
    told = {one.remote.name: known for one in asked if (known := one.told.get(prepared.key))}
    basis, graphs = _basis(session, prepared, records, attempt)
    counts = Counter[str](unit.status for unit in units)
    if told and (not units or counts["cached"] < len(units)):
        largest = max(told.values(), key=lambda known: known.modules)
        basis, graphs, units, counts = "index", largest.graphs, [], Counter(cached=largest.modules)
    for found in shared if own else ():
        divergent.tell(session.store.layout, session.journal, own, found.shared.record, found.remote.name)  # type: ignore[arg-type]
    noted = divergent.noted(session.store.layout, prepared.key)
    fingerprint, needed = prepared.fingerprint, counts.total()
    whole = basis in {"record", "index"} and counts["cached"] == needed
    if session.remotes.offline and not whole:
        notes.append(f"not asked, because no connection may be opened: {', '.join(session.remotes.offline)}")
    silent = None if whole else next(filter(None, (one.failure(prepared.key) for one in asked)), None)
    return Coverage(
        recipe=prepared.recipe.name,
        source=prepared.source,
        key=prepared.key,
        compiler=fingerprint.compiler,
        directory=fingerprint.directory,
        elsewhere=fingerprint.instance if fingerprint.elsewhere else "",
        model_type=prepared.model_type,
        status="covered" if whole else "failed" if counts["failed"] else "unknown" if silent else "missing",
        basis=basis,
        where=tuple(dict.fromkeys([*(place for unit in units for place in unit.where), *told])),
        needed=needed or None,
        cached=counts["cached"],
        failed=counts["failed"],
        missing=counts["missing"],
        graphs=graphs,
        modules=tuple(units),
        builds=tuple(noted),
        notes=tuple(notes),
        untrusted=() if whole else session.remotes.untrusted(prepared.key),
        helps="" if whole else best(session.remotes.helps(prepared.key)),
        unanswered=silent,
        trial=attempt,
    )


def _unit(name: str, where: tuple[str, ...], size: int | None, failed: Failed | None) -> Unit:
    if where:
        return Unit(name, "cached", where, size)
    return Unit(name, "failed" if failed else "missing", where, size, failed)


class CoveredModules(Struct, frozen=True):
    """How many modules of several recipes are needed, and how many of them are there."""

    needed: int
    cached: int
    failed: int
    missing: int


class CoverageOfAll(Answer, frozen=True, tag="cachekit/coverage/1"):
    """What of several recipes is cached: how many recipes of each kind there are, and each."""

    covered: int
    failed: int
    missing: int
    unknown: int
    unusable: int
    modules: CoveredModules
    recipes: tuple[Coverage, ...]

    def miss(self) -> CachekitError | None:
        """What to raise where everything should be cached; None where it is."""
        lacking = [one for one in self.recipes if not one.whole]
        if not lacking:
            return None
        first = lacking[0]
        if silent := next((one for one in lacking if one.status == "unknown"), None):
            assert silent.unanswered is not None
            message = f"it is unknown whether {silent.recipe} is covered: a remote could not be asked"
            error = silent.unanswered
            return from_code(error.code, message, cause=error.cause or error.message, hint=error.hint)
        if all(one.untrusted for one in lacking):
            names = first_of(one.recipe for one in lacking)
            cause = first.untrusted[0]
            return UntrustedError(f"nothing that may be used covers {names}", cause=cause, hint=advice(first.helps))
        why = f"{first.recipe}: {first.status}"
        if first.needed:
            why += f", {first.cached} of {first.needed} modules are cached"
        names = first_of(one.recipe for one in lacking)
        return MissError(f"not covered: {names}", cause=why, hint=warm_it(first.source, first.elsewhere))


def coverage_of_all(
    session: Session,
    wanted: Sequence[tuple[str, Callable[[], Prepared]]],
    *,
    skip: bool,
    certain: bool = True,
) -> CoverageOfAll:
    """What of several recipes is cached.

    Args:
        session: Collaborators.
        wanted: Each with its name, and what prepares it.
        skip: One that cannot be used here, another compiler's, say, does not hide the others.
        certain: Read each record on a remote, and look whether each file of it is there. Else the remote's index
            answers for a record of which nothing is known here.
    """
    made: list[tuple[str, Prepared | CachekitError]] = []
    for name, prepare in wanted:
        try:
            made.append((name, prepare()))
        except CachekitError as error:
            if not skip:
                raise
            made.append((name, error))
    asked = _ask(session, [one for _, one in made if isinstance(one, Prepared)], certain=certain)
    found = []
    for name, one in made:
        try:
            if isinstance(one, CachekitError):
                raise one
            found.append(_coverage(session, one, asked))
        except CachekitError as error:
            if not skip:
                raise
            found.append(Coverage(recipe=name, source=name, status="unusable", problem=error))
    counts = Counter(one.status for one in found)
    modules = CoveredModules(
        needed=sum(one.needed or 0 for one in found),
        cached=sum(one.cached for one in found),
        failed=sum(one.failed for one in found),
        missing=sum(one.missing for one in found),
    )
    return CoverageOfAll(
        counts["covered"],
        counts["failed"],
        counts["missing"],
        counts["unknown"],
        counts["unusable"],
        modules,
        tuple(found),
    )


class _Asked(Struct, frozen=True):
    """What a remote answered to one question about all keys.

    Attributes:
        outcomes: By key; a key without a record is not among them.
        lying: The paths of files of those records that are there.
        problem: Why it is not known which files are there.
        told: What the remote's index says of records that are there and were not read.
    """

    remote: Remote
    outcomes: Mapping[str, Outcome]
    lying: Collection[str] = ()
    problem: RemoteError | AuthError | None = None
    told: Mapping[str, Known] = {}

    def has(self, key: str) -> bool:
        """Whether the record of a key is there, with all of its files as far as they were looked at."""
        found = self.outcomes.get(key)
        whole = isinstance(found, Found) and not self.problem and _paths(found).keys() <= set(self.lying)
        return whole or key in self.told

    def failure(self, key: str) -> RemoteError | AuthError | None:
        """Why nobody knows what the remote has of a key; None where that is known."""
        outcome = self.outcomes.get(key)
        if isinstance(outcome, Found):
            return self.problem
        return (
            outcome
            if isinstance(outcome, (RemoteError, AuthError)) and not isinstance(outcome, UntrustedError)
            else None
        )


def _ask(session: Session, wanted_of: Sequence[Prepared], *, certain: bool) -> list[_Asked]:
    """Ask each remote for all records at once, and for their files; again only where no other has all of them."""
    asked: dict[Remote, _Asked] = {}
    places = [one.place for one in wanted_of]
    may_be_told = [] if certain else [one.place for one in wanted_of if not _is_partly_here(session, one)]

    def ask(remote: Remote) -> Collection[RemoteError | AuthError]:
        asked[remote] = answer = _answer(remote, places, may_be_told)
        return [error for place in places if (error := answer.failure(place.key))]

    def wanted(remote: Remote) -> bool:
        return remote not in asked or not all(any(one.has(place.key) for one in asked.values()) for place in places)

    session.remotes.ask_each(ask, wanted)
    for remote, answer in asked.items():
        if answer.problem:
            session.remotes.failed(remote, answer.problem)
    return list(asked.values())


def _is_partly_here(session: Session, one: Prepared) -> bool:
    """Whether modules of a recipe are known here by name, and some of them may lie on a remote alone."""
    own, attempt = session.store.read(one.place), attempt_of(session.store.layout, one.key)
    return bool(session.store.lacking(own.files) if own else attempt and attempt.needed)


def _answer(remote: Remote, places: Sequence[Place], may_be_told: Sequence[Place]) -> _Asked:
    try:
        told, unsaid = said_of(remote, may_be_told) if may_be_told else ({}, [])
        read = [*(place for place in places if place not in may_be_told), *unsaid]
        outcomes: Mapping[str, Outcome] = remote.find_all(read, anew=True) if read else {}
    except (RemoteError, AuthError) as error:
        return _Asked(remote, dict.fromkeys((place.key for place in places), error))
    found = [one for one in outcomes.values() if isinstance(one, Found)]
    files = {path: sha256 for one in found for path, sha256 in _paths(one).items()}
    try:
        return _Asked(remote, outcomes, remote.serves(files) if files else (), told=told)
    except (RemoteError, AuthError) as error:
        return _Asked(remote, outcomes, problem=error, told=told)


def _found(session: Session, asked: _Asked, key: str, notes: list[str]) -> Found | None:
    remote, outcome = asked.remote, asked.outcomes.get(key)
    if isinstance(outcome, UntrustedError):
        session.remotes.refused(remote, key, outcome)
        notes.extend(session.remotes.untrusted(key)[-1:])
    elif isinstance(outcome, RemoteError | AuthError):
        session.remotes.failed(remote, outcome)
        notes.append(_unusable(remote, outcome))
    elif isinstance(outcome, DamagedRecordError):
        notes.append(f"{remote.name} has a damaged record: {outcome}")
    return outcome if isinstance(outcome, Found) else None


def _unusable(remote: Remote, error: CachekitError) -> str:
    return not_asked(remote.name, error.said)


def _paths(found: Found) -> dict[str, str]:
    """The paths of the files that do not come with the record, and their digests."""
    return {path: sha256 for sha256, (_, path) in found.shared.paths.items() if sha256 not in found.shared.inline}


def _there(asked: _Asked, key: str, notes: list[str]) -> list[str]:
    """The modules of a shared record whose files are all on its remote."""
    found = asked.outcomes.get(key)
    if not isinstance(found, Found):
        return []
    if asked.problem:
        notes.append(_unusable(asked.remote, asked.problem))
        return []
    gone = {sha256 for path, sha256 in _paths(found).items() if path not in asked.lying}
    return [
        module.name for module in found.shared.record.modules if gone.isdisjoint(file.sha256 for file in module.files)
    ]


def _on_host(
    prepared: Prepared, wanted: Mapping[str, int | None], notes: list[str]
) -> tuple[frozenset[str], Mapping[str, Failed]]:
    """What the compiler's own folder has, and what is known there of failures."""
    if prepared.fingerprint.elsewhere or not wanted:
        return frozenset(), {}
    try:
        root = prepared.compiler.cache_dir(prepared.recipe)
        if root is None:
            return frozenset(), {}
        return prepared.compiler.contents(root), prepared.compiler.failed(root, wanted)
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
    found = plan(prepared, session.store).nearest
    near = found.known if found else None
    # Another compiler makes other graphs of the same recipe.
    tells = near is not None and near.compiler == prepared.fingerprint.compiler and INTERRUPTED not in near.hard
    return ("nearest", near.graphs) if near is not None and tells else ("unknown", None)


def _of_trial(attempt: Attempt) -> Failed:
    return Failed(attempt.code, attempt.message, attempt.log, attempt.when)
