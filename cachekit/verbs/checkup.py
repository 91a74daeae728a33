"""A check of the store, and where that is wanted the repair of what it found: `cachekit verify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachekit.errors import IntegrityError
from cachekit.verbs.repair import Repaired
from cachekit.verbs.repair import repair as mend
from cachekit.verbs.session import Session
from cachekit.verbs.verify import Problem, Verified, failure, verify


@dataclass(frozen=True, slots=True)
class Checkup:
    """What a check found, and what became of that.

    Attributes:
        found: What was looked at, and what was bad.
        repaired: What was mended and what was not; None where nothing was to be.
    """

    found: Verified
    repaired: Repaired | None = None

    @property
    def bad(self) -> tuple[Problem, ...]:
        """What is bad still."""
        return self.found.problems if self.repaired is None else tuple(problem for problem, _ in self.repaired.left)

    @property
    def good(self) -> bool:
        """Nothing is."""
        return not self.bad

    def error(self) -> IntegrityError | None:
        """What to raise where something is bad still."""
        return failure(self.found, None if self.repaired is None else self.bad)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        done = self.repaired or Repaired((), ())
        return self.found.as_dict() | {
            "repaired": [{**problem.as_dict(), "from": source} for problem, source in done.mended],
            "not_repaired": [{**problem.as_dict(), "why": why} for problem, why in done.left],
        }


def checkup(session: Session, *, quick: bool = False, repair: bool = False) -> Checkup:
    """Check the store, and mend what can be mended.

    Args:
        session: Collaborators.
        quick: Hash nothing.
        repair: Mend.

    Raises:
        StoreError: The store cannot be read; or written, to repair.
    """
    found = verify(session, quick=quick)
    if not repair:
        return Checkup(found)
    # Nothing is written where nothing is to be mended.
    return Checkup(found, mend(session, found.problems) if found.problems else Repaired((), ()))
