"""A compiler's own cache as a folder that other tools read and fill: what import, export and modules by name ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from cachekit.compilers.port import Harvest, Restored, Sink
from cachekit.store.record import File, Module


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
