"""Questions: they fetch nothing and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cachekit.api.opened import AnyEntry, AnyRecipe, Opened, Price, prices, variant
from cachekit.errors import UsageError
from cachekit.recipe import Recipe
from cachekit.store.record import Record
from cachekit.verbs import session as opening

if TYPE_CHECKING:
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.compilers.prepare import Prepared
    from cachekit.recipe.price import Prices
    from cachekit.verbs.coverage import Coverage, CoverageOfAll
    from cachekit.verbs.doctor import Diagnosis
    from cachekit.verbs.forecast import Forecast
    from cachekit.verbs.instances import InstancePlan
    from cachekit.verbs.planned import Planned
    from cachekit.verbs.prove import Contract
    from cachekit.verbs.session import Session
    from cachekit.verbs.stats import CheckedStats, Stats
    from cachekit.verbs.why import Compared, Side, Why
    from cachekit.verbs.why_run import LogWhy, RunWhy


class Questions(Opened):
    """The verbs that only look."""

    def plan(self, recipe: AnyRecipe, *, price: Price = (), data: bool = True, compile_for: str = "") -> Planned:
        """What a recipe will find and what must compile; runs nothing, imports no torch. `cachekit plan`.

        Args:
            recipe: Its path, a name of the zoo, a `Recipe` or a `Variant`; so in all functions.
            price: Dollars for an hour: 0.40, or `["trn1.2xlarge=0.40"]`.
            data: Look at its local rows as well.
            compile_for: See `warm`.

        Returns:
            Its `hit`; and `miss()`, what to raise where nothing may compile.

        Raises:
            CachekitError: The recipe, its architecture, or the compiler cannot be loaded; see `session`.
        """
        priced = prices(price)
        if compile_for:
            with self._compiling_for(recipe, compile_for) as (compiler, one):
                return replace(self, compiler=compiler).plan(one, price=price, data=data)
        with self._prepared(recipe, "plan") as (opened, prepared):
            return self._planned(opened, prepared, priced, data=data)

    def _planned(self, opened: Session, prepared: Prepared, priced: Prices, *, data: bool = True) -> Planned:
        """What a recipe will find, as `warm` and `train` would find it."""
        from cachekit.data.preview import preview
        from cachekit.data.shapes import check_data
        from cachekit.verbs.plan import plan
        from cachekit.verbs.planned import planned

        check_data(prepared.recipe, absent_ok=True)
        made = plan(prepared, opened.store, opened.remotes, reuse_bytes=opened.config.reuse_bytes)
        answer = planned(made, priced.of(prepared.fingerprint.instance))
        return structs.replace(answer, data=preview(prepared.recipe)) if data else answer

    def plan_all(self, recipes: Sequence[AnyRecipe], *, price: Price = ()) -> Forecast:
        """What many recipes will find and compile, and what an upgrade makes cold. `cachekit plan A B`.

        One that cannot be planned stops no other: the answer's `error()` tells of it.
        """
        return self._planned_all([(_name(one), one) for one in recipes], price)

    def _planned_all(self, named: Sequence[tuple[str, AnyRecipe]], price: Price) -> Forecast:
        """The same of recipes with the names that their rows get."""
        from cachekit.compilers.prepare import again
        from cachekit.data.shapes import check_data
        from cachekit.verbs.forecast import forecast

        config = self._config()
        where, priced = self._elsewhere(config), prices(price)

        def prepared(recipe: AnyRecipe) -> Prepared:
            loaded = self._variant(recipe).load()
            check_data(loaded, absent_ok=True)
            return where.prepare(loaded, self._source(recipe), guess=True)

        def before(now: Prepared) -> list[Prepared]:
            return [again(now, other) for other in where.other_toolchains(now.recipe)]

        wanted = [(name, partial(prepared, one)) for name, one in named]
        with self.session(verb="plan", config=config) as opened:
            return forecast(wanted, opened.store, opened.remotes, before=before, price=priced.of)

    def plan_instances(self, recipe: AnyRecipe, *, price: Price = ()) -> InstancePlan:
        """On which instance type of the registry a recipe trains cheapest, and why. `cachekit plan --instances`.

        Args:
            recipe: As for `plan`. Its `expect` has the training times; with changes they are not its own.
            price: What an hour of an instance type costs you: `["trn1.2xlarge=0.40"]`.

        Raises:
            UsageError: A machine or a chip was named as well; or that is no price of an instance type.
        """
        from cachekit.api.functions import own_prices
        from cachekit.compilers.elsewhere import Elsewhere
        from cachekit.verbs.instances import plan_instances

        if self.instance or self.target:
            raise UsageError(
                "--instances compares all instance types, but one was named",
                hint="leave out --instance and --target, or --instances",
            )
        paid = own_prices([repr(price)] if isinstance(price, int | float) else price)
        config, one = self._config(), self._variant(recipe)
        loaded, source, node = one.load(), self._source(recipe), self._node()

        def prepared(instance: str) -> Prepared:
            return Elsewhere(config, self.toolchain or "", instance=instance, node=node).prepare(loaded, source)

        with self.session(verb="plan", config=config) as opened:
            published = not (one.words or one.tiny)
            return plan_instances(
                loaded, prepared, opened.store, opened.remotes, source=source, prices=paid, as_published=published
            )

    def why(self, recipe: AnyRecipe) -> Why:
        """Why a recipe misses: the nearest record, here or on a remote, and what differs. `cachekit why RECIPE`.

        Returns:
            Its `changes`, each with `name`, the old and the new value, and sentences; on a hit none.

        Raises:
            UsageError: It is a file with a record or a plan.
        """
        from cachekit.data.shapes import check_data
        from cachekit.verbs.why import refuse_alone, why

        refuse_alone(self._variant(recipe).name)
        with self._prepared(recipe, "why") as (opened, prepared):
            check_data(prepared.recipe, absent_ok=True)
            return why(opened, prepared)

    def why_key(self, beginning: str) -> Compared:
        """What differs between a record and the nearest other one. `cachekit why KEY`.

        Raises:
            UnknownNameError: No record begins with these digits, or several do.
        """
        from cachekit.verbs.why import compare, with_nearest

        with self.session(verb="why") as opened:
            return compare(*with_nearest(opened, beginning))

    def compare(self, old: AnyEntry, new: AnyEntry) -> Compared:
        """What differs between two recipes or records. `cachekit why A B`.

        Args:
            old: A recipe, on this machine; or a record, the first digits of its key, here or on a remote, or a JSON
                file with one.
            new: Likewise; a recipe is taken on the machine that is meant.

        Raises:
            UnknownNameError: A name is not a recipe, and no record's or several records' beginning.
            UsageError: A file holds no record.
        """
        from cachekit.compilers.elsewhere import Elsewhere
        from cachekit.verbs.why import compare

        with self.session(verb="why") as opened:
            before = self._side(opened, old, Elsewhere(opened.config))
            return compare(before, self._side(opened, new, self._elsewhere(opened.config)))

    def _side(self, session: Session, one: AnyEntry, where: Elsewhere) -> Side:
        from cachekit.verbs import why as sides
        from cachekit.verbs.entry import means_key

        if isinstance(one, Record):
            return sides.of_record(one)
        named = self._variant(one)
        if named.name and (file := sides.file_of_one(named.name)):
            return sides.of_file(file)
        if named.name and means_key(named.name):
            return sides.of_key(session, named.name)
        loaded = named.load()
        machine = {"--toolchain": where.toolchain, "--target": where.target, "--instance": where.instance}
        return sides.of_recipe(where.prepare(loaded, named.typed(machine)))

    def why_log(self, path: str | Path) -> LogWhy:
        """What a log tells of a run, whoever started it: hits, compiles, failures, time lost. `cachekit why --log`.

        Args:
            path: The log; `-` is stdin.

        Raises:
            UsageError: It cannot be read, or no compiler knows its words.
        """
        from cachekit.disk import named
        from cachekit.verbs.why_run import why_log

        return why_log(Path("-") if str(path) == "-" else named(path), self._journal(""))

    def why_run(self, run: str = "last") -> RunWhy:
        """What a run compiled although the plan said hit, and why. `cachekit why --run`.

        Args:
            run: `last`, or the beginning of a run's name.

        Raises:
            UnknownNameError: There is no such run, or there are several.
        """
        from cachekit.verbs.why_run import why_run

        return why_run(self.open_store(), run)

    def coverage(self, recipe: AnyRecipe) -> Coverage:
        """What of a recipe is cached, and where; what failed, and what is missing. `cachekit coverage`.

        A remote that cannot be asked is among the notes.

        Returns:
            Its `modules`, and `whole`, which is true where everything is cached.
        """
        from cachekit.verbs.coverage import coverage

        with self._prepared(recipe, "coverage") as (opened, prepared):
            return coverage(opened, prepared)

    def coverage_all(self, recipes: Sequence[AnyRecipe], *, skip: bool = False, certain: bool = True) -> CoverageOfAll:
        """What of several recipes is cached. `cachekit coverage --all`.

        Args:
            recipes: The recipes.
            skip: One that cannot be used here is a row of its own, and does not hide the others.
            certain: Read each record on a remote, and look at each file; else the remote's index answers for those that
                are there alone (`basis`), in four requests on the Hub.
        """
        from cachekit.verbs.coverage import coverage_of_all

        config = self._config()
        where = self._elsewhere(config)

        def prepared(recipe: AnyRecipe) -> Prepared:
            return where.prepare(self._variant(recipe).load(), self._source(recipe), guess=len(recipes) > 1)

        with self.session(verb="coverage", config=config) as opened:
            wanted = [(_name(one), partial(prepared, one)) for one in recipes]
            return coverage_of_all(opened, wanted, skip=skip, certain=certain)

    def stats(
        self,
        *,
        run: str = "",
        since: str = "",
        by: str = "day",
        price: Price = (),
        cost: bool = False,
    ) -> Stats:
        """What the cache did, and what that saved. `cachekit stats`.

        Args:
            run: Count one run only: `last`, or the beginning of its name.
            since: Count runs that began then or later, in UTC: `2026-11-01`, or `7d`.
            by: What the table of periods is by: `day`, `week` or `month`.
            price: As for `plan`: all runs in dollars, as if they had run there.
            cost: In dollars, at the price of this machine: of the runs on machines of this type.

        Raises:
            UnknownNameError: There is no such run, or instance type.
            UsageError: That is not a day, a period or a price; or a run and a day are both given.
        """
        from cachekit.recipe.price import machine
        from cachekit.verbs.stats import stats

        given = not isinstance(price, Sequence) or bool(price)
        paid = machine(prices(price)) if given or cost else None
        return stats(self.open_store().layout, run=run, since=since, by=by, price=paid, every=given)

    def check_stats(self) -> CheckedStats:
        """Count every journal anew, and compare with the figures that are kept. `cachekit stats --check`.

        Returns:
            The runs whose figures differ; `error()` is what to raise where there are some.
        """
        from cachekit.verbs.stats import check

        return check(self.open_store().layout)

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
        """This machine, what is wrong with its set-up, and how to repair it. `cachekit doctor`.

        Settings that cannot be read are among the findings. With `offline` no remote beyond a network is asked.

        Returns:
            The machine, and the findings; `good` is true where there is no problem.
        """
        from cachekit.verbs.doctor import checks, examine

        # Whether this process may open connections is nothing to be found out: it was said.
        wanted = [check for check in checks() if not (self.offline and check.name == "offline")]
        with opening.environment(opening.OFFLINE if self.offline else {}):
            return examine(self._config, wanted)

    def neuron_contract(self, report: str | Path | None = None) -> Contract:
        """Check on this host what cachekit assumes about Neuron and promises. `cachekit doctor --neuron-contract`.

        It takes ten minutes, in temporary folders; `progress` is told what begins, as `contract.check`. Ctrl-C ends it,
        and what is known by then is returned.

        Args:
            report: A file that gets the answer as well, without secrets: after each step what is known by then.

        Returns:
            What came of each promise and assumption, with all that was printed and left; `good` is false where one
            differs, where there is no Neuron, or where it ended early.

        Raises:
            StoreError: No temporary folder can be made, or the report cannot be written.
        """
        from cachekit.verbs.prove import neuron_contract

        journal = self._journal("doctor")
        path = None if report is None else Path(report)
        return neuron_contract(tell=lambda what: journal.show("contract.check", check=what), report=path)


def _name(recipe: AnyRecipe) -> str:
    found = variant(recipe)
    name = found.recipe.name if isinstance(found.recipe, Recipe) else found.name
    return f"{name} --tiny" if found.tiny else name
