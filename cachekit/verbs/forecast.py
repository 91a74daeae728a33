"""Many recipes at once: plan all, and say what an upgrade makes cold; or warm one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, InterruptedRunError, MissError, UntrustedError
from cachekit.recipe.price import Price
from cachekit.recipe.variant import MatrixEntry
from cachekit.remotes.judging import advice
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.record import File, Record
from cachekit.text import count, first_of
from cachekit.values import Answer
from cachekit.verbs.plan import plans
from cachekit.verbs.planned import Planned, Warmed, planned, together, warm_it


class Before(Struct, frozen=True):
    """The record of the same recipe under another toolchain."""

    key: str
    directory: str


class Row(Planned, frozen=True, kw_only=True, tag="cachekit/plan-row/1"):
    """One recipe of a forecast: its plan, or why it could not be planned.

    Attributes:
        name: As the user named it.
        same_as: An earlier row of the same key: what that one compiles or fetches, this one finds.
        goes_cold: It is warm under another toolchain, and not under this one.
        before: The record under the other toolchain, on a miss.
        error: Why the recipe could not be planned.
    """

    name: str
    same_as: str | None = None
    goes_cold: bool = False
    before: Before | None = None
    error: CachekitError | None = None


class Totals(Struct, frozen=True, kw_only=True):
    """What a forecast comes to; what several recipes share counts once.

    Attributes:
        expected_seconds: What compiling takes, as far as that is known.
        seconds_range: Likewise the least and the most that is expected of all of it.
        unknown: Of how many recipes nobody knows, as a remote could not be asked; what is told of misses includes them.
        unknown_seconds: Of how many recipes it is not known.
        dollars: What compiling costs, as far as that is known.
        dollars_range: Likewise the least and the most.
        unknown_dollars: Of how many recipes it is not known.
        goes_cold_expected_seconds: The same of recipes that are warm under another toolchain; so for the next five.
    """

    recipes: int
    hit: int
    miss: int
    unknown: int
    failed: int
    goes_cold: int
    fetch_bytes: int
    expected_seconds: float
    seconds_range: tuple[float, float]
    unknown_seconds: int
    dollars: float
    dollars_range: tuple[float, float]
    unknown_dollars: int
    goes_cold_expected_seconds: float
    goes_cold_seconds_range: tuple[float, float]
    goes_cold_unknown_seconds: int
    goes_cold_dollars: float
    goes_cold_dollars_range: tuple[float, float]
    goes_cold_unknown_dollars: int


class Forecast(Answer, frozen=True, tag="cachekit/plan-list/1"):
    """What becomes of many recipes."""

    plans: tuple[Row, ...]
    totals: Totals

    def unplanned(self) -> CachekitError | None:
        """One error for what could not be planned, with the first one's code; None where all could."""
        return together([(row.name, row.error) for row in self.plans if row.error], len(self.plans), "planned")

    def miss(self) -> CachekitError | None:
        """What to raise where nothing may compile; None where all are hits."""
        missed = [row for row in self.plans if row.compiles]
        if not missed:
            return None
        if unknown := next((row for row in missed if row.unanswered), None):
            return unknown.miss()
        if all(row.untrusted for row in missed):
            names = first_of(row.name for row in missed)
            return UntrustedError(
                f"{len(missed)} of {len(self.plans)} have no record that may be used: {names}",
                cause=missed[0].untrusted[0],
                hint=advice(missed[0].helps),
            )
        return MissError(
            f"{len(missed)} of {count(len(self.plans), 'recipe')} {'is' if len(missed) == 1 else 'are'} not warm: "
            + first_of(row.name for row in missed),
            hint=warm_it(missed[0].source, missed[0].elsewhere),
        )


def _totals(rows: Sequence[Row], lacking: Iterable[File]) -> Totals:
    misses = [row for row in rows if row.compiles and not row.same_as]
    return Totals(
        recipes=len(rows),
        hit=sum(row.status == "hit" for row in rows),
        miss=sum(row.status == "miss" for row in rows),
        unknown=sum(row.status == "unknown" for row in rows),
        failed=sum(row.status == "failed" for row in rows),
        goes_cold=sum(row.goes_cold for row in rows),
        fetch_bytes=sum({file.sha256: file.size for file in lacking}.values()),
        **_sums("", misses),
        **_sums("goes_cold_", [row for row in misses if row.goes_cold]),
    )


def _sums(prefix: str, misses: Sequence[Row]) -> dict[str, Any]:
    """Seconds and dollars, as far as they are known, and of how many they are not."""
    seconds = [row.expected_seconds for row in misses]
    dollars = [row.dollars for row in misses]
    spans = [(row.expected.low, row.expected.high) for row in misses if row.expected]
    costs = [row.dollars_range for row in misses if row.dollars_range]
    return {
        f"{prefix}expected_seconds": round(sum(value for value in seconds if value is not None), 3),
        f"{prefix}seconds_range": _added(spans, 3),
        f"{prefix}unknown_seconds": seconds.count(None),
        f"{prefix}dollars": round(sum(value for value in dollars if value is not None), 6),
        f"{prefix}dollars_range": _added(costs, 6),
        f"{prefix}unknown_dollars": dollars.count(None),
    }


def _added(ranges: Sequence[tuple[float, float]], digits: int) -> tuple[float, float]:
    """From all at their least to all at their most: what makes one slower than expected mostly makes the next so."""
    return round(sum(low for low, _ in ranges), digits), round(sum(high for _, high in ranges), digits)


