"""Tell before running what will be found and what must be compiled. `warm` and `train` begin with this function."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from cachekit.compilers import registry
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, Helps, IntegrityError, UntrustedError
from cachekit.events import bypass, bypassed
from cachekit.key.canonical import Change, difference
from cachekit.key.cost import ASKED, Expected, Timed, expected
from cachekit.key.nearest import INTERRUPTED
from cachekit.recipe.price import published_time
from cachekit.remotes.index import Known
from cachekit.remotes.judging import best
from cachekit.remotes.nearest import Looked, Nearest, Wanted, search
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.index import Around
from cachekit.store.layout import LOCAL, Place
from cachekit.store.record import COMMAND, File, Record
from cachekit.values import by_value
from cachekit.verbs.planned import planned

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found
    from cachekit.verbs.session import Session


class Plan(Struct, frozen=True):
    """What will happen.

    Attributes:
        record: The record of the key, whole and verified where the store has it; None is a miss.
        found: The remote that has it, where the store has not.
        lacking: Of that, the files that the store lacks.
        nearest: On a miss, the record with the least difference, and what differs.
        reuse: On a miss, the record that a warm begins with, where one was sought.
        flaw: On a miss, what is wrong with the key's own record; empty where it has none.
        expected: On a miss, how long compiling will take; None is unknown.
        looked: How far each remote was searched for the nearest record.
        search_seconds: What that took.
        untrusted: On a miss, where a record of the key lies that may not be used, with the reason.
        helps: And what helps; empty where there is none.
        unasked: On a miss, the remotes that were not asked because no connection may be opened.
        problems: On a miss, by remote, why nobody knows whether that has the record, or how to get it.
    """

    prepared: Prepared
    record: Record | None
    nearest: Nearest | None = None
    reuse: Nearest | None = None
    found: Found | None = None
    lacking: tuple[File, ...] = ()
    flaw: str = ""
    expected: Expected | None = None
    looked: tuple[Looked, ...] = ()
    search_seconds: float = 0.0
    untrusted: tuple[str, ...] = ()
    helps: Helps | Literal[""] = ""
    unasked: tuple[str, ...] = ()
    problems: Mapping[str, CachekitError] = {}

    __hash__ = by_value

    @property
    def hit(self) -> bool:
        """Nothing will compile."""
        return self.record is not None

    @property
    def status(self) -> Literal["hit", "miss", "unknown"]:
        """What is known: it is there, it is nowhere, or a remote that may have it could not be asked."""
        if self.hit:
            return "hit"
        damaged = all(isinstance(error, IntegrityError) for error in self.problems.values())
        return "miss" if damaged else "unknown"

    @property
    def remote(self) -> str:
        """Where the record is: `local`, or the name of a remote; empty on a miss."""
        if self.record is None:
            return ""
        return self.found.remote.name if self.found else LOCAL

    @property
    def fetch(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.lacking)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs, from the nearest record to this recipe."""
        return self.nearest.changes if self.nearest else ()

    @property
    def expected_seconds(self) -> float | None:
        """How long compiling takes: measured for this key, or expected by other records; None is unknown."""
        if self.record is not None:
            return self.record.cold_seconds
        return self.expected.seconds if self.expected else None

    @property
    def expected_graphs(self) -> int | None:
        """How many graphs there will be: as many as the record of this key has, or the one that a warm begins with."""
        known = self.record or (self.reuse and self.reuse.known)
        return known.graphs if known and INTERRUPTED not in known.hard else None

    @property
    def compile_seconds(self) -> float | None:
        """What there is to compile, in seconds: nothing on a hit; None is unknown."""
        return 0.0 if self.hit else self.expected_seconds


def plan(
    prepared: Prepared,
    store: Store,
    remotes: Remotes | None = None,
    *,
    anew: bool = False,
    reuse_bytes: int = 0,
    everywhere: bool = False,
) -> Plan:
    """Look the key up, here and on the remotes; on a miss, find the nearest record, and what a warm begins with.

    Args:
        prepared: The recipe.
        store: The local store.
        remotes: The remotes.
        anew: Ask those, whatever is remembered of what they had not.
        reuse_bytes: The largest record that a warm may begin with, and the most that it fetches; 0 seeks none.
        everywhere: On a miss look for the nearest record on the remotes, too; so where `reuse_bytes` is not 0.
    """
    found = plans([prepared], store, remotes, anew=anew, reuse_bytes=reuse_bytes, everywhere=everywhere)
    return found.plans[0]


class Plans(Struct, frozen=True):
    """Plans of several recipes.

    Attributes:
        plans: In the order of the recipes.
        beside: Of what was looked up beside them, the records that are somewhere.
    """

    plans: tuple[Plan, ...]
    beside: Mapping[Place, Record]


