"""What cachekit asks of a compiler. Adapters implement it; nothing else knows a compiler's paths and variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cachekit.ingredients import Fingerprint
from cachekit.recipe import Recipe
from cachekit.record import Module


@dataclass(frozen=True, slots=True)
class Harvest:
    """What a run left in the live root that is worth keeping.

    Attributes:
        modules: As they go into the record.
        files: Finished files by SHA-256, in the workspace that was given.
    """

    modules: tuple[Module, ...]
    files: Mapping[str, Path]


class Compiler(Protocol):
    """A compiler, seen from the process that plans, starts workers and keeps what they make."""

    name: str
    runtime: str
    """The module that the training worker imports; it implements `Runtime`."""

    def fingerprint(self) -> Fingerprint:
        """What this compiler is on this machine, without importing it.

        Raises:
            CompilerUnavailableError: It, or something it needs, is not there.
        """

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """Canonical flags and options, and what else in this process's environment shapes its graphs.

        Raises:
            RecipeError: A flag or option that the compiler cannot take.
        """

    def environment(self, recipe: Recipe, live_root: Path, *, found: bool) -> dict[str, str | None]:
        """Variables for the worker; None unsets one.

        Args:
            recipe: The recipe.
            live_root: Where the compiler looks and writes.
            found: Everything it needs is expected to be there already.
        """

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """What the runtime in the worker is to do; JSON values."""

    def contents(self, live_root: Path) -> frozenset[str]:
        """The finished files in a live root, by relative path."""

    def binaries(self, names: Iterable[str]) -> int:
        """How many of these files hold machine code: 0 new ones means that no compiler ran."""

    def harvest(
        self, live_root: Path, before: frozenset[str], fingerprint: Fingerprint, workspace: Path
    ) -> Harvest | None:
        """Take what is finished and was not there before; None where nothing is.

        Raises:
            OSError: The workspace cannot be written.
        """

    def restore(self, module: Module, files: Sequence[Path], live_root: Path) -> int:
        """Put a module back; returns bytes written. The caller checks the bytes meanwhile.

        Raises:
            UnsafeArchiveError: The module is not what this adapter makes.
        """


class Runtime(Protocol):
    """The compiler, seen from inside the training worker. A runtime is a module with these functions."""

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Configure the compiler; called before any model exists."""

    def compile_model(self, model: Any, settings: Mapping[str, Any]) -> None:
        """Arrange for the model's forward pass, and the backward pass it leads to, to be compiled."""

    def counters(self) -> dict[str, int]:
        """Graphs so far: `found` in the cache, `compiled`; and the compiler's own numbers."""
