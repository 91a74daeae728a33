"""What is known of a compiler by its name: the part of the port that needs no SDK and no machine.

Each compiler has an adapter here; `registry` names them. What runs on a machine is `port.Compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct, structs

from cachekit.compilers.port import Compiler, Node
from cachekit.errors import UsageError
from cachekit.key.canonical import SIDES
from cachekit.store.record import File, Module, Record

if TYPE_CHECKING:
    from cachekit.compilers.evidence import Subject
    from cachekit.compilers.foreign import ForeignCache
    from cachekit.compilers.graphs import CompiledFile, Logged, StoredModule
    from cachekit.health import Check
    from cachekit.store.leaks import Leaks


class Judged(Struct, frozen=True):
    """What a look into a module's files found.

    Attributes:
        graphs: How many compiled graphs are in the module.
        harm: What is damaged, or why a graph is not the one that its place says; empty if nothing is wrong.
        oddity: What nobody here understands, and what may be sound all the same.
    """

    graphs: int = 1
    harm: str = ""
    oddity: str = ""


class Explained(Struct, frozen=True):
    """What is new in a module's name.

    Attributes:
        relation: One word for programs: `new-graph`, `new-flags`, …
        words: Sentences for people.
    """

    relation: str
    words: tuple[str, ...]


class CachePlace(Struct, frozen=True):
    """Where a compiler keeps its own cache on this host, whoever runs it.

    Attributes:
        url: The place as it was given, without a secret in it, or the default.
        path: The local folder; None for a bucket.
        origin: The variable that names the place, or `default`.
        caching: False if the cache is switched off.
        exists: The folder is there.
        file_system: Of the local folder.
        warnings: What is wrong or doubtful about the place, one sentence each.
    """

    url: str
    path: Path | None
    origin: str
    caching: bool
    exists: bool
    file_system: str
    warnings: tuple[str, ...]

    @property
    def folder(self) -> Path | None:
        """The local folder, where it is there."""
        return self.path if self.exists else None


class WithoutDevice(Struct, frozen=True):
    """How a machine without a device compiles for one that has it.

    Attributes:
        variables: What must be set, so that the compiler asks no device.
        doubt: What nobody has shown of this, in a sentence.
    """

    variables: Mapping[str, str]
    doubt: str


class Adapter:
    """What is known of a compiler without a machine. Each method has a default, for adapters that do nothing else.

    Attributes:
        name: As recipes, records and `--compiler` name the compiler.
        prefix: How the folders of its records, and so the names of its modules, begin.
        foreign_cache: The compiler's own cache as a folder that other tools read; None if there is none.
    """

    name = ""
    prefix = ""
    foreign_cache: ForeignCache | None = None

    def packages(self) -> Collection[str]:
        """Packages whose installation its own checks look at, and for which they have a line of their own."""
        return ()

    def here(self, *, compiles: bool) -> bool:
        """Whether this machine compiles with it if nobody names a compiler. Asked at every start.

        Args:
            compiles: Something is to compile.

        Raises:
            CompilerUnavailableError: Something is to compile, and the machine has the compiler's device without the
                packages for it.
        """
        return False

    def device(self) -> str:
        """Words for devices of this machine that only this compiler serves, with what shows them; empty for none."""
        return ""

    def attends(self, imports: Callable[[], Collection[str]]) -> bool:
        """Whether it compiles a user's own command, as the command's code shows.

        Args:
            imports: Gives the top-level modules that the code imports. Reading the code takes time: call it only if
                the compiler is installed.
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
            hint="leave out --toolchain, --target and --instance, or use --compiler neuron",
        )

    def without_device(self, instance: str) -> WithoutDevice:
        """How a machine without a device compiles for an instance type of the registry.

        Raises:
            UsageError: It compiles for the machine that it runs on, or not for that one.
            UnknownNameError: The registry has no such instance type.
        """
        raise UsageError(
            f"{self.name} compiles for the machine that it runs on",
            cause="its machine code is for that machine's processor or GPU",
            hint="leave out --for, and warm on a machine like the one that trains",
        )

    def instance(self) -> str:
        """This machine's type, if the compiler's device shows it; else empty."""
        return ""

    def toolchain(self, directory: str) -> dict[str, str]:
        """The versions in the name of a record's folder, by package."""
        return {}

    def checks(self) -> Sequence[Check]:
        """What `cachekit doctor` looks at for this compiler."""
        return ()

    def places(self) -> Mapping[str, CachePlace]:
        """Where the compiler keeps its own caches on this host, by their names: `neuron_cache`."""
        return {}

    def graph(self, module: Module) -> File | None:
        """The file of a module that `judge` looks into; None if it looks into none."""
        return None

    def judge(self, module: Module, path: Callable[[File], Path]) -> Judged:
        """Look into a module's files: are they whole, and what their name says? Nothing is executed or unpacked.

        Raises:
            OSError: A file cannot be read.
        """
        return Judged()

    def lacks(self, modules: Sequence[Module]) -> str:
        """What a record's modules themselves say that they lack, so that it cannot be restored; empty where nothing."""
        return ""

    def describe(self, path: Path) -> CompiledFile | None:
        """What any compiled file says of itself; None if the adapter describes no files. Never raises."""
        return None

    def describe_modules(self, modules: Sequence[Module], path: Callable[[File], Path]) -> Sequence[StoredModule]:
        """A record's modules, with what their files say, for people."""
        from cachekit.compilers.graphs import StoredModule

        return [StoredModule(**structs.asdict(module)) for module in modules]

    def read_log(self, log: BinaryIO) -> Logged | None:
        """What a log tells of this compiler's work; None if it has none of its words.

        Raises:
            OSError: It cannot be read.
        """
        return None

    def leaks(self, file: File, path: Path, *, archive: bool) -> Leaks:
        """What a file of a record would tell others; it may be the archive of a whole warm."""
        from cachekit.store.leaks import of_archive, of_file

        return of_archive(path) if archive else of_file(path)

    def explain(self, name: str, old: Any, new: Any, sides: tuple[str, str] = SIDES) -> list[str]:
        """Sentences about one ingredient that differs; none if its values speak for themselves.

        Args:
            name: The ingredient.
            old: Its value in the record.
            new: Its value in the recipe.
            sides: What to call the two.
        """
        return []

    def explain_modules(
        self, names: Sequence[str], new: Collection[str], record: Record, path: Callable[[File], Path]
    ) -> dict[str, Explained]:
        """What is new in the names of modules, by name; nothing if names tell nothing.

        Args:
            names: The modules to explain.
            new: Those modules of the record that it did not have before.
            record: The record as it is now.
            path: Where a file of it lies.
        """
        return {}

    def explain_counters(self, counters: Mapping[str, int]) -> Sequence[str]:
        """Sentences on why something compiled in a run, by what the compiler counted; none if no counter is its own."""
        return ()

    def assumed(self) -> Subject | None:
        """What is assumed of this machine's compiler because nobody can read it; None if nothing is.

        Raises:
            CompilerUnavailableError: The compiler is not there, or has no device.
        """
        return None
