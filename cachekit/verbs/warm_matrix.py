"""Warm every entry of a list: what fails is told at the end, and does not keep the others from being warm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from cachekit.errors import CachekitError, InterruptedRunError
from cachekit.recipe.variant import MatrixEntry
from cachekit.values import Answer
from cachekit.verbs.planned import Planned, Warmed, together


class EntryOutcome(Struct, frozen=True, kw_only=True):
    """What became of an entry.

    Attributes:
        set: Its overrides.
        status: `compiled`, `hit`, `failed`, or of a plan `miss`.
        compiled: Graphs; None where only planned, or failed. So for `seconds`.
        error: Why it failed.
    """

    name: str
    recipe: str
    set: tuple[str, ...]
    status: str = "failed"
    key: str | None = None
    compiled: int | None = None
    seconds: float | None = None
    compile_seconds: float | None = None
    error: CachekitError | None = None


class WarmedAll(Answer, frozen=True):
    """What became of a list: how many entries of each kind there are, and each.

    Attributes:
        dry_run: The entries were only planned.
    """

    dry_run: bool
    compiled: int
    hit: int
    miss: int
    failed: int
    entries: tuple[EntryOutcome, ...]

    def error(self) -> CachekitError | None:
        """One error for all that failed, with the first one's code; None where nothing did."""
        failed = [(entry.name, entry.error) for entry in self.entries if entry.error]
        return together(failed, len(self.entries), "planned" if self.dry_run else "warmed")


def warm_matrix(
    entries: Iterable[MatrixEntry],
    one: Callable[[MatrixEntry], Planned],
    tell: Callable[[int, MatrixEntry], None],
    *,
    dry_run: bool,
) -> WarmedAll:
    """Warm one after the other.

    Args:
        entries: What to warm.
        one: Warms an entry, or plans it.
        tell: Is told before each, with its number from 1.
        dry_run: See `WarmedAll`.
    """
    outcomes = []
    for number, entry in enumerate(entries, 1):
        tell(number, entry)
        name, recipe, overrides = entry.name, entry.recipe, tuple(entry.overrides)
        try:
            done = one(entry)
        except InterruptedRunError:
            raise
        except CachekitError as error:
            outcomes.append(EntryOutcome(name=name, recipe=recipe, set=overrides, error=error))
            continue
        warmed = done if isinstance(done, Warmed) else None
        outcomes.append(
            EntryOutcome(
                name=name,
                recipe=recipe,
                set=overrides,
                status=done.status,
                key=done.key,
                compiled=warmed.compiled if warmed else None,
                seconds=warmed.seconds if warmed else None,
                compile_seconds=warmed.compile_seconds if warmed else done.expected_seconds,
            )
        )
    counts = Counter(outcome.status for outcome in outcomes)
    return WarmedAll(dry_run, counts["compiled"], counts["hit"], counts["miss"], counts["failed"], tuple(outcomes))
