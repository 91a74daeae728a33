"""Compare what cachekit assumes of Neuron with the Neuron of this host: `cachekit doctor --neuron-contract`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron.contract import STATES, Check, Lab, UnknownError, checks_of, examine
from cachekit.compilers.neuron.host import INSTALL
from cachekit.errors import StoreError

Tell = Callable[[str], None]


def _silent(_: str) -> None:
    """Tell nobody."""


def neuron_contract(
    *,
    quick: bool = False,
    tell: Tell = _silent,
    checks: Iterable[Check] | None = None,
    laboratory: Callable[..., Lab] = Lab,
) -> dict[str, Any]:
    """Check every assumption, in a temporary folder that is gone afterwards; the user's cache is never touched.

    Args:
        quick: Nothing is compiled.
        tell: Told what begins, as it may take a minute.
        checks: Which ones; by default those of what is installed here, on XLA or TorchNeuron.
        laboratory: Makes the place of the experiments, from a folder and the arguments of `Lab`.

    Returns:
        JSON values: whether this is TorchNeuron, the checks with their outcomes, how many there are of each state,
        seconds, and what is wrong where there is no Neuron at all.
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
    counts = Counter(outcome.state for outcome in outcomes)
    return {
        "neuron": not problem,
        "native": lab.is_native,
        "problem": problem,
        "hint": f"{INSTALL}; on a trn1, trn2 or inf2 instance" if problem else "",
        "quick": quick,
        "seconds": round(time.monotonic() - start, 1),
        "counts": {state: counts[state] for state in STATES},
        "checks": [outcome.as_dict() for outcome in outcomes],
    }


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


def exit_code(document: dict[str, Any]) -> int:
    """0 where nothing differs; 1 where something does, or where there is no Neuron to compare with."""
    return int(bool(document["counts"]["differs"]) or not document["neuron"])
