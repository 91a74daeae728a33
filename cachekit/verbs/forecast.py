"""Plan many recipes at once: what each would find and compile, what it all comes to, and what an upgrade makes cold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, InterruptedRunError, MissError
from cachekit.recipe.price import Price
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.record import Record
from cachekit.verbs.plan import Plan, plans

SHOWN = 3  # recipes that an error names


@dataclass(frozen=True, slots=True)
class Request:
    """A recipe to be planned.

    Attributes:
        name: As the user named it.
        prepare: Makes what is planned.
        before: Makes the same recipe for other toolchains, the likeliest first: where it may be warm until now.
        price: What an hour of a machine costs, by its type.
    """

    name: str
    prepare: Callable[[], Prepared]
    before: Callable[[Prepared], Sequence[Prepared]] = lambda _: ()
    price: Callable[[str], Price | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Row:
    """One recipe of a forecast.

    Attributes:
        plan: None where it could not be made.
        error: Why.
        same_as: An earlier row of the same key: what that one compiles or fetches, this one finds.
        before: The record of the same recipe under another toolchain, on a miss: the upgrade makes it cold.
        price: What an hour costs.
    """

    name: str
    plan: Plan | None
    error: CachekitError | None = None
    same_as: str = ""
    before: Record | None = None
    price: Price | None = None

    @property
    def status(self) -> str:
        """`hit`, `miss` or `failed`."""
        return "failed" if self.plan is None else "hit" if self.plan.hit else "miss"

    @property
    def goes_cold(self) -> bool:
        """It is warm under another toolchain, and not under this one."""
        return self.status == "miss" and self.before is not None

    @property
    def dollars(self) -> float | None:
        """What compiling it costs; None is unknown."""
        return self.price.dollars(self.plan.compile_seconds) if self.price and self.plan else None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        said = self.plan.told(self.price).as_dict() if self.plan else {"recipe": self.name, "source": self.name}
        before = self.before and {"key": self.before.key, "directory": self.before.directory}
        return {
            **said,
            "name": self.name,
            "status": self.status,
            "same_as": self.same_as or None,
            "goes_cold": self.goes_cold,
            "before": before,
            "error": self.error.as_dict() if self.error else None,
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """What becomes of many recipes.

    Attributes:
        rows: One for each.
        require_warm: A miss is an error.
    """

    rows: tuple[Row, ...]
    require_warm: bool = False

    def totals(self) -> dict[str, Any]:
        """What it all comes to; what several recipes share counts once."""
        own = [row for row in self.rows if row.plan and not row.same_as]
        misses = [row for row in own if row.status == "miss"]
        cold = [row for row in self.rows if row.goes_cold]
        lacking = {file.sha256: file.size for row in own if row.plan for file in row.plan.lacking}
        return {
            "recipes": len(self.rows),
            **{kind: sum(row.status == kind for row in self.rows) for kind in ("hit", "miss", "failed")},
            "goes_cold": len(cold),
            "fetch_bytes": sum(lacking.values()),
            **_sums("", misses),
            **_sums("goes_cold_", [row for row in misses if row.goes_cold]),
        }

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"plans": [row.as_dict() for row in self.rows], "totals": self.totals()}

    def error(self) -> CachekitError | None:
        """One error for what could not be planned, with the first one's code, or else for misses; or None."""
        failed = [row for row in self.rows if row.error is not None]
        if failed:
            first = failed[0].error
            assert first is not None
            told = CachekitError(
                f"{len(failed)} of {len(self.rows)} could not be planned: {_names(failed)}",
                cause=f"{failed[0].name}: {first}" + (f": {first.cause}" if first.cause else ""),
                hint=first.hint,
            )
            told.code, told.exit_code = first.code, first.exit_code
            return told
        missed = [row for row in self.rows if row.status == "miss"]
        if not (self.require_warm and missed):
            return None
        source = missed[0].plan.prepared.source if missed[0].plan else missed[0].name
        return MissError(
            f"{len(missed)} of {len(self.rows)} are not warm: {_names(missed)}", hint=f"cachekit warm {source}"
        )


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(row.name for row in rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")


def _sums(prefix: str, misses: Sequence[Row]) -> dict[str, Any]:
    """Seconds and dollars, as far as they are known, and of how many they are not."""
    seconds = [row.plan.compile_seconds for row in misses if row.plan]
    dollars = [row.dollars for row in misses]
    return {
        f"{prefix}expected_seconds": round(sum(value for value in seconds if value is not None), 3),
        f"{prefix}unknown_seconds": seconds.count(None),
        f"{prefix}dollars": round(sum(value for value in dollars if value is not None), 6),
        f"{prefix}unknown_dollars": dollars.count(None),
    }


def forecast(
    requests: Iterable[Request], store: Store, remotes: Remotes | None = None, *, require_warm: bool = False
) -> Forecast:
    """Plan many recipes; one that cannot be planned is a row with its error, and stops no other.

    Args:
        requests: The recipes.
        store: The local store.
        remotes: The remotes, each asked once for all recipes.
        require_warm: See `Forecast`.
    """
    rows: list[Row] = []
    prices: list[Callable[[str], Price | None]] = []
    former: list[Sequence[Prepared]] = []
    prepared: list[Prepared] = []
    for request in requests:
        try:
            one = request.prepare()
        except InterruptedRunError:
            raise
        except CachekitError as error:
            rows.append(Row(request.name, None, error))
        else:
            rows.append(Row(request.name, None))
            prepared.append(one)
            prices.append(request.price)
            former.append(_before(request, one))
    planned = plans(prepared, store, remotes, beside=[one for many in former for one in many])
    seen: dict[str, str] = {}
    numbers = iter(range(len(prepared)))
    for place, row in enumerate(rows):
        if row.error is not None:
            continue
        number = next(numbers)
        plan, key = planned.plans[number], prepared[number].key
        before = None
        if not plan.hit:
            others = (planned.beside.get(one.place) for one in former[number])
            before = next((record for record in others if record), None)
            before = before or _former(store, prepared[number])
        price = prices[number](prepared[number].fingerprint.instance)
        rows[place] = replace(row, plan=plan, same_as=seen.get(key, ""), before=before, price=price)
        seen.setdefault(key, row.name)
    return Forecast(tuple(rows), require_warm)


def _former(store: Store, prepared: Prepared) -> Record | None:
    """The youngest whole record of the same recipe under another toolchain."""
    alike = [one.row for one in store.same_job(prepared.ingredients.hard) if one.row.key != prepared.key]
    youngest = sorted(alike, key=lambda row: row.created, reverse=True)
    records = (store.read(row.directory, row.model_type, row.key) for row in youngest)
    return next((record for record in records if record and not store.missing(record)), None)


def _before(request: Request, prepared: Prepared) -> Sequence[Prepared]:
    try:
        return request.before(prepared)
    except InterruptedRunError:
        raise
    except CachekitError:  # it is no recipe for those toolchains
        return ()
