"""What cachekit asks of a compiler. Adapters implement it; nothing else knows a compiler's paths and variables.

This is the part that needs a machine. What is known of a compiler by its name alone is `adapter.Adapter`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from cachekit.errors import MissError, UsageError
from cachekit.host import MASTER_PORT
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.record import Module

if TYPE_CHECKING:
    from cachekit.store.blobs import Blob

Sink = Callable[[dict[str, Any]], None]  # is called with events, as the worker's are


class Harvest(Struct, frozen=True):
    """What a run left in the compiler cache dir that is worth keeping.

    Attributes:
        modules: As they go into the record.
        files: Finished files by SHA-256.
    """

    modules: tuple[Module, ...]
    files: Mapping[str, Path]


class Restored(Struct, frozen=True):
    """What became of a module that was to be put into a compiler's cache.

    Attributes:
        outcome: `restored` to an empty place, `replaced` an unfinished or damaged one, `present` already, or `left`
            because what stands there must not be touched.
        size: Bytes written.
        reason: What was replaced, or why the module was left.
    """

    outcome: Literal["restored", "replaced", "present", "left"] = "restored"
    size: int = 0
    reason: str = ""

    @property
    def left(self) -> str:
        """Why the module is not there all the same; empty where it is there."""
        return self.reason if self.outcome == "left" else ""


class Failed(Struct, frozen=True):
    """A module whose compile failed, and that nobody has compiled since.

    Attributes:
        kind: The class of the failure.
        message: The line of the log that names the failure.
        log: The file that has the whole story.
        when: UTC, ISO 8601.
        advice: What helps.
        remembered: The module is not tried again for a while, as it would fail again.
    """

    kind: str
    message: str
    log: str
    when: str = ""
    advice: str = ""
    remembered: bool = False


class ComparedBuilds(Struct, frozen=True):
    """What two compiles of the same graphs have in common, apart from what no two compiles share.

    Attributes:
        same: How many parts are the same: files, graphs or modules, as the compiler has them.
        differ: Parts that both have, and that differ.
        gone: Parts that only the first one has.
        new: Parts that only the second one has.
    """

    same: int
    differ: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]

    @classmethod
    def of(cls, before: Collection[str], after: Collection[str], alike: Callable[[str], bool]) -> ComparedBuilds:
        """Compare part by part; `alike` says whether a part that both have is the same in both."""
        both = frozenset(before) & frozenset(after)
        differ = sorted(name for name in both if not alike(name))
        gone, new = (tuple(sorted(frozenset(names) - both)) for names in (before, after))
        return cls(len(both) - len(differ), tuple(differ), gone, new)


class Observed(Struct, frozen=True):
    """What a compiler did in a run.

    Attributes:
        found: Graphs that were in the compiler cache dir.
        compiled: Graphs that were not.
        compile_seconds: What compiling them took; 0 where nothing compiled. Where it is not `timed`, what the worker
            measured of its steps stands for it.
        notes: Other things that a person should know, one sentence each.
        surprises: Phases in which something compiled although everything had been restored.
        modules: Names of the modules that the run used or made: its own, whoever else writes into the cache dir.
        seconds: Compile time by module, where it is known.
        found_seconds: What compiling took of the graphs that were found, as each carries it from where it was compiled;
            None where nobody tells.
        exact: The run itself counted; else the counts are inferred from what it left.
        used: Which of the restored files the run read, by relative path; None where nobody knows.
        order: The names of modules, in the order in which the run came to them, where it told that.
        inert: Nothing of what earlier runs of the same command kept was found, although all compiled again.
    """

    found: int = 0
    compiled: int = 0
    compile_seconds: float = 0.0
    surprises: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True
    timed: bool = True
    used: frozenset[str] | None = None
    found_seconds: float | None = None
    order: tuple[str, ...] = ()
    inert: bool = False


UNTOLD = Observed()


def not_warm(cause: str) -> MissError:
    """What stops a strict run in which a graph begins to compile."""
    return MissError(
        "a graph is not warm, although the record was found",
        cause=cause,
        hint="run the command once without --require-warm, which adds the graph to the record",
    )


class Node(Struct, frozen=True):
    """This machine's place in a run on several, as torchrun has it; the recipe says how many they are.

    Attributes:
        rank: Its number, from 0.
        address: The address of the machine with rank 0.
        port: The port on that machine.
    """

    rank: int = 0
    address: str = ""
    port: int = MASTER_PORT

    def check(self, recipe: Recipe) -> None:
        """See that this machine knows its place among those that run a recipe together.

        Raises:
            UsageError: It does not.
        """
        nodes = recipe.parallel.nodes
        if nodes > 1 and not (self.address and self.rank < nodes):
            raise UsageError(
                f"the recipe trains on {nodes} machines, but this one has not been told which of them it is",
                cause=f"its number is {self.rank}, and the first machine's address is {self.address or 'not known'}",
                hint="pass --node-rank (from 0) and --master-addr on every node, as for torchrun",
            )


class Run(Struct, frozen=True):
    """One run, of the training worker or of a user's own command.

    Attributes:
        recipe: The recipe; of a command it only says which compiler.
        cache_dir: Where the compiler looks and writes.
        kind: `trial` is a few steps that reach every graph, to have them compiled; `train` is the fine-tune. Nothing is
            known of a `command`: its workers, and what stands before its words, are the user's.
        found: Everything that the run needs is expected to be there already.
        strict: Stop at the first compile.
        restored: The modules of the record by name, each with the reason why it was left out (`Restored.left`).
    """

    recipe: Recipe
    cache_dir: Path
    kind: Literal["trial", "train", "command"]
    found: bool = False
    strict: bool = False
    restored: Mapping[str, str] = {}


class Watch:
    """A compiler's view of one run: how the run is started, and what becomes of it.

    The defaults serve a compiler that runs inside the worker and needs nothing around it.

    Args:
        environment: Variables for the run; None unsets one.

    Attributes:
        prefix: What stands before the worker's command line: launchers, tools of the compiler.
        workers: How many workers it starts here: each leaves a result.
        listens: It must be told what a user's own command prints.
    """

    prefix: Sequence[str] = ()
    workers = 1
    listens = False

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        self.environment = environment

    def begin(self, tell: Sink) -> None:
        """The compiler cache dir is filled: look for what would block this run, and tell."""

    def output(self, words: bytes) -> Sequence[Mapping[str, Any]]:
        """The worker and its tools printed this; returns events that follow from it.

        Raises:
            CachekitError: The run must stop here.
        """
        return ()

    def event(self, event: Mapping[str, Any]) -> None:
        """The worker told something."""

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        """The run, whose first process this is, goes on; returns events. Asked several times a second.

        Raises:
            CachekitError: The run must stop here.
        """
        return ()

    def finished(self) -> bool:
        """The run has done what it can and only fails to end: a known hang. Asked several times a second."""
        return False

    def failed(self, code: int) -> bool:
        """Whether a run failed that ended with this exit code: launchers and tools have codes of their own."""
        return code != 0

    def complete(self, tell: Sink) -> None:
        """After a trial: make sure that everything it needs is compiled.

        Raises:
            CompileError: Something is not, and why.
        """

    def observed(self, told: Observed = UNTOLD) -> Observed:
        """What the compiler did.

        Args:
            told: What the worker itself counted; nothing of a user's own command.
        """
        return told

    def needs(self) -> frozenset[str]:
        """The modules that the run has reported so far, compiled or not; empty for a compiler that names none."""
        return frozenset()


class Compiler(Protocol):
    """A compiler, seen from the process that plans, starts workers and keeps what they make."""

    name: str
    runtime: str = ""
    """The module that the training worker imports; it implements `Runtime`. Empty: only commands have a cache."""
    guest: str = ""
    """The module for a process that is the user's own; it implements `Guest`. Empty: such a process has no cache."""
    foreign: tuple[str, ...] = ()
    """Beginnings of ingredients that its own key does not tell apart: records that differ in one share no graph."""
    growth: Growth
    """How its compile seconds grow with what shapes a job."""
    splits_paths: bool = False
    """It puts paths into command lines without quotes: its cache dir lies where no path has a space."""
    node: Node = Node()
    """This machine's place, where several train together."""
    trial_needs_all: bool = False
    """Graphs name all workers, so that a trial run needs all machines of a training; else each can make it alone."""
    marks_finished: bool = False
    """What is finished can be told from what is not while a run goes on; else files are whole only after its end."""

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        """What this compiler is on this machine, without importing it.

        Args:
            recipe: Whose worker it is for: its `environment` may choose a tool or a device.
            bare: For a user's own command, which may do without what our worker needs.

        Raises:
            CompilerUnavailableError: The compiler, or something it needs, is not there.
            UsageError: The compiler trains no recipe.
        """

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """Canonical flags and options, and what else in this process's environment shapes its graphs.

        Raises:
            RecipeError: A flag or option that the compiler cannot take.
        """

    def cache_dir(self, recipe: Recipe) -> Path | None:
        """The one folder on this host where the compiler looks; None where each run gets its own.

        Each run has its own where the compiler allows that: then runs side by side never mix what they harvest.

        Raises:
            UsageError: It is not a folder of this host.
        """
        return None

    def make_way(self, cache_dir: Path, tell: Sink, withdrawn: Collection[str] = ()) -> None:
        """Before anything is restored: clear what killed runs and the modules just withdrawn left of a shared one."""
        return

    def watch(self, run: Run) -> Watch:
        """Prepare to follow a run."""

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """What the runtime in the worker is to do; JSON values."""
        return {}

    def contents(self, cache_dir: Path) -> frozenset[str]:
        """The finished files in a compiler cache dir, by relative path; whole modules where the compiler keeps such."""

    def compare(self, old: Path, new: Path) -> ComparedBuilds:
        """Compare what two runs left in their compiler cache dirs.

        Raises:
            OSError: One of them cannot be read.
        """

    def failed(self, cache_dir: Path, names: Iterable[str]) -> Mapping[str, Failed]:
        """Which of these modules are known to have failed."""
        return {}

    def binaries(self, names: Iterable[str]) -> int:
        """How many of these hold machine code: 0 new ones means that no compiler ran."""
        return len(frozenset(names))

    def harvest(
        self,
        cache_dir: Path,
        before: frozenset[str],
        fingerprint: Fingerprint,
        workspace: Path,
        observed: Observed | None = None,
    ) -> Harvest | None:
        """Take what is finished and was not there before, or what the run itself reported; None if there is nothing.

        Raises:
            OSError: The workspace cannot be written.
        """

    def restore(self, module: Module, files: Sequence[Blob], cache_dir: Path) -> Restored:
        """Put a module back, unless something stands in its way. Its bytes are checked meanwhile.

        Raises:
            UnsafeArchiveError: The module is not what this adapter makes.
        """


