"""What cachekit asks of a compiler. Adapters implement it; nothing else knows a compiler's paths and variables.

An `Adapter` is what is known of a compiler by its name: it needs no SDK and no machine, and answers for records that
other machines made. A `Compiler` is an adapter opened for one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from cachekit.compilers.evidence import Subject
from cachekit.errors import UsageError
from cachekit.health import Check
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.leaks import Leaks, of_archive, of_file
from cachekit.store.record import File, Module, Record

Sink = Callable[[dict[str, Any]], None]

# What `Adapter.describe` says of a file's state.
VERIFIED = "verified"  # whole, and understood
DAMAGED = "damaged"  # its bytes are not those that were written
UNKNOWN = "unknown"  # of no kind that is known here: nothing can be said about its bytes
ABSENT = "absent"  # no file, or none that can be read


class Blob(Protocol):
    """A file of the store in use; its digest is checked before the use ends."""

    @property
    def path(self) -> Path:
        """The file, for whoever reads it by himself; its digest is computed beside that."""

    @property
    def location(self) -> Path:
        """The file, for whoever only looks at it before he calls `through`."""

    def through(self, sink: Callable[[int, memoryview], None]) -> None:
        """Have every byte given to `sink`, with its offset, and hashed on the way; by several threads, in no order."""


class Harvest(Struct, frozen=True):
    """What a run left in the live root that is worth keeping.

    Attributes:
        modules: As they go into the record.
        files: Finished files by SHA-256, in the workspace that was given.
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
    """A module whose compile failed, and nobody has compiled it since.

    Attributes:
        kind: The class of the failure.
        message: The line that tells.
        log: The file that has the whole story.
        when: UTC, ISO 8601.
        advice: What helps.
        remembered: It is not tried again for a while, as it would fail again.
    """

    kind: str
    message: str
    log: str
    when: str = ""
    advice: str = ""
    remembered: bool = False


class Compared(Struct, frozen=True):
    """What two compiles of the same graphs have in common, but for what no two compiles share.

    Attributes:
        same: Parts that are the same: files, graphs, modules, as the compiler has them.
        differ: Parts that both have, and that differ.
        gone: Parts that only the first one has.
        new: Parts that only the second one has.
    """

    same: int
    differ: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]


class Observed(Struct, frozen=True):
    """What a compiler did in a run, as seen from outside of the worker.

    Attributes:
        found: Graphs that were in the live root.
        compiled: Graphs that were not.
        compile_seconds: What compiling them took; 0 where nothing compiled. Where it is not `timed`, what the worker
            measured of its steps stands for it.
        notes: What else a person should know, a sentence each.
        surprises: Phases in which something compiled although everything had been restored.
        modules: Names of the modules that the run used or made: its own, whoever else writes into the live root.
        seconds: Compile time by module, where it is known.
        exact: The run itself counted; else the counts are made out from what it left.
        used: Of the files that were restored, those that the run read, by relative path; None where nobody knows.
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


class Node(Struct, frozen=True):
    """This machine's place among those of one run, as torchrun has it; how many they are, the recipe says.

    Attributes:
        rank: Its number, from 0.
        address: Of the machine with rank 0.
        port: There.
    """

    rank: int = 0
    address: str = ""
    port: int = 29500


class Watch(Protocol):
    """A compiler's view of one run of the worker: how it is started, and what becomes of it."""

    environment: Mapping[str, str | None]
    """Variables for the worker; None unsets one."""
    prefix: Sequence[str]
    """What stands before the worker's command line: launchers, tools of the compiler."""
    workers: int
    """How many workers it starts here: each leaves a result."""
    listens: bool
    """It must hear what a user's own command prints."""

    def begin(self, tell: Sink) -> None:
        """The live root is filled: look for what would block this run, and tell.

        Args:
            tell: Called with events, as the worker's are.
        """

    def output(self, words: bytes) -> Sequence[Mapping[str, Any]]:
        """The worker and its tools printed this; returns events that follow from it.

        Raises:
            CachekitError: The run must stop here.
        """

    def event(self, event: Mapping[str, Any]) -> None:
        """The worker told something."""

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        """The run, whose first process this is, goes on; returns events. Asked several times a second.

        Raises:
            CachekitError: The run must stop here.
        """

    def finished(self) -> bool:
        """The run has done what it can and only fails to end: a known hang. Asked several times a second."""

    def failed(self, code: int) -> bool:
        """Whether the run failed that ended with this exit code, although no worker said so: tools have own codes."""

    def complete(self, tell: Sink) -> None:
        """After a trial: see to it that everything it needs is compiled.

        Args:
            tell: Called with events, as the worker's are.

        Raises:
            CompileError: Something is not, and why.
        """

    def observed(self) -> Observed | None:
        """What the compiler did; None where the worker itself counts it."""

    def used(self) -> frozenset[str] | None:
        """See `Observed.used`."""

    def needs(self) -> frozenset[str]:
        """The modules that the run has reported so far, compiled or not; empty for a compiler that names none."""


