"""Warm every entry of a list: what fails is told at the end, and does not keep the others from being warm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cachekit.errors import CachekitError, InterruptedRunError
from cachekit.recipe.matrix import Entry

SHOWN = 3  # failures that the error names


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an entry.

    Attributes:
        document: What warming it, or planning it, said; empty where it failed.
        error: Why it failed.
    """

    entry: Entry
    document: dict[str, Any]
    error: CachekitError | None = None

    @property
    def status(self) -> str:
        """`compiled`, `hit`, `failed`, or of a plan `miss`."""
        return "failed" if self.error else str(self.document["status"])

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        said = {name: self.document.get(name) for name in ("key", "compiled", "seconds", "compile_seconds")}
        return {
            "name": self.entry.name,
            "recipe": self.entry.recipe,
            "set": list(self.entry.overrides),
            "status": self.status,
            **said,
            "error": self.error.as_dict() if self.error else None,
        }


def warm_matrix(
    entries: Iterable[Entry], one: Callable[[Entry], dict[str, Any]], tell: Callable[[int, Entry], None]
) -> list[Outcome]:
    """Warm one after the other.

    Args:
        entries: What to warm.
        one: Warms an entry, or plans it, and says what it did.
        tell: Is told before each, with its number from 1.
    """
    outcomes = []
    for number, entry in enumerate(entries, 1):
        tell(number, entry)
        try:
            outcomes.append(Outcome(entry, one(entry)))
        except InterruptedRunError:
            raise
        except CachekitError as error:
            outcomes.append(Outcome(entry, {}, error))
    return outcomes


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """For programs: how many there are of each kind, and what became of each."""
    kinds = ["compiled", "hit", "miss", "failed"]
    counts = {kind: sum(outcome.status == kind for outcome in outcomes) for kind in kinds}
    return {**counts, "entries": [outcome.as_dict() for outcome in outcomes]}


def failure(outcomes: list[Outcome], verb: str) -> CachekitError | None:
    """One error for all that failed, with the first one's code; None where nothing did.

    Args:
        outcomes: Of all.
        verb: What was to be done, `warmed`.
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not failed:
        return None
    first = failed[0].error
    assert first is not None
    names = ", ".join(outcome.entry.name for outcome in failed[:SHOWN]) + (", ..." if len(failed) > SHOWN else "")
    told = CachekitError(
        f"{len(failed)} of {len(outcomes)} could not be {verb}: {names}",
        cause=f"{failed[0].entry.name}: {first}" + (f": {first.cause}" if first.cause else ""),
        hint=first.hint,
    )
    told.code, told.exit_code = first.code, first.exit_code
    return told
