"""The library: what the verbs of the command line do, as functions. `from cachekit import plan, warm, train, ...`.

They print nothing, and raise subclasses of `CachekitError`, whose hints name commands. Results are frozen, and have
`as_dict()`, the document that the verb gives with `--format json`.

Options that all of them share:

- `home`, `compiler`, `cache`: as `--home`, `--compiler` and `--cache`; by default what the settings say
  (`cachekit config`).
- `offline`: open no connection.
- `progress`: called with each event of the run, a dict with `event`, `time`, `run` and more, from the thread that the
  event happens in. An exception that it raises ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.actions import open_session as _opening
from cachekit.recipe import Recipe
from cachekit.recipe.edit import edited, override_words

if TYPE_CHECKING:
    from cachekit.actions.attach import Attachment
    from cachekit.actions.plan import Plan
    from cachekit.actions.prepare import Prepared
    from cachekit.actions.pull_recipes import Outcome
    from cachekit.actions.push_records import Reported
    from cachekit.actions.run import Ran
    from cachekit.actions.session import Session
    from cachekit.actions.train import Trained
    from cachekit.actions.warm import Warmed
    from cachekit.config import Config
    from cachekit.journal import Journal
    from cachekit.record import Record
    from cachekit.store import Store

Progress = Callable[[dict[str, Any]], None]
Overrides = Mapping[str, Any] | Iterable[str]
AnyRecipe = Recipe | str | Path


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
        return _opening.load_recipe(str(recipe), words, tiny=tiny)[0]
    if tiny:
        from cachekit import tiny as small

        words = [*small.overrides(edited(recipe, words)), *words]
    return edited(recipe, words) if words else recipe


@contextmanager
def session(
    recipe: Recipe | None = None,
    *,
    verb: str = "",
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    wait: float | None = None,
    offline: bool = False,
    toolchain: str | None = None,
    instance: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Session]:
    """The store, the shared caches, the compiler and the journal, for calling `cachekit.actions` oneself.

    Args:
        recipe: Chooses the compiler, where the settings leave it open.
        verb: What is done. `warm`, `train`, `run`, `import`, `pull` and `push` leave a journal in the store.
        home: See the module; so for `compiler`, `cache`, `offline` and `progress`.
        compiler: See the module.
        cache: See the module.
        wait: Seconds to wait for another process that compiles the same.
        offline: See the module.
        toolchain: A release of Neuron's SDK, for a machine that is not this one.
        instance: Its type.
        progress: See the module.

    Raises:
        UsageError: A setting cannot be used.
        CompilerUnavailableError: The compiler is not on this machine.
        StoreError: The store's place is taken by something else.
    """
    config = _opening.load_config(home, compiler, wait, cache)
    with _open(config, recipe, verb, progress, offline=offline, toolchain=toolchain, instance=instance) as opened:
        yield opened


def plan(
    recipe: AnyRecipe,
    overrides: Overrides = (),
    *,
    tiny: bool = False,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    offline: bool = False,
    toolchain: str | None = None,
    target: str | None = None,
    instance: str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """What a recipe will find and what must compile; runs nothing, imports no torch. `cachekit plan`.

    `toolchain`, `target` and `instance` plan for another machine, as `--toolchain` and its like do. For the other
    arguments see `load_recipe` and the module.

    Raises:
        CachekitError: The recipe, its architecture, or the compiler cannot be had; see `session`.
    """
    from cachekit.actions.elsewhere import Elsewhere
    from cachekit.actions.plan import plan as act
    from cachekit.actions.plan_shared import with_shared
    from cachekit.ingredients import check_data

    loaded = load_recipe(recipe, overrides, tiny=tiny)
    check_data(loaded, absent_ok=True)
    config = _opening.load_config(home, compiler, cache=cache)
    instance = Elsewhere(toolchain or "", target or "", instance or "").machine(loaded, guess=False)
    with _open(config, loaded, "plan", progress, offline=offline, toolchain=toolchain, instance=instance) as opened:
        return with_shared(opened, act(_prepared(opened, loaded, recipe), opened.store, opened.chain))


def warm(
    recipe: AnyRecipe,
    overrides: Overrides = (),
    *,
    tiny: bool = False,
    require_warm: bool = False,
    recache: bool = False,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    wait: float | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Warmed:
    """Compile what a recipe's fine-tune needs, once, in a process of its own, and keep it. `cachekit warm`.

    Args:
        recipe: See `load_recipe`; so for `overrides` and `tiny`.
        overrides: See `load_recipe`.
        tiny: See `load_recipe`.
        require_warm: Raise `MissError` instead of compiling.
        recache: Compile although it is stored, and replace it.
        home: See the module; so for `compiler`, `cache`, `offline` and `progress`.
        compiler: See the module.
        cache: See the module.
        wait: Seconds to wait for another process that compiles the same.
        offline: See the module.
        progress: See the module.

    Raises:
        MissError: Something would compile, under `require_warm`.
        WaitedTooLongError: Another process compiles the same beyond the deadline.
        CompileError: The compiler, or the trial run, failed.
        CachekitError: Anything else; see the table of errors.
    """
    from cachekit.actions.warm import warm as act

    _opening.check_contradiction(require_warm=require_warm, recache=recache)
    loaded = load_recipe(recipe, overrides, tiny=tiny)
    with _open(_opening.load_config(home, compiler, wait, cache), loaded, "warm", progress, offline=offline) as opened:
        return act(opened, _prepared(opened, loaded, recipe), recache=recache, require_warm=require_warm)


def train(
    recipe: AnyRecipe,
    overrides: Overrides = (),
    *,
    output_dir: str | Path | None = None,
    resume: str = "",
    tiny: bool = False,
    require_warm: bool = False,
    recache: bool = False,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    wait: float | None = None,
    offline: bool = False,
    progress: Progress | None = None,
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
        home: See the module; so for `compiler`, `cache`, `offline` and `progress`.
        compiler: See the module.
        cache: See the module.
        wait: Seconds to wait for another process that compiles the same.
        offline: See the module.
        progress: See the module.

    Raises:
        CachekitError: As for `warm`; `TrainingError` where the training itself failed.
    """
    from cachekit.actions.train import train as act

    _opening.check_contradiction(require_warm=require_warm, recache=recache)
    loaded = load_recipe(recipe, overrides, tiny=tiny)
    target = _opening.output_folder(loaded, Path(output_dir) if output_dir else None)
    with _open(_opening.load_config(home, compiler, wait, cache), loaded, "train", progress, offline=offline) as opened:
        prepared = _prepared(opened, loaded, recipe)
        _opening.check_output(target)
        return act(opened, prepared, output_dir=target, resume=resume, recache=recache, require_warm=require_warm)