class Unwatched:
    """A watch for a compiler that runs inside the worker and needs nothing around it."""

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        self.environment = environment
        self.prefix: Sequence[str] = ()
        self.workers = 1
        self.listens = False

    def begin(self, tell: Sink) -> None:
        """See `Watch`."""

    def output(self, words: bytes) -> Sequence[Mapping[str, Any]]:
        """See `Watch`."""
        return ()

    def event(self, event: Mapping[str, Any]) -> None:
        """See `Watch`."""

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        """See `Watch`."""
        return ()

    def finished(self) -> bool:
        """See `Watch`."""
        return False

    def failed(self, code: int) -> bool:
        """See `Watch`."""
        return code != 0

    def complete(self, tell: Sink) -> None:
        """See `Watch`."""

    def observed(self) -> Observed | None:
        """See `Watch`."""
        return None

    def used(self) -> frozenset[str] | None:
        """See `Watch`."""
        return None

    def needs(self) -> frozenset[str]:
        """See `Watch`."""
        return frozenset()


class Compiler(Protocol):
    """A compiler, seen from the process that plans, starts workers and keeps what they make."""

    name: str
    runtime: str
    """The module that the training worker imports; it implements `Runtime`."""
    foreign: tuple[str, ...]
    """Beginnings of ingredients that its own key does not tell apart: records that differ in one share no graph."""
    growth: Growth
    """How its compile seconds grow with what shapes a job."""
    guest: str
    """The module for a process that is the user's own; it implements `Guest`."""

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        """What this compiler is on this machine, without importing it.

        Args:
            recipe: Whose worker it is for: its `environment` may choose a tool or a device.
            bare: For a user's own command, which may do without what our worker needs.

        Raises:
            CompilerUnavailableError: It, or something it needs, is not there.
        """

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """Canonical flags and options, and what else in this process's environment shapes its graphs.

        Raises:
            RecipeError: A flag or option that the compiler cannot take.
        """

    def live_root(self, recipe: Recipe) -> Path | None:
        """The one folder on this host where the compiler looks; None where each run gets its own.

        Raises:
            UsageError: It is not a folder of this host.
        """

    def make_way(self, live_root: Path, tell: Sink) -> None:
        """Before anything is restored: clear what killed runs left behind in a live root that is shared.

        Args:
            live_root: The folder.
            tell: Called with events, as the worker's are.
        """

    def watch(
        self,
        recipe: Recipe,
        live_root: Path,
        *,
        trial: bool,
        found: bool,
        strict: bool,
        restored: Mapping[str, str] | None = None,
    ) -> Watch:
        """Prepare to run the worker.

        Args:
            recipe: The recipe.
            live_root: Where the compiler looks and writes.
            trial: A few steps that reach every graph, to have them compiled; else the fine-tune.
            found: Everything it needs is expected to be there already.
            strict: Stop at the first compile.
            restored: The modules of the record by name, each with the reason why it was left out (`Restored.left`).
        """

    def attend(
        self,
        recipe: Recipe,
        live_root: Path,
        *,
        found: bool,
        strict: bool,
        restored: Mapping[str, str] | None = None,
    ) -> Watch:
        """Prepare to run a user's own command, of which nothing is known; its prefix and its workers are the user's.

        Args:
            recipe: Says nothing but which compiler; see `watch` for the rest.
            live_root: Where the compiler looks and writes.
            found: Everything it needs is expected to be there already.
            strict: Stop at the first compile.
            restored: See `watch`.
        """

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """What the runtime in the worker is to do; JSON values."""

    def contents(self, live_root: Path) -> frozenset[str]:
        """The finished files in a live root, by relative path; whole modules where the compiler keeps such."""

    def compare(self, old: Path, new: Path) -> Compared:
        """Compare what two runs left in their live roots.

        Raises:
            OSError: One of them cannot be read.
        """

    def failed(self, live_root: Path, names: Iterable[str]) -> Mapping[str, Failed]:
        """Of these modules, the ones of which a failure is known."""

    def binaries(self, names: Iterable[str]) -> int:
        """How many of these hold machine code: 0 new ones means that no compiler ran."""

    def harvest(
        self,
        live_root: Path,
        before: frozenset[str],
        fingerprint: Fingerprint,
        workspace: Path,
        observed: Observed | None = None,
    ) -> Harvest | None:
        """Take what is finished and was not there before, or what the run itself reported; None where nothing is.

        Raises:
            OSError: The workspace cannot be written.
        """

    def restore(self, module: Module, files: Sequence[Blob], live_root: Path) -> Restored:
        """Put a module back, where nothing stands in its way. Its bytes are checked meanwhile.

        Raises:
            UnsafeArchiveError: The module is not what this adapter makes.
        """


