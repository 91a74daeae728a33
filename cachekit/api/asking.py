"""Questions to the cache and about this host: they fetch nothing and change nothing in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.api.options import AnyEntry, AnyRecipe, Options, Overrides, source_of
from cachekit.recipe import Recipe
from cachekit.store.record import Record
from cachekit.verbs import open_session as _opening

if TYPE_CHECKING:
    from cachekit.verbs.coverage import Coverage
    from cachekit.verbs.doctor import Diagnosis
    from cachekit.verbs.plan import Plan
    from cachekit.verbs.prove import Contract
    from cachekit.verbs.session import Session
    from cachekit.verbs.stats import Stats
    from cachekit.verbs.why import Compared, Side, Why
    from cachekit.verbs.why_run import RunWhy


class Asking(Options):
    """The methods of `Cache` that only look."""

    def plan(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Plan:
        """What a recipe will find and what must compile; runs nothing, imports no torch. `cachekit plan`.

        `toolchain`, `target` and `instance` plan for another machine, as `--toolchain` and its like do. For the other
        arguments see `load_recipe`.

        Raises:
            CachekitError: The recipe, its architecture, or the compiler cannot be had; see `session`.
        """
        from cachekit.data.shapes import check_data
        from cachekit.verbs.plan import Searching, plan

        with self._prepared(
            recipe, overrides, "plan", tiny=tiny, toolchain=toolchain, target=target, instance=instance
        ) as (opened, prepared):
            check_data(prepared.recipe, absent_ok=True)
            searching = Searching.as_warm(opened.config)
            return plan(prepared, opened.store, opened.chain, searching=searching)

    def why(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Why:
        """Why a recipe misses: the nearest record, here or on a shared cache, and what differs. `cachekit why RECIPE`.

        For the arguments see `plan`.

        Returns:
            Its `changes`, each with `name`, the old and the new value, and a sentence; on a hit none.

        Raises:
            CachekitError: As for `plan`.
        """
        from cachekit.data.shapes import check_data
        from cachekit.verbs.why import why

        with self._prepared(
            recipe, overrides, "why", tiny=tiny, toolchain=toolchain, target=target, instance=instance
        ) as (opened, prepared):
            check_data(prepared.recipe, absent_ok=True)
            return why(opened, prepared)

    def compare(self, old: AnyEntry, new: AnyEntry) -> Compared:
        """What differs between two recipes or records. `cachekit why A B`.

        Args:
            old: A recipe; or a record, the first digits of its key, here or on a shared cache, or a JSON file with one.
            new: Likewise.

        Raises:
            UnknownNameError: A name is no recipe, and no record's or several records' beginning.
            UsageError: A file holds no record.
        """
        from cachekit.verbs.why import compare

        with self.session(verb="why") as opened:
            return compare(_side(opened, old), _side(opened, new))

    def why_run(self, run: str = "last") -> RunWhy:
        """What a run compiled although the plan said hit, and why. `cachekit why --run`.

        Args:
            run: `last`, or the beginning of a run's name.

        Raises:
            UnknownNameError: There is no such run, or there are several.
        """
        from cachekit.verbs.why_run import why_run

        return why_run(self.open_store(), run)

    def coverage(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Coverage:
        """What of a recipe is cached, and where; what failed, and what is missing. `cachekit coverage`.

        For the arguments see `plan`.

        Returns:
            Its `units`, and `whole`, which is true where everything is cached.

        Raises:
            CachekitError: As for `plan`. A shared cache that cannot be asked is among the notes.
        """
        from cachekit.verbs.coverage import coverage

        with self._prepared(
            recipe, overrides, "coverage", tiny=tiny, toolchain=toolchain, target=target, instance=instance
        ) as (opened, prepared):
            return coverage(opened, prepared)

    def stats(
        self,
        *,
        run: str = "",
        since: str = "",
        by: str = "day",
        price: float | None = None,
        instance: str | None = None,
    ) -> Stats:
        """What the cache did, and what that saved. `cachekit stats`.

        Args:
            run: Count one run only: `last`, or the beginning of its name.
            since: Count runs that began then or later, in UTC: `2026-11-01`, or `7d`.
            by: What the table of periods is by: `day`, `week` or `month`.
            price: Dollars for an hour; figures in dollars are made where it or `instance` is given.
            instance: A machine type, whose price is taken from the registry where none is given.

        Raises:
            UnknownNameError: There is no such run, or machine type.
            UsageError: That is no day, no period, or no price; or a run and a day are both given.
        """
        from cachekit.recipe import price as prices
        from cachekit.verbs.stats import stats

        said = [] if price is None else [repr(price)]
        paid = prices.machine(prices.read(said), instance or "") if said or instance else None
        return stats(self.open_store().layout, run=run, since=since, by=by, price=paid)

    def records(self) -> list[Record]:
        """All readable records of the store, youngest first; their files are not checked. `cachekit ls`."""
        found = self.open_store().records()
        return sorted(found, key=lambda record: record.provenance.created, reverse=True)

    def trace(self, run: str = "last") -> dict[str, Any]:
        """What a run did when, and the runs beside it: a Chrome trace, to be written as JSON. `cachekit stats --trace`.

        Args:
            run: `last`, or the beginning of its name.

        Raises:
            UnknownNameError: There is no such run, or its journal was removed.
        """
        from cachekit.verbs.trace import trace

        return trace(self.open_store().layout, run)

    def doctor(self) -> Diagnosis:
        """What is wrong with this host's set-up, and what mends it. `cachekit doctor`.

        Settings that cannot be read are among the findings. With `offline` no shared cache beyond a network is asked.

        Returns:
            Its findings, each with the name of the check; `good` is true where there is no problem.
        """
        from contextlib import nullcontext

        from cachekit.verbs.doctor import examine
        from cachekit.verbs.doctor_checks import checks

        # Whether this process may open connections is nothing to be found out: it was said.
        wanted = [check for check in checks() if not (self.offline and check.name == "offline")]
        with _opening.offline_environment() if self.offline else nullcontext():
            return examine(self._config, wanted)

    def neuron_contract(self) -> Contract:
        """Whether this host's Neuron does what cachekit promises. `cachekit doctor --neuron-contract`.

        It takes ten minutes, in temporary folders; `progress` is told what begins, as `contract.check`.

        Returns:
            What came of each promise and assumption; `good` is false where one differs, or where there is no Neuron.

        Raises:
            StoreError: No temporary folder can be made.
        """
        from cachekit.events import Journal
        from cachekit.verbs.prove import neuron_contract

        journal = Journal(None, "doctor")
        if self.progress is not None:
            journal.listen(self.progress)
        return neuron_contract(tell=lambda what: journal.show("contract.check", check=what))


def _side(session: Session, one: AnyEntry) -> Side:
    from cachekit.api.options import load_recipe
    from cachekit.verbs import why_sides
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.prepare import prepare

    if isinstance(one, Record):
        return why_sides.of_record(one)
    if not isinstance(one, Recipe):
        if why_sides.is_file_of_one(str(one)):
            return why_sides.of_file(Path(one).expanduser())
        if why_sides.is_record(str(one)):
            return why_sides.of_key(session, str(one))
    loaded = load_recipe(one)
    compiler = Elsewhere(compiler=session.config.compiler).select(loaded)
    return why_sides.of_recipe(prepare(loaded, compiler, source_of(one)))
