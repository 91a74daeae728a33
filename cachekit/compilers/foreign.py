"""A compiler's own cache as a folder that other tools read and fill: import, export and modules by name use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from cachekit.compilers.port import Harvest, Restored, Sink
from cachekit.files import Opener
from cachekit.store.record import File, Module


class Unfit(Struct, frozen=True):
    """A unit of a foreign cache that is not taken.

    Attributes:
        state: `failed`, `locked`, `empty`, …; `refused` is a finished unit that is damaged, changed while it was read,
            or cannot be read.
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
        known: Names of finished units that the store has.
        found: The adapter's own note of the fresh ones.
    """

    directory: str
    fresh: tuple[str, ...]
    known: tuple[str, ...]
    found: Any = None


class Scanned(Struct, frozen=True):
    """What a foreign cache holds.

    Attributes:
        groups: One for each compiler version.
        left: Units that are not taken.
        unknown: What else lies there: paths, and what they are.
    """

    groups: tuple[Units, ...]
    left: tuple[Unfit, ...] = ()
    unknown: tuple[tuple[Path, str], ...] = ()


class Taken(Struct, frozen=True):
    """What was taken of a group of units, or would be.

    Attributes:
        names: The units' names, sorted.
        size: The units' bytes.
        harvest: The modules that the units become; None if there are none. Only a workspace gets their files.
        left: Units that turned out unfit.
        unknown: Other paths among the units' files, and what they are.
    """

    names: tuple[str, ...]
    size: int
    harvest: Harvest | None = None
    left: tuple[Unfit, ...] = ()
    unknown: tuple[tuple[Path, str], ...] = ()


class ForeignCache(Protocol):
    """A compiler's own cache as a folder that other tools read and fill as well; its units are graphs or modules."""

    holds: str
    """What such a folder contains, for people: `a neuronxcc-<version> folder`."""
    default: str
    """Where the cache is by default."""
    example: str
    """The name of a module, for people."""

    def finds(self, folder: Path) -> bool:
        """Whether a folder is such a cache.

        Raises:
            OSError: It cannot be read.
        """

    def scan(self, folder: Path, known: frozenset[str], tell: Sink) -> Scanned:
        """What is in a cache, which may be in use.

        Args:
            folder: The cache's root, or one compiler's folder in it.
            known: Units that the store has; they are not read.
            tell: Told of the progress: `import.reading`.
        """

    def take(self, group: Units, workspace: Path | None, tell: Sink, opener: Opener) -> Taken:
        """Take the fresh units of a group; without a workspace, a private folder, only look at them.

        Every file that is taken is opened by `opener`: no record says what is in it.

        Raises:
            OSError: The workspace cannot be written.
            UntrustedError: As `opener` has it.
        """

    def units(self, module: Module, path: Callable[[File], Path]) -> Iterable[str]:
        """The names of the units in a module of the store; none if the module cannot be read."""

    def check(self, module: Module) -> None:
        """Make sure that a module is one of such a cache.

        Raises:
            UnsafeArchiveError: The module is something else.
        """

    def sweep(self, folder: Path) -> None:
        """Remove what killed processes of ours left in a cache."""

    def put(self, module: Module, path: Callable[[File], Path], folder: Path, *, dry_run: bool) -> Restored:
        """Put a module of the store into a cache, which may be in use.

        Args:
            module: The module.
            path: Opens a file of the store; its bytes are checked.
            folder: The cache's root; created if needed.
            dry_run: Only say what would happen.

        Raises:
            IntegrityError: The module is damaged.
            OSError: The folder cannot be written.
        """

    def names(self, name: str) -> bool:
        """Whether this is the name of a module of such a cache; or, without a `/`, of a compiler's folder in it."""

    def asked(self, name: str) -> Sequence[str]:
        """The paths on a remote that show whether a module is there and finished."""

    def module_of(self, path: str) -> str:
        """The module that a path on a remote belongs to; empty if it belongs to none."""

    def unfit(self, name: str, sizes: Mapping[str, int], *, versions: bool) -> str:
        """Why a module on a remote is not taken; empty if it is finished.

        Args:
            name: The module's name.
            sizes: Bytes of each file that lies there, by its name in the module.
            versions: The remote keeps versions, so nobody compiles in it.
        """

    def wanted(self, name: str, file: str) -> bool:
        """Whether a file that lies with a module belongs to it."""