class Judged(Struct, frozen=True):
    """What a look into a module's files found.

    Attributes:
        graphs: How many compiled graphs are in the module.
        harm: What of it is damage, or why a graph is not the one that its place says; empty where nothing is.
        oddity: What of it nobody here understands, and what may be sound all the same.
    """

    graphs: int = 1
    harm: str = ""
    oddity: str = ""


class Explained(Struct, frozen=True):
    """What of a module's name is none of the recorded ones'.

    Attributes:
        relation: One word for programs: `new-graph`, `new-flags`, …
        words: Sentences for people.
    """

    relation: str
    words: tuple[str, ...]


class Unfit(Struct, frozen=True):
    """A unit of a foreign cache that is not taken.

    Attributes:
        name: The unit's name.
        path: Where it lies.
        reason: Why it is left.
        state: What it is: `failed`, `locked`, `empty`, …; `refused` is a finished one that is damaged, changed while
            it was read, or cannot be read.
    """

    name: str
    path: Path
    reason: str
    state: str = "refused"


class Units(Struct, frozen=True):
    """What a foreign cache holds of one compiler version.

    Attributes:
        directory: The compiler's folder, as records have it.
        fresh: Names of finished units that the store does not have.
        known: Names of those that it has.
        found: The adapter's own note of the fresh ones.
    """

    directory: str
    fresh: tuple[str, ...]
    known: tuple[str, ...]
    found: Any = None


class Scanned(Struct, frozen=True):
    """What a foreign cache holds.

    Attributes:
        groups: By compiler version.
        left: Units that are not taken.
        strangers: What else lies there: paths, and what they are.
    """

    groups: tuple[Units, ...]
    left: tuple[Unfit, ...] = ()
    strangers: tuple[tuple[Path, str], ...] = ()