def plans(
    wanted: Sequence[Prepared],
    store: Store,
    remotes: Remotes | None = None,
    *,
    anew: bool = False,
    beside: Sequence[Prepared] = (),
    reuse_bytes: int = 0,
    everywhere: bool = False,
) -> Plans:
    """Plan several recipes at once: each remote is asked once for all that the store lacks; see `plan`.

    Args:
        wanted: The recipes.
        store: The local store.
        remotes: The remotes.
        anew: See `plan`.
        beside: Only looked up, in the same questions.
        reuse_bytes: See `plan`.
        everywhere: See there.
    """
    places = [one.place for one in (*wanted, *beside)]
    here = {place: store.lookup(place) for place in places}
    absent = [place for place, record in here.items() if record is None]
    found: Mapping[str, Found] = {}
    if remotes is not None:
        own = [one for one in wanted if here[one.place] is None]
        remotes.patience.stake = cache(partial(_at_stake, own, store)) if absent else lambda: 0.0
    if remotes and absent:
        found = remotes.find_all(absent, anew=anew)
    planned = []
    for one in wanted:
        there = found.get(one.key)
        record = here[one.place] or (there.shared.record if there else None)
        lacks = registry.adapter(record.compiler).lacks(record.modules) if record else ""
        if record is None or lacks:
            others = [Known.of(other.shared.record) for other in found.values()]
            missed = _miss(one, store, remotes, others, reuse_bytes=reuse_bytes, everywhere=everywhere)
            planned.append(structs.replace(missed, flaw=lacks) if lacks else missed)
        elif there is None:
            planned.append(Plan(one, record))
        else:
            planned.append(Plan(one, record, found=there, lacking=tuple(store.lacking(record.files))))
    elsewhere = {place: found[place.key].shared.record for place in absent if place.key in found}
    somewhere = {place: record for place, record in here.items() if record is not None} | elsewhere
    looked_up = {one.place: somewhere[one.place] for one in beside if one.place in somewhere}
    return Plans(tuple(planned), looked_up)


def _at_stake(wanted: Sequence[Prepared], store: Store) -> float | None:
    """What compiling takes as far as this host knows, in seconds: what an answer of a remote may spare."""
    known = []
    for one in wanted:
        around = store.around(one.ingredients.hard)
        known.append(_expected(one, Wanted(one.place, one.ingredients.hard, one.compiler.foreign), store, around, ()))
    return sum(one.seconds for one in known if one) if any(known) else None


def _miss(
    prepared: Prepared,
    store: Store,
    remotes: Remotes | None,
    others: Sequence[Known],
    *,
    reuse_bytes: int,
    everywhere: bool,
) -> Plan:
    place, hard = prepared.place, prepared.ingredients.hard
    refused = store.refusal.of(place.key)
    here = [f"{LOCAL}: a record of this key is there, but it is {refused.reason}"] if refused else []
    wanted = Wanted(place, hard, prepared.compiler.foreign, reuse_bytes)
    around = store.around(hard)
    found = search(wanted, store, remotes if everywhere or reuse_bytes else None, around=around)
    there = [found.nearest.known] if found.nearest and found.nearest.remote else []
    return Plan(
        prepared,
        None,
        nearest=found.nearest,
        reuse=found.reuse,
        flaw=store.flaw(place.key),
        expected=_expected(prepared, wanted, store, around, [*there, *others]),
        looked=found.looked,
        search_seconds=found.seconds,
        untrusted=(*here, *(remotes.untrusted(place.key) if remotes else ())),
        helps=best([*([refused.helps] if refused else []), *(remotes.helps(place.key) if remotes else ())]),
        unasked=tuple(remotes.offline) if remotes is not None else (),
        problems=_problems(place.key, remotes),
    )


def _problems(key: str, remotes: Remotes | None) -> Mapping[str, CachekitError]:
    """What keeps a remote's answer from being known; that its record may not be used is known."""
    found = remotes.problems(key) if remotes is not None else {}
    return {name: error for name, error in found.items() if not isinstance(error, UntrustedError)}


def _expected(
    prepared: Prepared, wanted: Wanted, store: Store, around: Around, others: Sequence[Known]
) -> Expected | None:
    """How long compiling takes: by the store's records that may be used, then by others, then by what was published."""
    compiler, hard = prepared.fingerprint.compiler, prepared.ingredients.hard
    same, near = around.same_job(), around.nearest(compiler=compiler)
    here = (
        Timed(one.row.key, one.row.recipe, one.row.directory, one.row.model_type, one.hard, one.row.cold_seconds)
        for one in itertools.chain(same, itertools.islice(near, ASKED))
        if one.row.compiler == compiler and wanted.comparable(one.row.model_type)
    )
    there = (
        Timed(one.key, one.recipe, one.directory, one.model_type, one.hard, one.cold_seconds)
        for one in others
        if one.compiler == compiler and wanted.comparable(one.model_type)
    )
    judged = {one.key for one in others}

    def usable(one: Timed) -> bool:
        return one.key in judged or store.read(Place(one.directory, one.model_type, one.key)) is not None

    known = itertools.chain(here, there)
    place, growth = wanted.place, prepared.compiler.growth
    if found := expected(place.directory, place.model_type, hard, known, growth, usable=usable):
        return found
    if place.model_type == COMMAND:  # nobody knows what a command trains
        return None
    return published_time(compiler, prepared.fingerprint.instance, place.model_type, hard, growth)