class Runtime(Protocol):
    """The compiler, seen from inside the training worker: a module that has such a class, by this name.

    What it does not say needs nothing: the compiler bears the Trainer and its model as they are.
    """

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Configure the compiler; called before any model exists."""

    def arguments(self) -> dict[str, Any]:
        """Training arguments that the compiler needs, over the recipe's; none of them changes a result."""
        return {}

    def model_options(self) -> dict[str, Any]:
        """Keywords for loading the model; none of them changes what it computes."""
        return {}

    def compile_model(self, model: Any, settings: Mapping[str, Any]) -> None:
        """Arrange for the model's forward pass, and the backward pass it leads to, to be compiled.

        In place, so that checkpoints keep the model's own names.
        """
        return

    def adapt(self, trainer: Any) -> None:
        """Change what the compiler cannot bear in the Trainer; called before it runs."""
        return

    def failure(self, error: BaseException) -> str | None:
        """What the compiler says of a failed compile, empty where the exception says it; None for another exception."""
        return "" if type(error).__module__.startswith(("torch._inductor", "torch._dynamo")) else None

    def counters(self) -> dict[str, int]:
        """Graphs so far: `found` in the cache, `compiled`; and the compiler's own numbers."""

    def finish(self) -> None:
        """Called after everything else, in every worker."""
        return


class Guest(Protocol):
    """The compiler in a process that is the user's own. A guest is a module with these functions; it loads nothing."""

    def join(self, *, found: bool) -> list[str]:
        """Configure the compiler, now or when it is loaded.

        Args:
            found: Everything that the process needs is expected to be there.

        Returns:
            What stands in the way of finding or keeping graphs, one sentence each.
        """

    def counters(self) -> dict[str, int] | None:
        """Graphs so far in this process: `found`, `compiled`; None where only the compiler cache dir shows them."""

    def compile_seconds(self) -> float:
        """What compiling took so far in this process; 0 where it is not known."""