class Taken(Struct, frozen=True):
    """What was taken of a group of units, or would be.

    Attributes:
        names: Of the units, sorted.
        modules: Names of the modules that they become; empty where only taking them tells.
        size: Their bytes.
        harvest: The modules; None where nothing was taken, or only looked at.
        left: Units that turned out unfit.
        strangers: Paths that lie among the units' files and are none of them, and what they are.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    size: int
    harvest: Harvest | None = None
    left: tuple[Unfit, ...] = ()
    strangers: tuple[tuple[Path, str], ...] = ()


class Place(Struct, frozen=True):
    """Where a compiler keeps its own cache on this host, whoever runs it.

    Attributes:
        url: As it was said, but for a secret in it, or the default.
        path: The local folder; None where it is no local one (a bucket).
        origin: The variable that says so, or `default`.
        caching: False where the cache is switched off.
        exists: The folder is there.
        file_system: Of the local folder.
        warnings: What is wrong or doubtful about the place, a sentence each.
    """

    url: str
    path: Path | None
    origin: str
    caching: bool
    exists: bool
    file_system: str
    warnings: tuple[str, ...]


class ForeignCache(Protocol):
    """A compiler's own cache as a folder that other tools read and fill, too. Its units are graphs or whole modules."""

    holds: str
    """What such a folder has, for people: `a neuronxcc-<version> folder`."""
    default: str
    """Where it is by default."""
    example: str
    """The name of a module, for people."""

    def finds(self, folder: Path) -> bool:
        """Whether a folder is such a cache.

        Raises:
            OSError: It cannot be read.
        """

    def scan(self, folder: Path, known: frozenset[str], tell: Sink) -> Scanned:
        """What is in it; the cache may be in use.

        Args:
            folder: The cache's root, or one compiler's folder in it.
            known: Units that the store has; they are not read.
            tell: Told how far it is: `import.reading`.
        """

    def take(self, group: Units, workspace: Path | None, tell: Sink) -> Taken:
        """Take the fresh units of a group.

        Args:
            group: As `scan` found it.
            workspace: A private folder; None only looks.
            tell: Told how far it is: `import.reading`.

        Raises:
            OSError: The workspace cannot be written.
        """

    def units(self, module: Module, path: Callable[[File], Path]) -> Iterable[str]:
        """The names of the units in a module of the store; none where it cannot be read."""

    def check(self, module: Module) -> None:
        """See that a module is one of such a cache.

        Raises:
            UnsafeArchiveError: It is not.
        """

    def sweep(self, folder: Path) -> None:
        """Remove from a cache what killed processes of ours left in it."""

    def put(self, module: Module, path: Callable[[File], Path], folder: Path, *, dry_run: bool) -> Restored:
        """Put a module of the store into a cache, which may be in use.

        Args:
            module: The module.
            path: Opens a file of the store; its bytes are checked.
            folder: The cache's root; made if need be.
            dry_run: Only say what would become of it.

        Raises:
            IntegrityError: The module is damaged.
            OSError: The folder cannot be written.
        """

    def names(self, name: str) -> bool:
        """Whether this is the name of a module of such a cache; or, without a `/`, of a compiler's folder in it."""

    def asked(self, name: str) -> Sequence[str]:
        """Paths on a remote that tell whether a module is there, and finished."""

    def module_of(self, path: str) -> str:
        """The module that a path on a remote belongs to; empty where it is none of one."""

    def unfit(self, name: str, sizes: Mapping[str, int], *, versions: bool) -> str:
        """Why a module on a remote is left; empty where it is finished.

        Args:
            name: The module's name.
            sizes: Bytes of each file that lies there, by its name in the module.
            versions: The remote keeps versions, and so nobody compiles in it.
        """

    def wanted(self, name: str, file: str) -> bool:
        """Whether a file that lies with a module belongs to it."""


