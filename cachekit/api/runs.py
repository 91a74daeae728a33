"""What compiles and trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit import redact
from cachekit.api.opened import AnyRecipe, prices
from cachekit.api.questions import Questions
from cachekit.recipe.variant import Overrides, Variant
from cachekit.text import typed
from cachekit.verbs import entry as naming

if TYPE_CHECKING:
    from cachekit.compilers.prepare import Prepared
    from cachekit.recipe.command import CommandLine
    from cachekit.store.notes import Last
    from cachekit.verbs.attach import Attachment
    from cachekit.verbs.check_build import CheckedBuild
    from cachekit.verbs.forecast import WarmedAll
    from cachekit.verbs.planned import Planned, Warmed
    from cachekit.verbs.run import Ran
    from cachekit.verbs.session import Session
    from cachekit.verbs.train import Trained


class Runs(Questions):
    """The verbs that run a compiler, or a command that does.

    In all of them `require_warm` raises `MissError` instead of compiling, and `recache` compiles although it is stored,
    and replaces what there was.
    """

    def warm(
        self, recipe: AnyRecipe, *, compile_for: str = "", require_warm: bool = False, recache: bool = False
    ) -> Warmed:
        """Compile what a recipe's fine-tune needs, once, in a process of its own, and keep it. `cachekit warm`.

        `cachekit train` without a recipe means this one, in the same working directory.

        Args:
            recipe: See `plan`.
            compile_for: An instance type of the registry that this machine, which has no device, compiles for.
            require_warm: See `Runs`.
            recache: See `Runs`.

        Raises:
            UsageError: Nothing compiles for that instance type here, with the reason.
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
        if compile_for:
            with self._compiling_for(recipe, compile_for) as (compiler, one):
                return replace(self, compiler=compiler).warm(one, require_warm=require_warm, recache=recache)
        with self._prepared(recipe, "warm") as (opened, prepared):
            _tell_doubts(opened, prepared)
            done = warm(opened, prepared, recache=recache, require_warm=require_warm)
            if (one := self._variant(recipe)).name:
                place = str(Path(zoo.recipe_path(one.name)).absolute())
                words = tuple(word for word in one.words if not redact.holds(word))  # a note is a file
                last = Last(place, words, self.compiler or "auto", one.tiny)
                note_last(opened.store.layout, Path.cwd(), last)
            verb, which = ("push", {}) if "device" in prepared.fingerprint.lacks else ("train", self._which())
            return warmed(done, following=f"cachekit {typed(verb, (), self._where() | which)}")

    def warm_all(
        self,
        matrix: str | Path,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        compile_for: str = "",
        require_warm: bool = False,
        recache: bool = False,
        dry_run: bool = False,
    ) -> WarmedAll:
        """Warm every recipe of a list; what fails is told at the end. `cachekit warm --matrix`.

        Args:
            matrix: A YAML file with a list of `{recipe, set}`.
            overrides: For every entry, on top of its own.
            tiny: Each recipe in small.
            compile_for: See `warm`.
            require_warm: See `warm`.
            recache: See `warm`.
            dry_run: Only plan each.

        Returns:
            What became of each; `error()` is what to raise where one failed.
        """
        from cachekit.recipe.variant import MatrixEntry, read_matrix
        from cachekit.verbs.forecast import warm_matrix

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        entries, words = read_matrix(Path(matrix)), Variant("", overrides).words

        def one(entry: MatrixEntry) -> Planned:
            recipe = Variant(entry.recipe, [*entry.overrides, *words], tiny)
            if dry_run:
                return self.plan(recipe, compile_for=compile_for)
            return self.warm(recipe, compile_for=compile_for, require_warm=require_warm, recache=recache)

        def tell(number: int, entry: MatrixEntry) -> None:
            if self.progress is not None:
                self.progress({"event": "matrix.entry", "number": number, "of": len(entries), "name": entry.name})

        return warm_matrix(entries, one, tell, dry_run=dry_run)

    def check_build(self, recipe: AnyRecipe) -> CheckedBuild:
        """Compile a recipe although it is warm, compare, and keep nothing of it. `cachekit warm --check-build`.

        Returns:
            What is the same and what differs; `error()` is what to raise where anything does.

        Raises:
            MissError: There is no record to compare with.
            IntegrityError: The record's bytes are not those that it names.
            CompileError: The compiler, or the trial run, failed.
        """
        from cachekit.verbs.check_build import check_build

        with self._prepared(recipe, "warm") as (opened, prepared):
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
        *,
        output_dir: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        resume: str = "",
        require_warm: bool = False,
        recache: bool = False,
    ) -> Trained:
        """Run a recipe's fine-tune in a process of its own; what is not warm is warmed first. `cachekit train`.

        Args:
            recipe: See `plan`.
            output_dir: Where the model goes; `training.output_dir` or `runs/<recipe>` by default.
            checkpoint_dir: Where checkpoints go; `output_dir` by default.
            resume: `auto` for the newest whole checkpoint, if there is one, or a checkpoint's path.
            require_warm: See `warm`.
            recache: See `warm`.

        Raises:
            TrainingError: The fine-tune failed.
            CachekitError: As for `warm`.
        """
        from cachekit.verbs.train import folder_of, output_folder, train

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        with self._prepared(recipe, "train") as (opened, prepared):
            target = output_folder(prepared.recipe, output_dir)
            _tell_doubts(opened, prepared)
            return train(
                opened,
                prepared,
                output_dir=target,
                checkpoint_dir=folder_of(checkpoint_dir),
                resume=resume,
                recache=recache,
                require_warm=require_warm,
            )

    def plan_train(
        self,
        recipe: AnyRecipe,
        *,
        output_dir: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        resume: str = "",
    ) -> Planned:
        """What a fine-tune will find; the arguments are those of `train`. `cachekit train --dry-run`.

        Raises:
            UsageError: The checkpoint cannot be used, or the output folder cannot be written.
        """
        from cachekit.verbs.train import checked, folder_of, output_folder

        with self._prepared(recipe, "plan") as (opened, prepared):
            target = output_folder(prepared.recipe, output_dir)
            checked(opened, prepared, target, resume, folder_of(checkpoint_dir))
            return self._planned(opened, prepared, prices(()))

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
            soft_args: Names of arguments that affect no graph.
            require_warm: See `warm`; also where something began to compile.
            recache: Restore nothing, and replace what there was.
            cwd: Its working directory.

        Returns:
            What became of it; an `exit_code` that is not 0 raises nothing.

        Raises:
            MissError: Something would compile, or began to, under `require_warm`.
            UsageError: There is no such program or script.
        """
        from cachekit.errors import UsageError
        from cachekit.recipe import command as command_line
        from cachekit.verbs.run import run

        if not command:
            raise UsageError("there is no command to run", hint='run(["python", "train.py"])')
        naming.check_contradiction(require_warm=require_warm, recache=recache)
        parsed = command_line.read(list(command))
        place = Path(cwd) if cwd else None
        with self._commanded("run", parsed, ingredients, soft_args, place) as (opened, prepared):
            return run(opened, prepared, parsed, require_warm=require_warm, recache=recache, cwd=place)

    def plan_run(
        self,
        command: Sequence[str],
        *,
        ingredients: Mapping[str, str] | None = None,
        soft_args: Sequence[str] = (),
        cwd: str | Path | None = None,
    ) -> Planned:
        """What a command of your own will find; the arguments are those of `run`. `cachekit run --dry-run`."""
        from cachekit.recipe import command as command_line
        from cachekit.verbs.run import foreseen, looked_up

        parsed = command_line.read(list(command))
        place = Path(cwd) if cwd else None
        with self._commanded("plan", parsed, ingredients, soft_args, place) as (opened, prepared):
            price = prices(()).of(prepared.fingerprint.instance)
            return foreseen(looked_up(prepared, opened.store, opened.remotes), price)

    @contextmanager
    def _commanded(
        self,
        verb: str,
        command: CommandLine,
        ingredients: Mapping[str, str] | None,
        soft_args: Sequence[str],
        place: Path | None,
    ) -> Iterator[tuple[Session, Prepared]]:
        """A command of somebody's own on this machine, with the session of a run that is about it."""
        from cachekit.compilers import select
        from cachekit.compilers.command import compiler_of, prepare_command
        from cachekit.training.passthrough import check_program

        check_program(command.words[0], place)  # first, as what cannot run misses nothing
        config = self._config()
        compiler = select(compiler_of(command, place), config.compiler, node=self._node())
        with self.session(verb=verb, config=config) as opened:
            salt = opened.config.trust.salt
            yield (
                opened,
                prepare_command(command, compiler, declared=ingredients, soft=soft_args, cwd=place, salt=salt),
            )

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
            soft_args: Names of arguments that affect no graph.
            require_warm: Raise `MissError` where there is no record, and in `check()` where something compiled.
            recache: Restore nothing, and replace what there was once it is told that the work has come to its end: by
                `keep(finished=True)`, `close()`, or the end of a `with` block. That a process exits tells nothing.

        Raises:
            MissError: There is no record, under `require_warm`.
            UsageError: The script cannot be found out, and no name is given.
        """
        import atexit

        from cachekit.compilers import select
        from cachekit.compilers.command import prepare_command
        from cachekit.verbs.attach import Attachment, this_command, world

        naming.check_contradiction(require_warm=require_warm, recache=recache)
        command = this_command(name)
        declared = {**(ingredients or {}), **world()}
        config = self._config()
        compiler = select("auto", config.compiler, node=self._node())
        with ExitStack() as stack:
            opened = stack.enter_context(self.session(verb="run", config=config))
            prepared = prepare_command(
                command, compiler, declared=declared, soft=soft_args, salt=opened.config.trust.salt
            )
            attachment = Attachment(opened, prepared, command, stack, require_warm=require_warm, recache=recache)
            attachment.begin()
            attachment.own(stack.pop_all())
        atexit.register(attachment.leave)
        return attachment


def _tell_doubts(opened: Session, prepared: Prepared) -> None:
    """Say which device stays idle, and what is odd about the data, before hours go into it."""
    from cachekit.data.preview import preview

    if idle := prepared.fingerprint.lacks.get("accelerator"):
        opened.journal.show("accelerator.idle", reason=idle)
    found = preview(prepared.recipe)
    for doubt in found.doubts if found else ():
        opened.journal.show("data.doubt", doubt=doubt)