def forecast(
    wanted: Iterable[tuple[str, Callable[[], Prepared]]],
    store: Store,
    remotes: Remotes | None = None,
    *,
    before: Callable[[Prepared], Sequence[Prepared]] = lambda _: (),
    price: Callable[[str], Price | None] = lambda _: None,
) -> Forecast:
    """Plan many recipes; one that cannot be planned is a row with its error, and stops no other.

    Args:
        wanted: Each with its name, as the user gave it, and what prepares it.
        store: The local store.
        remotes: The remotes, each asked once for all recipes.
        before: Makes the same recipe for other toolchains, the likeliest first: where it may be warm until now.
        price: What an hour of a machine costs, by its type.
    """
    rows: list[Row | None] = []  # None is one that can be planned
    names: list[str] = []
    former: list[Sequence[Prepared]] = []
    prepared: list[Prepared] = []
    for name, prepare in wanted:
        try:
            one = prepare()
        except InterruptedRunError:
            raise
        except CachekitError as error:
            rows.append(Row(name=name, recipe=name, source=name, status="failed", error=error))
        else:
            rows.append(None)
            names.append(name)
            prepared.append(one)
            former.append(_others(before, one))
    found = plans(prepared, store, remotes, beside=[one for many in former for one in many])
    seen: dict[str, str] = {}
    made = []
    for name, plan, others in zip(names, found.plans, former, strict=True):
        key, warm = plan.prepared.key, None
        if not plan.hit:
            records = (found.beside.get(one.place) for one in others)
            warm = next((record for record in records if record), None) or _former(store, plan.prepared)
        row = Row(
            **structs.asdict(planned(plan, price(plan.prepared.fingerprint.instance))),
            name=name,
            same_as=seen.get(key),
            goes_cold=warm is not None,
            before=Before(warm.key, warm.directory) if warm else None,
        )
        made.append(row)
        seen.setdefault(key, name)
    own = [plan for plan, row in zip(found.plans, made, strict=True) if not row.same_as]
    left = iter(made)
    every = tuple(row or next(left) for row in rows)
    return Forecast(every, _totals(every, [file for plan in own for file in plan.lacking]))


def _former(store: Store, prepared: Prepared) -> Record | None:
    """The youngest whole record of the same recipe under another toolchain."""
    alike = [one.row for one in store.around(prepared.ingredients.hard).same_job() if one.row.key != prepared.key]
    youngest = sorted(alike, key=lambda row: row.created, reverse=True)
    records = (store.read(row.place) for row in youngest)
    return next((record for record in records if record and not store.lacking(record.files)), None)


def _others(before: Callable[[Prepared], Sequence[Prepared]], prepared: Prepared) -> Sequence[Prepared]:
    try:
        return before(prepared)
    except InterruptedRunError:
        raise
    except CachekitError:  # it is not a recipe for those toolchains
        return ()


class EntryOutcome(Struct, frozen=True, kw_only=True):
    """What became of an entry.

    Attributes:
        set: Its overrides.
        status: `compiled`, `hit`, `failed`, or of a plan `miss`.
        compiled: Graphs; None where only planned, or failed. So for `seconds`.
        error: Why it failed.
    """

    name: str
    recipe: str
    set: tuple[str, ...]
    status: str = "failed"
    key: str | None = None
    compiled: int | None = None
    seconds: float | None = None
    compile_seconds: float | None = None
    error: CachekitError | None = None


class WarmedAll(Answer, frozen=True, tag="cachekit/warm-list/1"):
    """What became of a list: how many entries of each kind there are, and each.

    Attributes:
        dry_run: The entries were only planned.
    """

    dry_run: bool
    compiled: int
    hit: int
    miss: int
    failed: int
    entries: tuple[EntryOutcome, ...]

    def error(self) -> CachekitError | None:
        """One error for all that failed, with the first one's code; None where nothing did."""
        failed = [(entry.name, entry.error) for entry in self.entries if entry.error]
        return together(failed, len(self.entries), "planned" if self.dry_run else "warmed")


def warm_matrix(
    entries: Iterable[MatrixEntry],
    one: Callable[[MatrixEntry], Planned],
    tell: Callable[[int, MatrixEntry], None],
    *,
    dry_run: bool,
) -> WarmedAll:
    """Warm one after the other.

    Args:
        entries: What to warm.
        one: Warms an entry, or plans it.
        tell: Is told before each, with its number from 1.
        dry_run: See `WarmedAll`.
    """
    outcomes = []
    for number, entry in enumerate(entries, 1):
        tell(number, entry)
        name, recipe, overrides = entry.name, entry.recipe, tuple(entry.overrides)
        try:
            done = one(entry)
        except InterruptedRunError:
            raise
        except CachekitError as error:
            outcomes.append(EntryOutcome(name=name, recipe=recipe, set=overrides, error=error))
            continue
        warmed = done if isinstance(done, Warmed) else None
        outcomes.append(
            EntryOutcome(
                name=name,
                recipe=recipe,
                set=overrides,
                status=done.status,
                key=done.key,
                compiled=warmed.compiled if warmed else None,
                seconds=warmed.seconds if warmed else None,
                compile_seconds=warmed.compile_seconds if warmed else done.expected_seconds,
            )
        )
    counts = Counter(outcome.status for outcome in outcomes)
    return WarmedAll(dry_run, counts["compiled"], counts["hit"], counts["miss"], counts["failed"], tuple(outcomes))