class Adapter:
    """What is known of a compiler without a machine. Each method has a default, for adapters that do nothing else.

    Attributes:
        name: As recipes, records and `--compiler` name the compiler.
        prefix: How the folders of its records, and so the names of its modules, begin.
        foreign: Beginnings of ingredients that its own key does not tell apart: records that differ in one share no
            graph.
        foreign_cache: The compiler's own cache as a folder; None where it has none that others read.
    """

    name = ""
    prefix = ""
    foreign_cache: ForeignCache | None = None

    def here(self, *, compiles: bool) -> bool:
        """Whether this machine compiles with it, where nobody says which compiler. Asked at every start.

        Args:
            compiles: Something is to compile.

        Raises:
            CompilerUnavailableError: Something is to compile, and the machine has the compiler's device without the
                packages for it.
        """
        return False

    def open(self, node: Node | None = None) -> Compiler:
        """The compiler on this machine.

        Args:
            node: This machine's place, where several train together.

        Raises:
            CompilerUnavailableError: It is not there.
        """
        raise NotImplementedError

    def elsewhere(self, toolchain: str, instance: str) -> Compiler:
        """The compiler on a machine of the registry.

        Raises:
            UsageError: It compiles for this machine only.
            UnknownNameError: The registry has no such toolchain or instance.
        """
        raise UsageError(
            f"{self.name} compiles for this machine only",
            hint="leave --toolchain and --instance out, or take --compiler neuron",
        )

    def instance(self) -> str:
        """This machine's type, where the compiler's device tells; else empty."""
        return ""

    def toolchain(self, directory: str) -> dict[str, str]:
        """The versions that a folder's name tells, by package."""
        return {}

    def checks(self) -> Sequence[Check]:
        """What `cachekit doctor` looks at for this compiler."""
        return ()

    def places(self) -> Mapping[str, Place]:
        """Where the compiler keeps its own cache on this host, by what the place is called: `neuron_cache`."""
        return {}

    def graph(self, module: Module) -> File | None:
        """The file of a module that `judge` looks into; None where it looks into none."""
        return None

    def judge(self, module: Module, path: Callable[[File], Path]) -> Judged:
        """Look into a module's files: are they whole, and what their name says. Nothing is executed or unpacked.

        Args:
            module: The module.
            path: Where a file of it lies.

        Raises:
            OSError: A file cannot be read.
        """
        return Judged()

    def describe(self, path: Path) -> dict[str, Any] | None:
        """What a compiled file says of itself: `state`, `reason`, and whatever else; None where it describes none.

        Args:
            path: The file, wherever it lies. Whatever it is, nothing is raised.
        """
        return None

    def describe_modules(self, modules: Sequence[Module], path: Callable[[File], Path]) -> dict[str, dict[str, Any]]:
        """What the files of a record's modules say, for people: fields to show beside each module, by its name.

        Args:
            modules: The modules.
            path: Where a file of them lies.
        """
        return {}

    def leaks(self, file: File, path: Path, *, archive: bool) -> Leaks:
        """What a file of a record would tell strangers.

        Args:
            file: The file, as its module names it.
            path: Where it lies.
            archive: It is an archive of a whole warm.
        """
        return of_archive(path) if archive else of_file(path)

    def explain(self, name: str, old: Any, new: Any, sides: tuple[str, str]) -> list[str]:
        """Sentences about one ingredient that differs in two records; none where its values speak for themselves.

        Args:
            name: The ingredient.
            old: Its value in the record.
            new: And in the recipe.
            sides: What to call the two.
        """
        return []

    def explain_module(
        self, name: str, recorded: Sequence[str], flags: Mapping[str, Sequence[str]]
    ) -> Explained | None:
        """What of a module's name is new; None where names tell nothing.

        Args:
            name: The module's.
            recorded: Names of the modules that were recorded before it compiled.
            flags: Flags by module, as far as they are known.
        """
        return None

    def flags_of(self, record: Record, path: Callable[[File], Path]) -> dict[str, list[str]]:
        """The flags that each module of a record was compiled with, by module; none where they lie in no file.

        Args:
            record: The record.
            path: Where a file of it lies.
        """
        return {}

    def assumed(self) -> Subject | None:
        """What is assumed of this machine's compiler because nobody can read it; None where that is nothing.

        Raises:
            CompilerUnavailableError: It is not there, or has no device.
        """
        return None


class Runtime(Protocol):
    """The compiler, seen from inside the training worker. A runtime is a module with these functions."""

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Configure the compiler; called before any model exists."""

    def arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Training arguments that the compiler needs, over those of the recipe; none of them changes a result."""

    def model_options(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords for loading the model; none of them changes what it computes."""

    def compile_model(self, model: Any, settings: Mapping[str, Any]) -> None:
        """Arrange for the model's forward pass, and the backward pass it leads to, to be compiled."""

    def adapt(self, trainer: Any) -> None:
        """Change what of the Trainer the compiler cannot bear; called before it runs."""

    def counters(self) -> dict[str, int]:
        """Graphs so far: `found` in the cache, `compiled`; and the compiler's own numbers."""

    def finish(self) -> None:
        """Called after everything else, in every worker."""


class Guest(Protocol):
    """The compiler in a process that is the user's own. A guest is a module with these functions; it loads nothing."""

    def join(self, *, found: bool) -> list[str]:
        """Configure the compiler, now or when it is loaded.

        Args:
            found: Everything it needs is expected to be there.

        Returns:
            What stands in the way of finding or keeping graphs, a sentence each.
        """

    def counters(self) -> dict[str, int] | None:
        """Graphs so far in this process: `found`, `compiled`; None where only the live root tells."""

    def compile_seconds(self) -> float:
        """What compiling took so far in this process; 0 where it is not known."""