def as_miss(planned: Plan, store: Store, remotes: Remotes | None, reuse_bytes: int) -> Plan:
    """A plan whose record could not be fetched after all; for the arguments see `plan`."""
    return _miss(planned.prepared, store, remotes, (), reuse_bytes=reuse_bytes, everywhere=False)


def miss_error(plan: Plan, tried: str = "") -> CachekitError:
    """What `--require-warm` answers on a miss.

    Args:
        plan: The plan.
        tried: Why a trial run with the nearest record did not get through; empty where there was none.
    """
    error = planned(plan).miss(tried)
    assert error is not None
    return error


def unfetched(plan: Plan, remotes: Remotes) -> Plan:
    """A plan whose record is on a remote, and could not be fetched."""
    return structs.replace(plan, record=None, found=None, problems=_problems(plan.prepared.key, remotes))


def fetch_planned(session: Session, planned: Plan) -> Record | None:
    """The record of a plan, in the store; None on a miss, and where it could not be fetched, which has been told.

    Raises:
        StoreError: The store cannot be written.
    """
    return session.fetch(planned.found) if planned.found else planned.record


def left_unfinished(session: Session, prepared: Prepared) -> Nearest | None:
    """What a run of this key had compiled that was stopped, in the store; None where there is no such thing.

    Raises:
        StoreError: The store cannot be written.
    """
    from cachekit.compilers.keep import unfinished

    place, most = unfinished(prepared).place, session.config.reuse_bytes
    record, remote = session.store.lookup(place) if most else None, None
    if most and record is None and (found := session.remotes.find(place, anew=True)):
        remote = found.remote
        record = session.fetch(found) if found.shared.record.size <= most else None
    if record is None:
        return None
    changes = tuple(difference(record.hard, prepared.ingredients.hard))
    return Nearest(Known.of(record), changes, record, remote)


def tell(session: Session, planned: Plan, *, recache: bool = False) -> None:
    """Note, as a reason for a bypass, what kept a plan from a hit, or who does not want one.

    Args:
        session: Collaborators.
        planned: The plan.
        recache: Compile although there is a record.
    """
    journal = session.journal
    if recache and planned.hit and not bypassed(journal).get("restore-refused"):  # then nobody asked for it
        bypass(journal, "recache", planned.prepared.key)
    if planned.flaw:
        unreadable = planned.flaw.startswith("its record cannot be read")
        bypass(journal, "store-unreadable" if unreadable else "store-damaged", planned.flaw)
    if planned.remote == LOCAL:
        return  # nobody else was needed
    for name in session.remotes.offline:
        bypass(journal, "remote-offline", name)
    if not planned.hit:
        for remote in session.remotes.writable:
            if not remote.readable:
                bypass(journal, "remote-write-only", remote.name)


def unrestored(session: Session, again: Plan | None, error: IntegrityError, *, last: bool = False) -> None:
    """Note that a record could not be restored.

    Args:
        session: Collaborators.
        again: What there is for the key now; None where the record was another key's.
        error: What was wrong.
        last: No other plan follows that would tell of a miss.
    """
    what = f"{error.message}: {error.cause}"
    if again is None or (again.hit and not again.found):
        bypass(session.journal, "restore-refused", what)
    elif again.found or last:
        bypass(session.journal, "store-damaged", what)


def look_again(
    session: Session, prepared: Prepared, error: IntegrityError, reuse_bytes: int = 0, *, last: bool = False
) -> tuple[Plan, Record | None]:
    """Look up a recipe whose record could not be restored: between plan and restore a blob went bad, and is set aside.

    Args:
        session: Collaborators.
        prepared: The recipe.
        error: What was wrong.
        reuse_bytes: See `plan`.
        last: No other plan follows that would tell of a miss.

    Returns:
        What there is now; and that, in the store, where a remote has it.
    """
    again = plan(prepared, session.store, session.remotes, anew=True, reuse_bytes=reuse_bytes)
    unrestored(session, again, error, last=last)
    return again, fetch_planned(session, again) if again.found else None


def unshared(session: Session) -> None:
    """Note the remotes that do not get what has just compiled, as they are only read."""
    for remote in session.remotes.readable:
        if not remote.writable:
            bypass(session.journal, "remote-read-only", remote.name)
