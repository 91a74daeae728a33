"""What is known of a compiler by its name: the part of the port that needs no SDK and no machine.

Each compiler has an adapter here; `registry` names them. What runs on a machine is `port.Compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.compilers.port import Compiler, Node
from cachekit.errors import UsageError
from cachekit.key.canonical import SIDES
from cachekit.store.record import File, Module, Record

if TYPE_CHECKING:
    from cachekit.compilers.evidence import Subject
    from cachekit.compilers.foreign import ForeignCache
    from cachekit.health import Check
    from cachekit.store.leaks import Leaks

# What `Adapter.describe` says of a file's state.
VERIFIED = "verified"  # whole, and understood
DAMAGED = "damaged"  # its bytes are not those that were written
UNKNOWN = "unknown"  # of no kind that is known here: nothing can be said about its bytes
ABSENT = "absent"  # no file, or none that can be read


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


class CachePlace(Struct, frozen=True):
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

    def attends(self, imports: Callable[[], Collection[str]]) -> bool:
        """Whether it is what compiles a user's own command, whose code says so.

        Args:
            imports: Gives the modules that the code imports, as its text says, without what follows their first dot.
                Reading the code takes time: call it only where the compiler is installed.
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

    def places(self) -> Mapping[str, CachePlace]:
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
        from cachekit.store.leaks import of_archive, of_file

        return of_archive(path) if archive else of_file(path)

    def explain(self, name: str, old: Any, new: Any, sides: tuple[str, str] = SIDES) -> list[str]:
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
