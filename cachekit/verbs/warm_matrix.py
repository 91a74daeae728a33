"""Warm every entry of a list: what fails is told at the end, and does not keep the others from being warm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cachekit.errors import CachekitError, InterruptedRunError
from cachekit.recipe.matrix import MatrixEntry
from cachekit.verbs.plan import Plan
from cachekit.verbs.warm import Warmed

SHOWN = 3  # failures that the error names


@dataclass(frozen=True, slots=True)
class EntryOutcome:
    """What became of an entry.

    Attributes:
        answer: What warming it, or planning it, came to; None where it failed.
        error: Why it failed.
    """

    entry: MatrixEntry
    answer: Plan | Warmed | None
    error: CachekitError | None = None

    @property
    def status(self) -> str:
        """`compiled`, `hit`, `failed`, or of a plan `miss`."""
        return "failed" if self.error else str(self._document()["status"])

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        said = {name: self._document().get(name) for name in ("key", "compiled", "seconds", "compile_seconds")}
        return {
            "name": self.entry.name,
            "recipe": self.entry.recipe,
            "set": list(self.entry.overrides),
            "status": self.status,
            **said,
            "error": self.error.as_dict() if self.error else None,
        }

    def _document(self) -> dict[str, Any]:
        return self.answer.as_dict() if self.answer else {}


@dataclass(frozen=True, slots=True)
class WarmedAll:
    """What became of a list.

    Attributes:
        outcomes: Of each entry.
        verb: What was to be done: `warmed`, or `planned`.
    """

    outcomes: tuple[EntryOutcome, ...]
    verb: str

    def as_dict(self) -> dict[str, Any]:
        """For programs: how many there are of each kind, and what became of each."""
        kinds = ["compiled", "hit", "miss", "failed"]
        counts = {kind: sum(outcome.status == kind for outcome in self.outcomes) for kind in kinds}
        return {**counts, "entries": [outcome.as_dict() for outcome in self.outcomes]}

    def error(self) -> CachekitError | None:
        """One error for all that failed, with the first one's code; None where nothing did."""
        failed = [outcome for outcome in self.outcomes if outcome.error is not None]
        if not failed:
            return None
        first = failed[0].error
        assert first is not None
        names = ", ".join(outcome.entry.name for outcome in failed[:SHOWN]) + (", ..." if len(failed) > SHOWN else "")
        told = CachekitError(
            f"{len(failed)} of {len(self.outcomes)} could not be {self.verb}: {names}",
            cause=f"{failed[0].entry.name}: {first}" + (f": {first.cause}" if first.cause else ""),
            hint=first.hint,
        )
        told.code, told.exit_code = first.code, first.exit_code
        return told


def warm_matrix(
    entries: Iterable[MatrixEntry],
    one: Callable[[MatrixEntry], Plan | Warmed],
    tell: Callable[[int, MatrixEntry], None],
    *,
    verb: str,
) -> WarmedAll:
    """Warm one after the other.

    Args:
        entries: What to warm.
        one: Warms an entry, or plans it.
        tell: Is told before each, with its number from 1.
        verb: See `WarmedAll`.
    """
    outcomes = []
    for number, entry in enumerate(entries, 1):
        tell(number, entry)
        try:
            outcomes.append(EntryOutcome(entry, one(entry)))
        except InterruptedRunError:
            raise
        except CachekitError as error:
            outcomes.append(EntryOutcome(entry, None, error))
    return WarmedAll(tuple(outcomes), verb)
