"""`Cache`: every verb as a method. Settings, session and recipe, which verbs share, are opened here, and only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.recipe import Recipe
from cachekit.recipe.load import edited, override_words
from cachekit.store.record import Record
from cachekit.text import typed
from cachekit.verbs import entry as naming
from cachekit.verbs import session as opening

if TYPE_CHECKING:
    from cachekit.compilers import Compiler, Node
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.compilers.prepare import Prepared
    from cachekit.config import Config, Setting
    from cachekit.errors import CachekitError
    from cachekit.events import Journal
    from cachekit.recipe.price import Prices
    from cachekit.remotes.push import Pushed
    from cachekit.store import Store
    from cachekit.store.gc import Collected
    from cachekit.store.index_rows import Listed
    from cachekit.store.notes import Last
    from cachekit.store.verify import Verified
    from cachekit.verbs.attach import Attachment
    from cachekit.verbs.check_build import CheckedBuild
    from cachekit.verbs.coverage import Coverage, CoverageOfAll
    from cachekit.verbs.doctor import Diagnosis
    from cachekit.verbs.export_bundle import Bundled
    from cachekit.verbs.export_cache import Exported
    from cachekit.verbs.forecast import Forecast
    from cachekit.verbs.hub import RemoteContents, Used
    from cachekit.verbs.import_bundle import Unbundled
    from cachekit.verbs.import_cache import Imported
    from cachekit.verbs.lock import CheckedLock, LockFile
    from cachekit.verbs.pins import Named, Pinned
    from cachekit.verbs.planned import Planned, Warmed
    from cachekit.verbs.prove import Contract
    from cachekit.verbs.pull import Outcome
    from cachekit.verbs.remove import Deleted
    from cachekit.verbs.run import Ran
    from cachekit.verbs.session import Session
    from cachekit.verbs.stats import Stats
    from cachekit.verbs.train import Trained
    from cachekit.verbs.warm_matrix import WarmedAll
    from cachekit.verbs.why import Compared, Side, Why
    from cachekit.verbs.why_run import RunWhy

Progress = Callable[[dict[str, Any]], None]
Overrides = Mapping[str, Any] | Iterable[str]
AnyRecipe = Recipe | str | Path
AnyEntry = Record | Recipe | str | Path
Price = float | Sequence[str]


def load_recipe(recipe: AnyRecipe, overrides: Overrides = (), *, tiny: bool = False) -> Recipe:
    """A recipe by the path of its file or a name of `cachekit zoo`; or one that is loaded already, with changes.

    Args:
        recipe: Path, name, or recipe.
        overrides: Fields to change: `{"training.max_seq_length": 128}`, or as `--set` takes them.
        tiny: The recipe in small, as `--tiny`; the overrides on top of that.

    Raises:
        UnknownNameError: No recipe is called that.
        RecipeError: It does not fit the schema.
        UsageError: An override is malformed.
    """
    words = override_words(overrides)
    if not isinstance(recipe, Recipe):
        return naming.load_recipe(str(recipe), words, tiny=tiny)[0]
    if tiny:
        from cachekit.recipe import tiny as small

        return small.in_small(words, partial(edited, recipe))
    return edited(recipe, words) if words else recipe


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A cache, with the options that all functions share; each function of the library is a method of it, too.

    It is frozen, and opens and reads nothing before a method is called.

    Attributes:
        home: The store's folder, as `--home`; here and below, what the settings say where nothing is given.
        compiler: `auto`, `inductor` or `neuron`, as `--compiler`.
        cache: The caches in order, and what may be done there, as `--cache`: `local:rw,hf://team/cache:r`.
        wait: Seconds to wait for another process that compiles the same, as `--wait`.
        offline: Open no connection, as `--offline`.
        trust_all: Use what anybody made, as `--trust-all`: a compiler cache is code, which runs on this machine.
        toolchain: Plan, pull, lock and export for a release of Neuron's SDK; as `--toolchain`.
        target: Likewise for a chip, `trn1`; as `--target`.
        instance: Likewise for a machine type; as `--instance`.
        nnodes: Machines that train together, as `--nnodes`: the recipe's `parallel.nodes`.
        node_rank: This machine's number among them, from 0.
        master_addr: The first machine's address.
        master_port: The port there.
        progress: Called with each event of a run, a dict with `event`, `time`, `run` and more, from the thread that
            the event happens in. An exception that it raises ends the run.
    """

    home: str | Path | None = None
    compiler: str | None = None
    cache: str | None = field(default=None, repr=False)  # an address may hold a token that does not belong there
    wait: float | None = None
    offline: bool = False
    trust_all: bool = False
    toolchain: str | None = None
    target: str | None = None
    instance: str | None = None
    nnodes: int | None = None
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = 29500
    progress: Progress | None = None

    # What is shared

    @contextmanager
    def session(
        self,
        recipe: Recipe | None = None,
        *,
        verb: str = "",
        preferred: str = "",
    ) -> Iterator[Session]:
        """The store, the remotes, the compiler and the journal, for calling `cachekit.verbs` oneself.

        Args:
            recipe: Chooses the compiler, where the settings leave it open.
            verb: What is done. `warm`, `train`, `run`, `import`, `pull`, `push`, `gc`, `rm` and `verify` leave a
                journal in the store.
            preferred: The compiler where there is no recipe, and the settings leave it open.

        Raises:
            UsageError: A setting cannot be used.
            CompilerUnavailableError: The compiler is not on this machine.
            StoreError: The store's place is taken by something else.
        """
        with self._open(recipe, verb=verb, preferred=preferred) as opened:
            yield opened

    @contextmanager
    def _open(
        self,
        recipe: Recipe | None,
        *,
        verb: str = "",
        preferred: str = "",
        toolchain: str | None = None,
        instance: str | None = None,
    ) -> Iterator[Session]:
        """A session, of a machine that was worked out already."""
        with opening.open_session(
            self._config(),
            recipe,
            verb,
            compiler=preferred,
            offline=self.offline,
            toolchain=toolchain,
            instance=instance,
            node=self._node(),
            follow=self._follow,
        ) as opened:
            yield opened

    def open_store(self) -> Store:
        """The local store, for looking into: `records()`, `lookup(...)`, `reading(file)`.

        Raises:
            StoreError: The store's place is taken by something else, or closed to this user.
        """
        from cachekit.events import Journal

        journal = Journal(None, "")
        if self.progress is not None:
            journal.listen(self.progress)
        return opening.store_at(self._config().home, journal)

    def settings(self) -> tuple[Setting, ...]:
        """Every setting, with its value and where it came from. `cachekit config`."""
        return tuple(self._config().settings)

    def _config(self) -> Config:
        return opening.load_config(self.home, self.compiler, self.wait, self.cache, trust_all=self.trust_all)

    def _node(self) -> Node | None:
        if self.nnodes is None and not self.node_rank and not self.master_addr:
            return None
        from cachekit.compilers import Node

        return Node(self.node_rank, self.master_addr, self.master_port)

    @contextmanager
    def _follow(self, journal: Journal) -> Iterator[None]:
        if self.progress is not None:
            journal.listen(self.progress)
        yield

    def _elsewhere(self) -> Elsewhere:
        """The machine that is meant, if not this one."""
        from cachekit.compilers.elsewhere import Elsewhere

        setting = self._config().compiler
        return Elsewhere(self.toolchain or "", self.target or "", self.instance or "", setting)

    def _load(self, recipe: AnyRecipe, overrides: Overrides, *, tiny: bool) -> Recipe:
        return load_recipe(recipe, self._overrides(overrides), tiny=tiny)

    def _overrides(self, overrides: Overrides) -> list[str]:
        words = list(override_words(overrides))
        return words if self.nnodes is None else [*words, f"parallel.nodes={self.nnodes}"]

    def _source(self, recipe: AnyRecipe, overrides: Overrides, *, tiny: bool, machine: bool = False) -> str:
        """A recipe as the user would type it again, with what else the next command must be told to mean the same."""
        if isinstance(recipe, Recipe):
            return ""
        said = {"--home": self.home, "--compiler": self.compiler}
        if machine:
            said |= {"--toolchain": self.toolchain, "--target": self.target, "--instance": self.instance}
        return typed(str(recipe), self._overrides(overrides), said, tiny=tiny)

    @contextmanager
    def _prepared(
        self,
        recipe: AnyRecipe,
        overrides: Overrides,
        verb: str,
        *,
        tiny: bool,
        guess: bool = False,
        machine: bool = False,
    ) -> Iterator[tuple[Session, Prepared]]:
        """A recipe on the machine that is meant, with the session of a run that is about it.

        Args:
            recipe: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See there.
            verb: See `session`.
            tiny: See there.
            guess: Take any machine that fits the toolchain, before none.
            machine: What is to be typed again names the machine.
        """
        from cachekit.compilers.prepare import prepare

        loaded = self._load(recipe, overrides, tiny=tiny)
        there = self.toolchain or self.target or self.instance
        instance = self._elsewhere().machine(loaded, guess=guess) if there else None
        with self._open(loaded, verb=verb, toolchain=self.toolchain, instance=instance) as opened:
            yield opened, prepare(loaded, opened.compiler, self._source(recipe, overrides, tiny=tiny, machine=machine))

    def _named(self, entry: AnyEntry, overrides: Overrides = (), *, tiny: bool = False) -> Named:
        """The key that somebody means, or its first digits; a recipe's on the machine that is meant."""
        from cachekit.compilers.prepare import prepare
        from cachekit.verbs.pins import Named

        if isinstance(entry, Record):
            return Named(entry.key, entry.recipe)
        if isinstance(entry, Recipe):
            loaded = self._load(entry, overrides, tiny=tiny)
            return Named(prepare(loaded, self._elsewhere().select(loaded)).key, entry.name)
        text = str(entry)
        key = naming.key_of(self._config(), text, self._overrides(overrides), tiny=tiny, machine=self._elsewhere())
        return Named(key) if key == text.lower() else Named(key, text)

    # Questions: they fetch nothing and change nothing

    def plan(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        price: Price = (),
    ) -> Planned:
        """What a recipe will find and what must compile; runs nothing, imports no torch. `cachekit plan`.

        Args:
            recipe: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See there.
            tiny: See there.
            price: Dollars for an hour: 0.40, or `["trn1.2xlarge=0.40"]`.

        Raises:
            CachekitError: The recipe, its architecture, or the compiler cannot be had; see `session`.
        """
        from cachekit.data.shapes import check_data
        from cachekit.verbs.plan import plan
        from cachekit.verbs.planned import planned

        priced = self._prices(price)
        with self._prepared(recipe, overrides, "plan", tiny=tiny) as (opened, prepared):
            check_data(prepared.recipe, absent_ok=True)
            made = plan(prepared, opened.store, opened.remotes, reuse_bytes=opened.config.reuse_bytes)
        return planned(made, priced.of(prepared.fingerprint.instance))

    def plan_all(
        self,
        recipes: Sequence[AnyRecipe],
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        price: Price = (),
    ) -> Forecast:
        """What many recipes will find and compile, and what an upgrade makes cold. `cachekit plan A B`.

        One that cannot be planned stops no other: the answer's `error()` tells of it. For the arguments see `plan`.
        """
        from cachekit.compilers.prepare import again, prepare
        from cachekit.data.shapes import check_data
        from cachekit.verbs.forecast import forecast

        where, priced = self._elsewhere(), self._prices(price)

        def prepared(recipe: AnyRecipe) -> Prepared:
            loaded = self._load(recipe, overrides, tiny=tiny)
            check_data(loaded, absent_ok=True)
            return prepare(loaded, where.select(loaded, guess=True), self._source(recipe, overrides, tiny=tiny))

        def before(now: Prepared) -> list[Prepared]:
            return [again(now, other) for other in where.other_toolchains(now.recipe)]

        wanted = [(one.name if isinstance(one, Recipe) else str(one), partial(prepared, one)) for one in recipes]
        with self.session(verb="plan") as opened:
            return forecast(wanted, opened.store, opened.remotes, before=before, price=priced.of)

    def _prices(self, said: Price) -> Prices:
        from cachekit.recipe import price

        return price.read(_price_words(said))

    def why(self, recipe: AnyRecipe, overrides: Overrides = (), *, tiny: bool = False) -> Why:
        """Why a recipe misses: the nearest record, here or on a remote, and what differs. `cachekit why RECIPE`.

        For the arguments see `plan`.

        Returns:
            Its `changes`, each with `name`, the old and the new value, and a sentence; on a hit none.

        Raises:
            CachekitError: As for `plan`.
        """
        from cachekit.data.shapes import check_data
        from cachekit.verbs.why import why

        with self._prepared(recipe, overrides, "why", tiny=tiny) as (opened, prepared):
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

    def compare(self, old: AnyEntry, new: AnyEntry, overrides: Overrides = (), *, tiny: bool = False) -> Compared:
        """What differs between two recipes or records. `cachekit why A B`.

        Args:
            old: A recipe; or a record, the first digits of its key, here or on a remote, or a JSON file with one.
            new: Likewise; a recipe is taken on the machine that is meant.
            overrides: Of the new one, where it is a recipe; so `tiny`. See `load_recipe`.
            tiny: See there.

        Raises:
            UnknownNameError: A name is no recipe, and no record's or several records' beginning.
            UsageError: A file holds no record.
        """
        from cachekit.compilers.elsewhere import Elsewhere
        from cachekit.verbs.why import compare

        with self.session(verb="why") as opened:
            before = self._side(opened, old, (), Elsewhere(compiler=opened.config.compiler), tiny=False)
            return compare(before, self._side(opened, new, overrides, self._elsewhere(), tiny=tiny))

    def _side(self, session: Session, one: AnyEntry, overrides: Overrides, where: Elsewhere, *, tiny: bool) -> Side:
        from cachekit.compilers.prepare import prepare
        from cachekit.verbs import why as sides

        if isinstance(one, Record):
            return sides.of_record(one)
        if not isinstance(one, Recipe):
            if sides.is_file_of_one(str(one)):
                return sides.of_file(Path(one).expanduser())
            if sides.is_record(str(one)):
                return sides.of_key(session, str(one))
        loaded = self._load(one, overrides, tiny=tiny)
        machine = {"--toolchain": where.toolchain, "--target": where.target, "--instance": where.instance}
        source = "" if isinstance(one, Recipe) else typed(str(one), self._overrides(overrides), machine, tiny=tiny)
        return sides.of_recipe(prepare(loaded, where.select(loaded), source))

    def why_run(self, run: str = "last") -> RunWhy:
        """What a run compiled although the plan said hit, and why. `cachekit why --run`.

        Args:
            run: `last`, or the beginning of a run's name.

        Raises:
            UnknownNameError: There is no such run, or there are several.
        """
        from cachekit.verbs.why_run import why_run

        return why_run(self.open_store(), run)

    def coverage(self, recipe: AnyRecipe, overrides: Overrides = (), *, tiny: bool = False) -> Coverage:
        """What of a recipe is cached, and where; what failed, and what is missing. `cachekit coverage`.

        For the arguments see `plan`.

        Returns:
            Its `units`, and `whole`, which is true where everything is cached.

        Raises:
            CachekitError: As for `plan`. A remote that cannot be asked is among the notes.
        """
        from cachekit.verbs.coverage import coverage

        with self._prepared(recipe, overrides, "coverage", tiny=tiny) as (opened, prepared):
            return coverage(opened, prepared)

    def coverage_all(
        self,
        recipes: Sequence[AnyRecipe] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
    ) -> CoverageOfAll:
        """What of several recipes is cached; of the whole zoo, where none is named. `cachekit coverage --all`.

        A recipe of the zoo that cannot be used here is a row of its own, and does not hide the others.

        Args:
            recipes: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See there.
            tiny: See there.
        """
        from cachekit.compilers.prepare import prepare
        from cachekit.recipe import zoo
        from cachekit.verbs.coverage import coverage_of_all

        where, names = self._elsewhere(), list(recipes or zoo.recipes())

        def prepared(recipe: AnyRecipe) -> tuple[Compiler, Prepared]:
            loaded = self._load(recipe, overrides, tiny=tiny)
            compiler = where.select(loaded, guess=len(names) > 1)
            return compiler, prepare(loaded, compiler, self._source(recipe, overrides, tiny=tiny))

        with self.session(verb="coverage") as opened:
            every = [(str(one), partial(prepared, one)) for one in names]
            return coverage_of_all(opened, every, skip=not recipes)

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
            price: As for `plan`; figures in dollars are made where it, `cost` or the cache's `instance` is given.
            cost: In dollars, at the price of the cache's `instance`, or this machine's, or trn1.2xlarge's.

        Raises:
            UnknownNameError: There is no such run, or machine type.
            UsageError: That is no day, no period, or no price; or a run and a day are both given.
        """
        from cachekit.recipe import price as prices
        from cachekit.verbs.stats import stats

        said = _price_words(price)
        paid = prices.machine(prices.read(said), self.instance or "") if said or self.instance or cost else None
        return stats(self.open_store().layout, run=run, since=since, by=by, price=paid)

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
        """This machine, what is wrong with its set-up, and what mends it. `cachekit doctor`.

        Settings that cannot be read are among the findings. With `offline` no remote beyond a network is asked.

        Returns:
            The machine, and findings with the name of their check; `good` is true where there is no problem.
        """
        from cachekit.verbs.doctor import checks, examine

        # Whether this process may open connections is nothing to be found out: it was said.
        wanted = [check for check in checks() if not (self.offline and check.name == "offline")]
        with opening.environment(opening.OFFLINE if self.offline else {}):
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

    # What compiles and trains

    def warm(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        require_warm: bool = False,
        recache: bool = False,
    ) -> Warmed:
        """Compile what a recipe's fine-tune needs, once, in a process of its own, and keep it. `cachekit warm`.

        Args:
            recipe: See `load_recipe`; so for `overrides` and `tiny`. `train` without a recipe means this one, in the
                same working directory.
            overrides: See there.
            tiny: See there.
            require_warm: Raise `MissError` instead of compiling.
            recache: Compile although it is stored, and replace it.

        Raises:
            MissError: Something would compile, under `require_warm`.
            WaitedTooLongError: Another process compiles the same beyond the deadline.
            CompileError: The compiler, or the trial run, failed.
            CachekitError: Anything else; see the table of errors.
        """
        from cachekit.recipe import zoo
        from cachekit.store.notes import Last, note_last
        from cachekit.verbs.planned import warmed
        from cachekit.verbs.warm import warm

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        with self._prepared(recipe, overrides, "warm", tiny=tiny) as (opened, prepared):
            done = warm(opened, prepared, recache=recache, require_warm=require_warm)
            if not isinstance(recipe, Recipe):
                place = str(Path(zoo.recipe_path(str(recipe))).absolute())
                last = Last(place, tuple(self._overrides(overrides)), self.compiler or "auto", tiny)
                note_last(opened.store.layout, Path.cwd(), last)
            return warmed(done, following=f"cachekit {typed('train', (), {'--home': self.home})}")

    def warm_all(
        self,
        matrix: str | Path,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        require_warm: bool = False,
        recache: bool = False,
        dry_run: bool = False,
    ) -> WarmedAll:
        """Warm every recipe of a list; what fails is told at the end. `cachekit warm --matrix`.

        Args:
            matrix: A YAML file with a list of `{recipe, set}`.
            overrides: For every entry, on top of its own.
            tiny: See `load_recipe`.
            require_warm: See `warm`.
            recache: See there.
            dry_run: Only plan each.

        Returns:
            What became of each; `error()` is what to raise where one failed.
        """
        from cachekit.recipe.matrix import MatrixEntry, read
        from cachekit.verbs.warm_matrix import warm_matrix

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        entries = read(Path(matrix))

        def one(entry: MatrixEntry) -> Planned:
            given = [*entry.overrides, *override_words(overrides)]
            if dry_run:
                return self.plan(entry.recipe, given, tiny=tiny)
            return self.warm(entry.recipe, given, tiny=tiny, require_warm=require_warm, recache=recache)

        def tell(number: int, entry: MatrixEntry) -> None:
            if self.progress is not None:
                self.progress({"event": "matrix.entry", "number": number, "of": len(entries), "name": entry.name})

        return warm_matrix(entries, one, tell, dry_run=dry_run)

    def check_build(self, recipe: AnyRecipe, overrides: Overrides = (), *, tiny: bool = False) -> CheckedBuild:
        """Compile a recipe although it is warm, compare, and keep nothing of it. `cachekit warm --check-build`.

        For the arguments see `load_recipe`.

        Returns:
            What is the same and what differs; `error()` is what to raise where anything does.

        Raises:
            MissError: There is no record to compare with.
            IntegrityError: The record's bytes are not those that it names.
            CompileError: The compiler, or the trial run, failed.
        """
        from cachekit.verbs.check_build import check_build

        with self._prepared(recipe, overrides, "warm", tiny=tiny) as (opened, prepared):
            return check_build(opened, prepared)

    def last(self) -> Last:
        """The recipe that was warmed last in this working directory.

        Raises:
            UsageError: None was.
        """
        from cachekit.store.notes import last_in

        return last_in(self.open_store().layout, Path.cwd())

    def train(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        output_dir: str | Path | None = None,
        resume: str = "",
        tiny: bool = False,
        require_warm: bool = False,
        recache: bool = False,
    ) -> Trained:
        """Run a recipe's fine-tune in a process of its own; what is not warm is warmed first. `cachekit train`.

        Args:
            recipe: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See there.
            output_dir: Where checkpoints and the model go; `training.output_dir` or `runs/<recipe>` by default.
            resume: `auto`, or a checkpoint's path.
            tiny: See `load_recipe`.
            require_warm: Raise `MissError` instead of compiling.
            recache: Compile anew first.

        Raises:
            TrainingError: The fine-tune failed.
            CachekitError: As for `warm`.
        """
        from cachekit.verbs.train import check_output, output_folder, train

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        with self._prepared(recipe, overrides, "train", tiny=tiny) as (opened, prepared):
            target = output_folder(prepared.recipe, Path(output_dir) if output_dir else None)
            check_output(target)
            return train(opened, prepared, output_dir=target, resume=resume, recache=recache, require_warm=require_warm)

    def run(
        self,
        command: Sequence[str],
        *,
        ingredients: Mapping[str, str] | None = None,
        soft_args: Sequence[str] = (),
        require_warm: bool = False,
        recache: bool = False,
        cwd: str | Path | None = None,
    ) -> Ran:
        """Run a command of your own with what it compiled before. `cachekit run`.

        Its output goes where this process's goes; signals that reach this process are passed on to it, so call this
        from the main thread.

        Args:
            command: Program and arguments: `["torchrun", "--nproc_per_node", "2", "train.py"]`.
            ingredients: Something else that shapes its graphs.
            soft_args: Names of arguments that reach no graph.
            require_warm: Raise `MissError` instead of compiling.
            recache: Restore nothing, and replace what there was.
            cwd: Its working directory.

        Returns:
            What became of it; `code` is its exit code, and one that is not 0 raises nothing.

        Raises:
            MissError: Something would compile, or began to, under `require_warm`.
            UsageError: There is no such program or script.
        """
        from cachekit.compilers.command import compiler_of, prepare_command
        from cachekit.errors import UsageError
        from cachekit.recipe import command as command_line
        from cachekit.verbs.run import run

        if not command:
            raise UsageError("there is no command to run", hint='run(["python", "train.py"])')
        naming.check_contradiction(require_warm=require_warm, recache=recache)
        parsed = command_line.read(list(command))
        place = Path(cwd) if cwd else None
        with self.session(verb="run", preferred=compiler_of(parsed, place)) as opened:
            prepared = prepare_command(parsed, opened.compiler, declared=ingredients, soft=soft_args, cwd=place)
            return run(opened, prepared, parsed, require_warm=require_warm, recache=recache, cwd=place)

    def plan_run(
        self,
        command: Sequence[str],
        *,
        ingredients: Mapping[str, str] | None = None,
        soft_args: Sequence[str] = (),
        cwd: str | Path | None = None,
    ) -> Planned:
        """What a command of your own will find. `cachekit run --dry-run`.

        For the arguments see `run`.
        """
        from cachekit.compilers.command import compiler_of, prepare_command
        from cachekit.recipe import command as command_line
        from cachekit.verbs.plan import plan
        from cachekit.verbs.run import foreseen

        parsed = command_line.read(list(command))
        place = Path(cwd) if cwd else None
        with self.session(verb="plan", preferred=compiler_of(parsed, place)) as opened:
            prepared = prepare_command(parsed, opened.compiler, declared=ingredients, soft=soft_args, cwd=place)
            return foreseen(plan(prepared, opened.store, opened.remotes))

    def attach(
        self,
        name: str = "",
        *,
        ingredients: Mapping[str, str] | None = None,
        soft_args: Sequence[str] = (),
        require_warm: bool = False,
        recache: bool = False,
    ) -> Attachment:
        """Give this very process the cache of its script, and keep what compiles in it: for a loop of your own.

        Call it before anything compiles; it is late otherwise, does nothing, and says so. It changes this process's
        environment (`TORCHINDUCTOR_CACHE_DIR` and its like, or Neuron's) until it is closed, which happens at exit, or
        at the end of a `with` block. What compiled is kept then, and whenever `keep` is called. A process that is
        killed keeps what was kept before. `cachekit run` does the same from outside and survives that, too.

        The key is made as by `cachekit run`: of the script, the modules beside it, and its arguments. Processes of one
        run (WORLD_SIZE) have a key each.

        Args:
            name: Instead of the script, where there is none (a notebook) or it changes all the time; with
                `ingredients`, it is all of the key that is not the machine's.
            ingredients: Something else that shapes the graphs.
            soft_args: Names of arguments that reach no graph.
            require_warm: Raise `MissError` where there is no record, and in `check()` where something compiled.
            recache: Restore nothing, and replace what there was.

        Raises:
            MissError: There is no record, under `require_warm`.
            UsageError: The script cannot be found out, and no name is given.
        """
        import atexit

        from cachekit.compilers.command import prepare_command
        from cachekit.verbs.attach import Attachment, this_command, world

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        command = this_command(name)
        declared = {**(ingredients or {}), **world()}
        with ExitStack() as stack:
            opened = stack.enter_context(self.session(verb="run", preferred="auto"))
            prepared = prepare_command(command, opened.compiler, declared=declared, soft=soft_args)
            attachment = Attachment(opened, prepared, command, stack, require_warm=require_warm, recache=recache)
            attachment.begin()
            attachment.own(stack.pop_all())
        atexit.register(attachment.close)
        return attachment

    # What a team shares

    def pull(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        dry_run: bool = False,
        guess: bool = False,
    ) -> Outcome:
        """Fetch what a recipe needs from the remotes into the store. `cachekit pull`.

        Args:
            recipe: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See there.
            tiny: See there.
            dry_run: Only say what would be fetched.
            guess: Where only a toolchain is said, take any machine that fits it, before none.

        Returns:
            What became of it; `state` is `absent` where no cache has it.

        Raises:
            UsageError: No remote may be read.
            RemoteError, AuthError: A cache has it, and it could not be fetched.
            IntegrityError: What a cache has is not what its record says.
        """
        from cachekit.verbs.pull import pull_recipe

        verb = "" if dry_run else "pull"
        with self._prepared(recipe, overrides, verb, tiny=tiny, guess=guess, machine=True) as (opened, prepared):
            opened.remotes.need("read")
            return pull_recipe(opened, prepared, dry_run=dry_run)

    def pull_modules(self, names: Sequence[str] = (), *, all_of: str = "", dry_run: bool = False) -> list[Outcome]:
        """Fetch modules by their names, without a record. `cachekit pull --module`.

        Args:
            names: Of modules.
            all_of: Every finished module of a compiler's folder: `neuronxcc-<version>`.
            dry_run: Only say what would be fetched.

        Raises:
            UsageError: No remote may be read; a name is of no compiler's module.
        """
        from cachekit.verbs.pull import pull_modules

        with self.session(verb="" if dry_run else "pull") as opened:
            opened.remotes.need("read")
            return pull_modules(opened, names, all_of, dry_run=dry_run)

    def push(
        self,
        entries: Sequence[AnyEntry] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        pending: bool = False,
        public: bool = False,
        replace: bool = False,
        recheck: bool = False,
        dry_run: bool = False,
    ) -> list[Pushed]:
        """Put records of the store on the remotes that may be written. `cachekit push`.

        Args:
            entries: Records, recipes by value, path or name, or keys by their first digits; all records by default.
            overrides: Of recipes among them; so `tiny`. See `load_recipe`.
            tiny: See there.
            pending: Only what could not be pushed before.
            public: On a cache that anybody can read, too.
            replace: In the place of others of the same keys.
            recheck: Read what lies there, too, and put what is damaged there again.
            dry_run: Only say what would be sent.

        Returns:
            For each cache what became of it; a failure stands in `error`.

        Raises:
            UsageError: No remote may be written.
            UnknownNameError: A key names no record.
        """
        from cachekit.verbs.push import chosen, push_records

        with self.session(verb="" if dry_run else "push") as opened:
            opened.remotes.need("written")
            keys = [self._named(entry, overrides, tiny=tiny).key for entry in _listed(entries)]
            records = chosen(opened, keys, pending=pending)
            return push_records(opened, records, public=public, replaces=replace, dry_run=dry_run, recheck=recheck)

    def hub_create(self, repo: str, *, dataset: bool = False, public: bool = False) -> Used:
        """Make a private cache repo on the Hugging Face Hub, and use it in this directory. `cachekit hub create`.

        Raises:
            UsageError: No repo can be called that; it is public already; or `cachekit.toml` names another cache.
            RemoteError, AuthError: The Hub cannot be asked, or refuses.
        """
        from cachekit.verbs import hub

        return hub.create(repo, Path.cwd(), kind="dataset" if dataset else "model", public=public)

    def hub_use(self, repo: str, *, dataset: bool = False, read_only: bool = False) -> Used:
        """Name a cache repo in this directory's `cachekit.toml`. `cachekit hub use`.

        Raises:
            UsageError: The file names another one, or cannot be written.
            RemoteError, AuthError: The Hub cannot be asked, or has no such repo for this token.
        """
        from cachekit.verbs import hub

        return hub.use(repo, Path.cwd(), kind="dataset" if dataset else "model", may="r" if read_only else "rw")

    def remote_contents(self) -> list[RemoteContents]:
        """How many records each remote holds, by compiler and model. `cachekit hub ls`.

        Raises:
            UsageError: No remote may be read.
            RemoteError, AuthError: One cannot be asked.
        """
        from cachekit.verbs import hub

        with self.session(verb="hub") as opened:
            opened.remotes.need("read")
            return hub.contents(opened.remotes)

    # What looks after the store

    def records(self) -> list[Record]:
        """All readable records of the store, newest first; their files are not checked. See `ls`."""
        found = self.open_store().records()
        return sorted(found, key=lambda record: record.provenance.created, reverse=True)

    def ls(self) -> list[Listed]:
        """A row for each record of the store, newest first; the records are not read. `cachekit store ls`."""
        return self.open_store().listed()

    def keys(self, beginning: str = "") -> list[str]:
        """Keys of the store's records, from the names of their files."""
        from cachekit.store.layout import Layout

        names = (path.stem for path in Layout(self._config().home).records.rglob(f"{beginning}*.json"))
        return sorted(name for name in names if len(name) == 64)  # noqa: PLR2004 - digits of a SHA-256

    def show(self, key: str) -> dict[str, Any]:
        """A record whole: ingredients, modules, who made it, and whether it is whole. `cachekit store show`.

        Raises:
            UnknownNameError: No key begins like that, or several do.
        """
        from cachekit.verbs.inspect import show

        return show(self.open_store(), key)

    def verify(self, *, quick: bool = False, repair: bool = False) -> Verified:
        """Check every record and every file of the store. `cachekit store verify`.

        Args:
            quick: Only look which files there are, and how large they are; hash nothing.
            repair: Bring back what is bad from the remotes.

        Returns:
            What was looked at, what is bad, and what became of it. Nothing is raised for what is bad: see `good` and
            `error()`.

        Raises:
            StoreError: The store cannot be read; or written, to repair.
        """
        from cachekit.verbs.verify import verify

        with self.session(verb="verify" if repair else "") as opened:
            return verify(opened, quick=quick, repair=repair)

    def gc(
        self,
        *,
        max_size: int | str | None = None,
        max_age: float | str | None = None,
        of_compiler: str = "",
        dry_run: bool = False,
    ) -> Collected:
        """Remove what no record names, and records beyond limits. `cachekit store gc`.

        Pinned records stay, and those in use. Without limits those of the settings count, `gc_max_size` and
        `gc_max_age`; with `of_compiler` only limits that are given here.

        Args:
            max_size: Bytes of the whole store, or `50GB`: what was used longest ago goes until it fits.
            max_age: Seconds, or `30d`: what was not used for so long goes.
            of_compiler: Only records of compilers whose folder or version fits this pattern, `neuronxcc-2.2*`; all of
                them, where there is no limit.
            dry_run: Only say what would go.

        Returns:
            What went, file by file, and what stayed.

        Raises:
            UsageError: A limit is no size, or no time.
            WaitedTooLongError: Somebody writes to the store all the time.
            StoreError: The store cannot be read or written.
        """
        from cachekit.verbs.gc import gc, keep

        limits = keep(self.home, max_size, max_age, of_compiler)
        with self.session(verb="" if dry_run else "gc") as opened:
            return gc(opened, limits, dry_run=dry_run)

    def rm(
        self,
        *entries: AnyEntry,
        overrides: Overrides = (),
        tiny: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[Deleted]:
        """Remove records from the store, with what only they name. Remotes keep theirs. `cachekit store rm`.

        Args:
            *entries: Records, recipes by value, path or name, or keys by their first digits.
            overrides: Of recipes among them; so `tiny`. See `load_recipe`.
            tiny: See there.
            force: Pinned ones too, and those in use.
            dry_run: Only say what would go.

        Raises:
            UnknownNameError: One names no record, or several. Nothing was removed.
            UsageError: One is pinned, or in use. Nothing was removed.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.remove import remove

        with self.session(verb="" if dry_run else "rm") as opened:
            keys = [self._named(entry, overrides, tiny=tiny).key for entry in entries]
            return remove(opened, keys, force=force, dry_run=dry_run)

    def pin(self, *entries: AnyEntry, overrides: Overrides = (), tiny: bool = False) -> list[Pinned]:
        """Keep records, whatever limits `gc` has. `cachekit store pin`.

        Args:
            *entries: As for `rm`. A recipe that is not warm yet keeps what is made for it.
            overrides: As for `rm`; so `tiny`.
            tiny: See there.

        Raises:
            UnknownNameError: Digits fit no record, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.pins import pin

        return pin(self.open_store(), [self._named(entry, overrides, tiny=tiny) for entry in entries])

    def unpin(self, *entries: AnyEntry, overrides: Overrides = (), tiny: bool = False) -> list[Pinned]:
        """Let `gc` remove pinned records again. `cachekit store unpin`.

        Args:
            *entries: As for `rm`.
            overrides: As for `rm`; so `tiny`.
            tiny: See there.

        Raises:
            UnknownNameError: Digits fit no pin, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.pins import unpin

        return unpin(self.open_store(), [self._named(entry, overrides, tiny=tiny) for entry in entries])

    def pins(self) -> list[Pinned]:
        """Every pin, in the order of keys. `cachekit store pin --list`."""
        from cachekit.verbs.pins import pins

        return pins(self.open_store())

    # What carries records elsewhere

    def export(
        self,
        output: str | Path,
        entries: Sequence[AnyEntry] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Bundled | Exported:
        """Write records as a bundle, if `output` ends in .tar or is `-`, or else as a Neuron cache. `store export`.

        For the arguments see `export_bundle`.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.export_bundle import is_bundle

        path = local_folder(output)
        if output != "-" and not is_bundle(path, str(output)):
            return self.export_neuron_cache(output, entries, overrides, tiny=tiny, all_of=all_of, dry_run=dry_run)
        file = None if output == "-" else path
        return self.export_bundle(file, entries, overrides, tiny=tiny, all_of=all_of, dry_run=dry_run)

    def export_bundle(
        self,
        output: str | Path | None,
        entries: Sequence[AnyEntry] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Bundled:
        """Write records as one file, for a machine without a network. `cachekit store export NAME.tar`.

        Args:
            output: The file, whatever its name ends in; None is stdout. It appears whole, or not at all; a bundle that
                is there is replaced, anything else is not.
            entries: Records, recipes by value, path or name, or keys by their first digits; all records by default.
            overrides: Of recipes among them; so `tiny`. See `load_recipe`.
            tiny: See there.
            all_of: Instead of entries, all records of a compiler's folder: `neuronxcc-2.21.18209.0`.
            dry_run: Only say what would be in it.

        Raises:
            MissError: A recipe is not in the store. Nothing was written; so below.
            UnknownNameError: A key names no record, or several; there are none.
            IntegrityError: A record of the store is not whole.
            UsageError: The file cannot be written, or something else lies there.
        """
        from cachekit.verbs.export_bundle import chosen, export_bundle

        with self._exporting(entries, overrides, all_of, tiny=tiny) as (opened, keys):
            records = chosen(opened.store, keys, all_of)
            return export_bundle(opened, records, None if output is None else Path(output), dry_run=dry_run)

    def export_neuron_cache(
        self,
        folder: str | Path,
        entries: Sequence[AnyEntry] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Exported:
        """Write records' modules as a cache of Neuron's own, which optimum-neuron reads, too: `cachekit store export`.

        Args:
            folder: The cache's root, as a path or `file://…`; made if need be. It may be in use: finished modules that
                are there stay, locked ones are left alone.
            entries: As for `export_bundle`; all of Neuron's records by default.
            overrides: See there; so for the rest.
            tiny: See there.
            all_of: See there.
            dry_run: Only say what would be written.

        Returns:
            What became of each module. Nothing is raised for modules that are damaged in the store, or that could not
            be put there: `error()` is what to raise.

        Raises:
            MissError: A recipe is not in the store. Nothing was written.
            UnknownNameError: A key names no record, or several; there are none of Neuron's.
            UsageError: A record is not of Neuron's, or the folder cannot be written.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.export_cache import export_cache

        place = local_folder(folder)
        with self._exporting(entries, overrides, all_of, tiny=tiny) as (opened, keys):
            return export_cache(opened.store, place, keys=keys, compiler=all_of, dry_run=dry_run)

    @contextmanager
    def _exporting(
        self, entries: Sequence[AnyEntry], overrides: Overrides, all_of: str, *, tiny: bool
    ) -> Iterator[tuple[Session, list[str]]]:
        """A session, and the keys of what is to be exported, which is there where it is a recipe's."""
        from cachekit.errors import UsageError
        from cachekit.verbs.export_bundle import check_warm

        if entries and all_of:
            raise UsageError("what to export is not clear", hint="name entries, or all_of")
        with self.session() as opened:
            keys = []
            for entry in _listed(entries):
                named = self._named(entry, overrides, tiny=tiny)
                if named.recipe and not isinstance(entry, Record):
                    source = self._source(entry, overrides, tiny=tiny) or named.recipe
                    check_warm(opened.store, named.key, source, self._machine_words())
                keys.append(named.key)
            yield opened, keys

    def _machine_words(self) -> list[str]:
        said = {"--toolchain": self.toolchain, "--target": self.target, "--instance": self.instance}
        return [word for option, value in said.items() if value for word in (option, value)]

    def import_(self, source: str | Path, *, dry_run: bool = False) -> Unbundled | Imported:
        """Take a bundle, or the finished modules of a cache of Neuron's own. `cachekit store import`.

        Args:
            source: A file is a bundle, `-` one on stdin, a folder a cache.
            dry_run: See `import_bundle`.
        """
        from cachekit.disk import local_folder
        from cachekit.errors import UsageError

        if source == "-":
            return self.import_bundle(None, dry_run=dry_run)
        path = local_folder(source)
        if path.exists() and not path.is_dir():
            return self.import_bundle(path, dry_run=dry_run)
        if path.suffix == ".tar" and not path.exists():
            raise UsageError(f"there is no file {path}", hint="name a bundle of `cachekit store export`")
        return self.import_neuron_cache(path, dry_run=dry_run)

    def import_bundle(self, bundle: str | Path | None, *, dry_run: bool = False) -> Unbundled:
        """Take the records of a bundle into the store. `cachekit store import NAME.tar`.

        Every byte of it is compared before any of it becomes visible.

        Args:
            bundle: The file; None is stdin.
            dry_run: Only compare it, and say what would be taken.

        Returns:
            Its `records`, each with what became of it.

        Raises:
            IntegrityError: It is no bundle, or not whole. Nothing was taken.
            UsageError: It cannot be read, or a later cachekit made it.
            StoreError: The store cannot be written, or has no room.
        """
        from cachekit.verbs.import_bundle import import_bundle, opened

        path = None if bundle is None else Path(bundle)
        with opened(path) as (source, name), self.session(verb="" if dry_run else "import") as session:
            return import_bundle(session, source, name, dry_run=dry_run)

    def import_neuron_cache(self, folder: str | Path, *, dry_run: bool = False) -> Imported:
        """Take the finished modules of a cache of Neuron's own into the store. `cachekit store import FOLDER`.

        The cache stays as it is, and may be in use. What is failed, locked, unfinished or damaged is left.

        Args:
            folder: Its root, or one compiler's folder in it, as a path or `file://…`.
            dry_run: Only say what would be taken.

        Returns:
            What was taken, by compiler, and what was `left`, and why.

        Raises:
            UsageError: The folder cannot be read, or holds no Neuron cache.
            StoreError: The store cannot be written.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.import_cache import import_into

        place = local_folder(folder)
        with self.session(verb="" if dry_run else "import") as opened:
            return import_into(opened, place, dry_run=dry_run)

    def lock(
        self,
        recipes: str | Path | Sequence[str | Path] = (),
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        lock_file: str | Path | None = None,
        dry_run: bool = False,
    ) -> LockFile:
        """Pin the exact artifacts of recipes in the project's lock file. `cachekit store lock`.

        Args:
            recipes: Paths or names, which is what the file says of them; by default all that are locked already.
            overrides: See `load_recipe`; so for `tiny`.
            tiny: See there.
            lock_file: Another than the nearest `cachekit.lock`.
            dry_run: Write nothing.

        Returns:
            What was locked; those of it that no remote has are in `unshared`.

        Raises:
            MissError: A recipe is not warm. Nothing was written.
            UsageError: The file cannot be read or written, or locks nothing yet.
            RemoteError, AuthError: A remote could not be asked.
        """
        from cachekit.verbs.lock import lock_recipes

        named = [recipes] if isinstance(recipes, str | Path | Recipe) else recipes
        return lock_recipes(
            self._open,
            _lock_file(lock_file),
            _names(*named),
            override_words(overrides),
            self._elsewhere(),
            tiny=tiny,
            dry_run=dry_run,
        )

    def check_lock(self, *recipes: str | Path, lock_file: str | Path | None = None) -> CheckedLock:
        """Whether recipes changed since they were locked. `cachekit store lock --check`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: See `lock`.

        Returns:
            Each entry with its `changes`; `error()` is what to raise where one does not fit any more.

        Raises:
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: It does not lock one of these.
        """
        from cachekit.verbs.lock import check_lock

        compiler = self._config().compiler
        return check_lock(self._open, _lock_file(lock_file), _names(*recipes), compiler=compiler)

    def pull_locked(
        self,
        *recipes: str | Path,
        lock_file: str | Path | None = None,
        dry_run: bool = False,
        failures: list[CachekitError] | None = None,
    ) -> list[Outcome]:
        """Have exactly what a lock file says in the store. `cachekit pull --locked`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: See `lock`.
            dry_run: Only say what would be fetched.
            failures: Takes the `IntegrityError` instead of it being raised.

        Raises:
            IntegrityError: The locked bytes of one are not to be had; the others were fetched all the same.
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: It does not lock one of these.
            RemoteError, AuthError: What is locked may be on a cache that could not be asked.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.lock import pull_lock

        done, failure = pull_lock(self._open, _lock_file(lock_file), _names(*recipes), dry_run=dry_run)
        if failure and failures is None:
            raise failure
        if failure and failures is not None:
            failures.append(failure)
        return done


def stats_schema() -> dict[str, Any]:
    """The JSON Schema of what `stats` answers."""
    from cachekit.verbs.stats import schema

    return schema()


def is_record(name: str) -> bool:
    """Whether a name is the first digits of a key, or a file with a record: anything else is a recipe's."""
    from cachekit.verbs.why import is_file_of_one, is_record

    return is_record(name) or is_file_of_one(name)


def _price_words(price: Price) -> list[str]:
    return [repr(price)] if isinstance(price, int | float) else list(price)


def _listed(entries: Sequence[AnyEntry]) -> Sequence[AnyEntry]:
    """Entries as they were given.

    Raises:
        TypeError: They are one text, of which each letter would be an entry.
    """
    if isinstance(entries, str):
        raise TypeError(f"entries are a list, not the text {entries!r}")
    return entries


def _names(*recipes: str | Path) -> list[str]:
    from cachekit.errors import UsageError

    if any(isinstance(recipe, Recipe) for recipe in recipes):
        raise UsageError(
            "a lock file names its recipes, and this one is a value",
            hint="give its path, or its name in the zoo, and what is changed as overrides",
        )
    return [str(recipe) for recipe in recipes]


def _lock_file(said: str | Path | None) -> Path:
    from cachekit.store.lock_file import nearest

    return Path(said) if said else nearest()
