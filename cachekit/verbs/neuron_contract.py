"""Compare what cachekit assumes of Neuron with the Neuron of this host: `cachekit doctor --neuron-contract`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron.contract import STATES, Check, Lab, Outcome, UnknownError, checks_of, examine
from cachekit.compilers.neuron.host import INSTALL
from cachekit.errors import StoreError

Tell = Callable[[str], None]


def _silent(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What cachekit assumes of Neuron, and what this host's Neuron does.

    Attributes:
        problem: Why there is no Neuron to compare with; empty where there is.
        quick: Nothing was compiled.
        seconds: Wall time.
        outcomes: Of each check.
        native: It is TorchNeuron that was asked, and not the cache on XLA.
    """

    problem: str
    quick: bool
    seconds: float
    outcomes: tuple[Outcome, ...]
    native: bool = False

    @property
    def differing(self) -> tuple[Outcome, ...]:
        """What is not as it was assumed."""
        return tuple(outcome for outcome in self.outcomes if outcome.state == "differs")

    @property
    def good(self) -> bool:
        """There is a Neuron, and nothing differs, as far as it could be looked at."""
        return not self.problem and not self.differing

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        counts = Counter(outcome.state for outcome in self.outcomes)
        return {
            "neuron": not self.problem,
            "native": self.native,
            "problem": self.problem,
            "hint": f"{INSTALL}; on a trn1, trn2 or inf2 instance" if self.problem else "",
            "quick": self.quick,
            "seconds": round(self.seconds, 1),
            "counts": {state: counts[state] for state in STATES},
            "checks": [outcome.as_dict() for outcome in self.outcomes],
        }


def neuron_contract(
    *,
    quick: bool = False,
    tell: Tell = _silent,
    checks: Iterable[Check] | None = None,
    laboratory: Callable[..., Lab] = Lab,
) -> Contract:
    """Check every assumption, in a temporary folder that is gone afterwards; the user's cache is never touched.

    Args:
        quick: Nothing is compiled.
        tell: Told what begins, as it may take a minute.
        checks: Which ones; by default those of what is installed here, on XLA or TorchNeuron.
        laboratory: Makes the place of the experiments, from a folder and the arguments of `Lab`.

    Raises:
        StoreError: No temporary folder can be made.
    """
    start = time.monotonic()
    with _folder() as folder:
        lab = laboratory(folder / "lab", quick=quick, tell=tell)
        problem = ""
        try:
            lab.packages  # noqa: B018 - made when it is asked for
        except UnknownError as error:
            problem = str(error)
        outcomes = list(examine(checks_of(lab) if checks is None else checks, lab))
        native = lab.is_native
    return Contract(problem, quick, time.monotonic() - start, tuple(outcomes), native)


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        # With no dot in its name: optimum-neuron would cut such a path off.
        folder = Path(tempfile.mkdtemp(prefix="cachekit-contract-"))
    except OSError as error:
        raise StoreError(
            "no temporary folder can be made",
            cause=error.strerror or str(error),
            hint="make room in it, or set TMPDIR to a folder on a local disk",
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
