"""What runs on the machines of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit import redact, start
from cachekit.api.opened import AnyRecipe, Price, prices, variant
from cachekit.api.runs import Runs
from cachekit.errors import CachekitError, EngineError, SecretError, UnknownNameError, UsageError
from cachekit.recipe.variant import Overrides, Variant
from cachekit.store.layout import Layout
from cachekit.verbs import entry as naming

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.executors.port import Fleet
    from cachekit.recipe.variant import MatrixEntry
    from cachekit.verbs.fleet import FleetLog, FleetPlan, FleetRow, FleetState


class Fleets(Runs):
    """The verbs that have an engine run commands, and ask what became of them.

    An engine is `local`, which is this machine, or `slurm`, or `slurm:PARTITION`, or `ray`, or `ray:CPU=8` with the
    resources of each command: these run `cachekit` with this Python at this path, on a file system that their machines
    share, or as machines of one image have it. `sagemaker:ml.TYPE` runs the `cachekit` of the image that the settings
    name.
    """

    def warm_on(
        self,
        engine: str,
        recipes: str | Path | Sequence[AnyRecipe],
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        jobs: int = 1,
        spot: bool = False,
        max_dollars: float | None = None,
        price: Price = (),
        compile_for: str = "",
        require_warm: bool = False,
        recache: bool = False,
        dry_run: bool = False,
    ) -> FleetState | FleetPlan:
        """Warm recipes on the machines of an engine, and wait until all have ended. `cachekit warm --on`.

        A process that is interrupted leaves the commands running; `fleet_wait` goes on.

        Args:
            engine: See `Fleets`.
            recipes: A list in a file, as for `warm_all`; or recipes, which are files or names.
            overrides: For every entry, on top of its own.
            tiny: Each recipe in small.
            jobs: Machines at once, at most; on `local`, commands.
            spot: Rent machines that may be taken away, where the engine can.
            max_dollars: What all may cost. A command is ended when its share is used up.
            price: See `plan`.
            compile_for: See `warm`; the machines of the engine are then others than those that train.
            require_warm: See `warm`.
            recache: See `warm`.
            dry_run: Only plan: submit nothing, with or without a budget and a shared cache.

        Returns:
            What became of each; `failure()` is what to raise where one failed. With `dry_run`, what would be done.

        Raises:
            UsageError: There is no shared cache, or no budget, for machines that cost money.
            EngineError: The engine is not here, does not answer, or refuses.
        """
        naming.check_contradiction(require_warm=require_warm, recache=recache)
        return self._on(
            engine, "warm", _entries(recipes, overrides), {}, tiny=tiny, jobs=jobs, spot=spot, max_dollars=max_dollars,
            price=price, compile_for=compile_for, require_warm=require_warm, recache=recache, dry_run=dry_run,
        )  # fmt: skip

    def _machines(self, verb: str, recipes: Sequence[Variant], instance: str, config: Config) -> int:
        """On how many machines each command runs: all of a training, and of a trial run that needs all of them.

        Raises:
            UsageError: That differs from recipe to recipe.
        """
        from cachekit.compilers.elsewhere import Elsewhere

        where = Elsewhere(config, self.toolchain or "", self.target or "", instance)
        needed = set()
        for one in recipes:
            with suppress(CachekitError):  # the plan tells of it
                recipe = self._variant(one).load()
                together = recipe.parallel.nodes > 1 and (
                    verb == "train" or where.select(recipe, guess=True).trial_needs_all
                )
                needed.add(recipe.parallel.nodes if together else 1)
        if len(needed) > 1:
            raise UsageError(
                "the list has recipes that need different numbers of machines: "
                f"{' and '.join(map(str, sorted(needed)))}",
                cause="the commands of a list all run on the same number of machines",
                hint="make one list for each number of machines",
            )
        return needed.pop() if needed else 1

    def train_on(
        self,
        engine: str,
        recipe: AnyRecipe,
        *,
        output_dir: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        resume: str = "auto",
        spot: bool = False,
        max_dollars: float | None = None,
        price: Price = (),
        require_warm: bool = False,
        recache: bool = False,
        dry_run: bool = False,
    ) -> FleetState | FleetPlan:
        """Run a recipe's fine-tune on an engine, and wait for its end. `cachekit train --on`.

        It runs on one machine, or on as many as `nnodes` or the recipe says.

        Args:
            engine: See `Fleets`.
            recipe: A file or a name, with changes as a `Variant`.
            output_dir: See `train`; an engine whose machines see none of this one's files has its own.
            checkpoint_dir: Likewise.
            resume: See `train`: a command that the engine starts again goes on from where it was.
            spot: See `warm_on`, for this and what follows.
            max_dollars: Likewise.
            price: Likewise.
            require_warm: Likewise.
            recache: Likewise.
            dry_run: Likewise.

        Raises:
            CachekitError: As for `warm_on`.
        """
        naming.check_contradiction(require_warm=require_warm, recache=recache)
        one = self._variant(recipe)
        said = {"--output-dir": output_dir, "--checkpoint-dir": checkpoint_dir, "--resume": resume}
        return self._on(
            engine, "train", _entries([structs.replace(one, tiny=False)], ()), said, tiny=one.tiny, jobs=1, spot=spot,
            max_dollars=max_dollars, price=price, require_warm=require_warm, recache=recache, dry_run=dry_run,
        )  # fmt: skip

    def _on(
        self,
        engine: str,
        verb: str,
        entries: list[MatrixEntry],
        said: Mapping[str, object],
        *,
        tiny: bool,
        jobs: int,
        spot: bool,
        max_dollars: float | None,
        price: Price,
        compile_for: str = "",
        require_warm: bool,
        recache: bool,
        dry_run: bool,
    ) -> FleetState | FleetPlan:
        from cachekit.executors import registry
        from cachekit.executors.port import FleetUnit
        from cachekit.verbs import fleet

        if self.offline:
            raise UsageError("commands on an engine need the network", hint="leave out --offline")
        if self.node_rank or self.master_addr:
            raise UsageError(
                "an engine sets each machine's rank and the first machine's address",
                hint="leave out --node-rank and --master-addr",
            )
        name, _, queue = engine.partition(":")
        found, config = registry.engine(name), self._config()
        if spot and not found.spot:
            raise UsageError(f"{name} does not rent Spot machines", hint="leave out --spot")
        if max_dollars is not None and not found.rents:
            raise UsageError(f"{name} rents no machines: there is nothing to pay for", hint="leave out --max-dollars")
        lacks, checked = list[str](), {}
        with _needed(lacks, dry_run=dry_run):
            checked = {**found.check(queue, config, verb)}
        answers, machine = not lacks, found.machine(queue)  # a dry run needs no engine that answers
        where = replace(self, instance=compile_for or self.instance or fleet.compiled_for(machine))
        variants = [Variant(one.recipe, one.overrides, tiny) for one in entries]
        nodes = self._machines(verb, variants, where.instance or "", config)
        options = {**checked, "spot": spot, "nodes": nodes}
        first = found.together(nodes, options) if nodes > 1 and answers else ()
        seconds = None
        if not options.get("places"):
            with _needed(lacks, dry_run=dry_run):
                fleet.check_shared(config, found, name)
        doubt = self._doubt(variants, compile_for, config) if compile_for else ""
        named = [(one.name, each) for one, each in zip(entries, variants, strict=True)]
        forecast = where._planned_all(named, price)  # noqa: SLF001 - this one, for the engine's machines
        paid = prices(price).of(machine or self.instance or "")
        least = options.get("shortest", 1)
        with _needed(lacks, dry_run=dry_run):
            seconds = fleet.limit(forecast, paid, found, name, max_dollars, nodes=nodes, least=least)
        if seconds is not None and (longest := options.get("longest")):
            seconds = min(seconds, longest)
        files: dict[str, str] = {}
        if found.places is not None:
            from cachekit.verbs.carry import carried

            if said.get("--output-dir") or said.get("--checkpoint-dir"):
                raise UsageError(
                    f"{name} takes the model from {found.places.model}, and checkpoints from its own folder",
                    hint="leave out --output-dir and --checkpoint-dir",
                )
            if said:
                said = {**said, "--output-dir": found.places.model, "--checkpoint-dir": found.places.checkpoints}
            if answers:
                entries, files = carried(config, entries, found.places, options, tiny=tiny, writes=not require_warm)
        flags = [flag for flag, given in (("--require-warm", require_warm), ("--recache", recache)) if given]
        begins = (*first, *(start.COMMAND if found.places is None else ()))
        own: dict[str, object] = {} if found.places is not None else {"--home": self.home, "--cache": self.cache}
        own |= {
            "--compiler": self.compiler,
            "--wait": self.wait,
            "--trust": self.trust,
            "--for": compile_for or None,
            "--nnodes": nodes if nodes > 1 else self.nnodes,
            "--master-port": self.master_port if nodes > 1 else None,
            **said,
        }
        units = [
            FleetUnit(
                f"{one.name} --tiny" if tiny else one.name,
                (*begins, *self._command(verb, one, own, tiny=tiny), *flags),
            )
            for one in entries
        ]
        layout = Layout(config.home)
        draft = fleet.draft(
            name,
            queue,
            units=[units[number] for number in fleet.order(forecast.plans)],
            jobs=jobs,
            cwd=str(Path.cwd()),
            options=options,
            files=files,
            seconds=seconds,
            layout=layout,
        )
        if dry_run:
            from cachekit.recipe.price import Prices

            request = found.request(draft) if answers else ""
            made = fleet.planned(draft, request, forecast, paid, tuple(lacks))
            # A price without a type is that of the engine's machines.
            typed = {name: one for name, one in prices(price).own.items() if name}
            there = Prices(typed).of(compile_for) if compile_for else None
            return structs.replace(made, compile_for=compile_for, price_there=there, doubt=doubt)
        if error := forecast.unplanned():
            raise error
        tell = self._journal("").show
        return fleet.wait(fleet.submit(layout, draft, found, tell, keep=config.keep_logs), tell)

    def _doubt(self, recipes: Sequence[Variant], instance: str, config: Config) -> str:
        """What nobody has shown of compiling for another instance type; one of which it is impossible is an error."""
        from cachekit.compilers.elsewhere import compile_for
        from cachekit.recipe import zoo

        if self.instance or self.target:
            raise UsageError(
                "--for names the machine that the code is compiled for, and so do --instance and --target",
                hint="leave out --instance and --target; --toolchain says what is installed on the machines",
            )
        said = zoo.toolchain(self.toolchain).compiler if self.toolchain else config.compiler
        doubts = []
        for recipe in (one.load() for one in recipes):
            named = [name for name in (said, recipe.compiler.name) if name != "auto"]
            doubts.append(compile_for(recipe, instance, next(iter(named), "neuron")).doubt)
        return next(iter(doubts), "")

    def fleet_list(self) -> tuple[FleetRow, ...]:
        """All fleets of this user, newest first; no engine is asked. `cachekit fleet ls`."""
        from cachekit.verbs.fleet import listed

        return listed(Layout(self._config().home))

    def fleet_show(self, name: str = "") -> FleetState:
        """What became of a fleet so far. `cachekit fleet show`.

        Args:
            name: Its name, or the beginning of its name; the newest by default. So in all functions.

        Raises:
            UnknownNameError: No fleet is called that.
            EngineError: The engine does not answer.
        """
        from cachekit.verbs.fleet import state

        return state(self._fleet(name))

    def fleet_wait(self, name: str = "") -> FleetState:
        """Wait until a fleet has ended. `cachekit fleet wait`."""
        from cachekit.verbs.fleet import wait

        return wait(self._fleet(name), self._journal("").show)

    def fleet_cancel(self, name: str = "") -> FleetState:
        """Cancel the commands of a fleet, running and waiting. `cachekit fleet cancel`."""
        from cachekit.verbs.fleet import cancel

        cancel(self._fleet(name))
        return self.fleet_show(name)

    def fleet_logs(self, name: str = "", number: int = 0) -> FleetLog:
        """What a command of a fleet printed, by its number from 0. `cachekit fleet logs`.

        Raises:
            UsageError: The fleet has no such command.
        """
        from cachekit.verbs.fleet import logs

        return logs(self._fleet(name), number)

    def _fleet(self, name: str) -> Fleet:
        from cachekit.executors.fleet import one

        return one(Layout(self._config().home), name)

    def _command(self, verb: str, entry: MatrixEntry, options: Mapping[str, object], *, tiny: bool) -> tuple[str, ...]:
        """The command line of an entry on another machine, with the settings that were said here."""
        words = [entry.recipe, *(["--tiny"] if tiny else [])]
        words += [word for text in entry.overrides for word in ("--set", text)]
        words += [word for name, said in options.items() if said is not None for word in (name, str(said))]
        words += ["--trust-all"] if self.trust_all else []
        if any(redact.holds(word) for word in words):  # a fleet's file, and what an engine shows, is no place for it
            raise SecretError(
                f"{entry.name} would carry a secret to an engine, which shows commands to others",
                hint="put it into a variable of the machines' environment, or into a file that they can read",
            )
        return ("cachekit", verb, *words, "--format", "json")


@contextmanager
def _needed(lacks: list[str], *, dry_run: bool) -> Iterator[None]:
    """What nothing is submitted without; a dry run submits nothing, and tells of it."""
    try:
        yield
    except (UsageError, EngineError) as refusal:
        if not dry_run or isinstance(refusal, UnknownNameError | SecretError):
            raise
        lacks.append("; ".join(filter(None, [refusal.said, refusal.hint])))


def _entries(recipes: str | Path | Sequence[AnyRecipe], overrides: Overrides) -> list[MatrixEntry]:
    """What is to be warmed, with the changes for all.

    Raises:
        UsageError: A recipe is a value: another machine cannot read it.
    """
    from cachekit.recipe.variant import MatrixEntry, read_matrix

    changes = Variant("", overrides).words
    if isinstance(recipes, str | Path):
        found = read_matrix(Path(recipes))
        return [MatrixEntry(one.name, one.recipe, (*one.overrides, *changes)) for one in found]
    entries = []
    for one in map(variant, recipes):
        if not one.name:
            raise UsageError(
                "a recipe that is not in a file cannot be sent to another machine", hint="write it to a file"
            )
        words = (*one.words, *changes)
        entries.append(MatrixEntry(" ".join([one.name, *words]), one.name, words))
    return entries