def run(
    command: Sequence[str],
    *,
    ingredients: Mapping[str, str] | None = None,
    soft_args: Sequence[str] = (),
    require_warm: bool = False,
    recache: bool = False,
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Ran:
    """Run a command of your own with what it compiled before. `cachekit run`.

    Its output goes where this process's goes; signals that reach this process are passed on to it, so call this from
    the main thread.

    Args:
        command: Program and arguments: `["torchrun", "--nproc_per_node", "2", "train.py"]`.
        ingredients: Something else that shapes its graphs.
        soft_args: Names of arguments that reach no graph.
        require_warm: Raise `MissError` instead of compiling.
        recache: Restore nothing, and replace what there was.
        cwd: Its working directory.
        home: See the module; so for `compiler`, `cache`, `offline` and `progress`.
        compiler: See the module.
        cache: See the module.
        offline: See the module.
        progress: See the module.

    Returns:
        What became of it; `code` is its exit code, and one that is not 0 raises nothing.

    Raises:
        MissError: Something would compile, or began to, under `require_warm`.
        UsageError: There is no such program or script.
    """
    from cachekit.actions import command_line
    from cachekit.actions.prepare_command import as_recipe, prepare_command
    from cachekit.actions.run import run as act

    _opening.check_contradiction(require_warm=require_warm, recache=recache)
    parsed = command_line.read(list(command))
    place = Path(cwd) if cwd else None
    config = _opening.load_config(home, compiler, cache=cache)
    with _open(config, as_recipe(parsed), "run", progress, offline=offline) as opened:
        prepared = prepare_command(parsed, opened.compiler, declared=ingredients, soft=soft_args, cwd=place)
        return act(opened, prepared, parsed, require_warm=require_warm, recache=recache, cwd=place)


def pull(
    recipe: AnyRecipe,
    overrides: Overrides = (),
    *,
    tiny: bool = False,
    dry_run: bool = False,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    offline: bool = False,
    toolchain: str | None = None,
    instance: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Fetch what a recipe needs from the shared caches into the store. `cachekit pull`.

    Returns:
        What became of it; `state` is `absent` where no cache has it.

    Raises:
        UsageError: No shared cache may be read.
        RemoteError, AuthError: A cache has it, and it could not be fetched.
        IntegrityError: What a cache has is not what its record says.
    """
    from cachekit.actions.pull_recipes import pull_recipe

    loaded = load_recipe(recipe, overrides, tiny=tiny)
    config = _opening.load_config(home, compiler, cache=cache)
    verb = "" if dry_run else "pull"
    with _open(config, loaded, verb, progress, offline=offline, toolchain=toolchain, instance=instance) as opened:
        _opening.need_chain(opened.chain, "read")
        return pull_recipe(opened, _prepared(opened, loaded, recipe), dry_run=dry_run)


def push(
    keys: Sequence[str] = (),
    *,
    pending: bool = False,
    public: bool = False,
    replace: bool = False,
    dry_run: bool = False,
    home: str | Path | None = None,
    cache: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> list[Reported]:
    """Put records of the store on the shared caches that may be written. `cachekit push`.

    Args:
        keys: Of records, or beginnings of such, or recipes by path or name; all records by default.
        pending: Only what could not be pushed before.
        public: On a cache that anybody can read, too.
        replace: In the place of others of the same keys.
        dry_run: Only say what would be sent.
        home: See the module; so for `cache`, `offline` and `progress`.
        cache: See the module.
        offline: See the module.
        progress: See the module.

    Returns:
        For each cache what became of it; a failure stands in `pushed.error`.

    Raises:
        UsageError: No shared cache may be written.
        UnknownNameError: A key names no record.
    """
    from cachekit.actions.push_records import chosen, push_records

    config = _opening.load_config(home, None, cache=cache)
    with _open(config, None, "" if dry_run else "push", progress, offline=offline) as opened:
        _opening.need_chain(opened.chain, "written")
        named = [_opening.key_of(config, name, None) for name in keys]
        records = chosen(opened, named, pending=pending)
        return push_records(opened, records, public=public, replaces=replace, dry_run=dry_run)


def open_store(home: str | Path | None = None) -> Store:
    """The local store, for looking into: `records()`, `lookup(...)`, `reading(file)`.

    Args:
        home: Its folder; by default what the settings say.
    """
    from cachekit.journal import Journal
    from cachekit.store import Store

    return Store(_opening.load_config(home).home, Journal(None, ""))


def records(home: str | Path | None = None) -> list[Record]:
    """All readable records of the store, youngest first; their files are not checked."""
    found = open_store(home).records()
    return sorted(found, key=lambda record: record.provenance.created, reverse=True)


def attach(
    name: str = "",
    *,
    ingredients: Mapping[str, str] | None = None,
    soft_args: Sequence[str] = (),
    require_warm: bool = False,
    recache: bool = False,
    home: str | Path | None = None,
    compiler: str | None = None,
    cache: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Attachment:
    """Give this very process the cache of its script, and keep what compiles in it. For a training loop of one's own.

    Call it before anything compiles; it is late otherwise, does nothing, and says so. It changes this process's
    environment (`TORCHINDUCTOR_CACHE_DIR` and its like, or Neuron's) until it is closed, which happens at exit, or at
    the end of a `with` block. What compiled is kept then, and whenever `keep` is called. A process that is killed
    keeps what was kept before. `cachekit run` does the same from outside and survives that, too.

    The key is made as by `cachekit run`: of the script, the modules beside it, and its arguments. Processes of one run
    (WORLD_SIZE) have a key each.

    Args:
        name: Instead of the script, where there is none (a notebook) or it changes all the time; with `ingredients`,
            it is all of the key that is not the machine's.
        ingredients: Something else that shapes the graphs.
        soft_args: Names of arguments that reach no graph.
        require_warm: Raise `MissError` where there is no record, and in `check()` where something compiled.
        recache: Restore nothing, and replace what there was.
        home: See the module; so for `compiler`, `cache`, `offline` and `progress`.
        compiler: See the module.
        cache: See the module.
        offline: See the module.
        progress: See the module.

    Raises:
        MissError: There is no record, under `require_warm`.
        UsageError: The script cannot be found out, and no name is given.
    """
    import atexit

    from cachekit.actions.attach import Attachment, this_command, world
    from cachekit.actions.prepare_command import as_recipe, prepare_command

    _opening.check_contradiction(require_warm=require_warm, recache=recache)
    command = this_command(name)
    declared = {**(ingredients or {}), **world()}
    config = _opening.load_config(home, compiler, cache=cache)
    with ExitStack() as stack:
        opened = stack.enter_context(_open(config, as_recipe(command), "run", progress, offline=offline))
        prepared = prepare_command(command, opened.compiler, declared=declared, soft=soft_args)
        attachment = Attachment(opened, prepared, command, stack, require_warm=require_warm, recache=recache)
        attachment.begin()
        attachment.own(stack.pop_all())
    atexit.register(attachment.close)
    return attachment


def _open(
    config: Config, recipe: Recipe | None, verb: str, progress: Progress | None, **options: Any
) -> AbstractContextManager[Session]:
    @contextmanager
    def follow(journal: Journal) -> Iterator[None]:
        if progress is not None:
            journal.listen(progress)
        yield

    return _opening.open_session(config, recipe, verb, follow=follow, **options)


def _prepared(opened: Session, loaded: Recipe, given: AnyRecipe) -> Prepared:
    from cachekit.actions.prepare import prepare

    return prepare(loaded, opened.compiler, loaded.name if isinstance(given, Recipe) else str(given))
