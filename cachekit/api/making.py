"""What compiles and trains, with the cache around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit.api.options import AnyRecipe, Options, Overrides
from cachekit.verbs import open_session as _opening

if TYPE_CHECKING:
    from cachekit.verbs.attach import Attachment
    from cachekit.verbs.check_build import CheckedBuild
    from cachekit.verbs.run import Ran
    from cachekit.verbs.train import Trained
    from cachekit.verbs.warm import Warmed


class Making(Options):
    """The methods of `Cache` that compile and train."""

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
            recipe: See `load_recipe`; so for `overrides` and `tiny`.
            overrides: See `load_recipe`.
            tiny: See `load_recipe`.
            require_warm: Raise `MissError` instead of compiling.
            recache: Compile although it is stored, and replace it.

        Raises:
            MissError: Something would compile, under `require_warm`.
            WaitedTooLongError: Another process compiles the same beyond the deadline.
            CompileError: The compiler, or the trial run, failed.
            CachekitError: Anything else; see the table of errors.
        """
        from cachekit.verbs.warm import warm

        _opening.check_contradiction(require_warm=require_warm, recache=recache)
        with self._prepared(recipe, overrides, "warm", tiny=tiny) as (opened, prepared):
            return warm(opened, prepared, recache=recache, require_warm=require_warm)

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
            overrides: See `load_recipe`.
            output_dir: Where checkpoints and the model go; `training.output_dir` or `runs/<recipe>` by default.
            resume: `auto`, or a checkpoint's path.
            tiny: See `load_recipe`.
            require_warm: Raise `MissError` instead of compiling.
            recache: Compile anew first.

        Raises:
            TrainingError: The fine-tune failed.
            CachekitError: As for `warm`.
        """
        from cachekit.verbs.train import train

        _opening.check_contradiction(require_warm=require_warm, recache=recache)
        with self._prepared(recipe, overrides, "train", tiny=tiny) as (opened, prepared):
            target = _opening.output_folder(prepared.recipe, Path(output_dir) if output_dir else None)
            _opening.check_output(target)
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
        from cachekit.errors import UsageError
        from cachekit.verbs import command_line
        from cachekit.verbs.prepare_command import as_recipe, prepare_command
        from cachekit.verbs.run import run

        if not command:
            raise UsageError("there is no command to run", hint='run(["python", "train.py"])')
        _opening.check_contradiction(require_warm=require_warm, recache=recache)
        parsed = command_line.read(list(command))
        place = Path(cwd) if cwd else None
        with self.session(as_recipe(parsed), verb="run") as opened:
            prepared = prepare_command(parsed, opened.compiler, declared=ingredients, soft=soft_args, cwd=place)
            return run(opened, prepared, parsed, require_warm=require_warm, recache=recache, cwd=place)

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

        from cachekit.verbs.attach import Attachment, this_command, world
        from cachekit.verbs.prepare_command import as_recipe, prepare_command

        _opening.check_contradiction(require_warm=require_warm, recache=recache)
        command = this_command(name)
        declared = {**(ingredients or {}), **world()}
        with ExitStack() as stack:
            opened = stack.enter_context(self.session(as_recipe(command), verb="run"))
            prepared = prepare_command(command, opened.compiler, declared=declared, soft=soft_args)
            attachment = Attachment(opened, prepared, command, stack, require_warm=require_warm, recache=recache)
            attachment.begin()
            attachment.own(stack.pop_all())
        atexit.register(attachment.close)
        return attachment
