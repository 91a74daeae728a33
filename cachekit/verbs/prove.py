"""Whether this host's Neuron does what cachekit promises, and is what cachekit takes it for: one experiment."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cachekit.compilers.evidence import Subject, Verdict, count
from cachekit.compilers.experiment import COMMAND, Proof, kept
from cachekit.compilers.registry import every
from cachekit.config import defaults
from cachekit.errors import CompilerUnavailableError, StoreError
from cachekit.health import Finding
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs import doctor


class Contract(Answer, frozen=True):
    """What cachekit promises and assumes of Neuron, and what this host's Neuron does.

    Attributes:
        compiler: Which of Neuron's two it is; empty where there is none.
        problem: Why there is none to compare with; empty where there is.
        hint: What helps then.
        seconds: Wall time.
        findings: What `doctor` finds of Neuron's packages, tools, devices and cache.
        promises: What the experiment shows of each promise.
        assumptions: What it shows of each assumption.
        counts: How many promises and assumptions are `ok`, `differs` and `unknown`.
        good: There is a Neuron, doctor finds nothing wrong with it, and nothing that was looked at differs.
    """

    compiler: str = ""
    problem: str = ""
    hint: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    promises: tuple[Verdict, ...] = ()
    assumptions: tuple[Verdict, ...] = ()
    counts: Mapping[str, int] = {}
    good: bool = False


def neuron_contract(
    *,
    tell: Callable[[str], None] = lambda _: None,
    command: Sequence[str] = COMMAND,
) -> Contract:
    """Make the experiment, in a temporary folder that is gone afterwards; the user's own cache is never touched.

    Args:
        tell: Told what begins, as it may take minutes.
        command: The command line of cachekit.

    Raises:
        StoreError: No temporary folder can be made.
    """
    start = time.monotonic()
    installed = [check for adapter in every() for check in adapter.checks() if check.installed]
    findings = doctor.doctor(defaults(), installed).findings[1:]  # the first is of settings
    try:
        subject = assumed()
    except CompilerUnavailableError as error:
        problem = "; ".join(filter(None, (error.message, error.cause)))
        return Contract(problem=problem, hint=error.hint, findings=findings, counts=count(()))
    with _folder() as folder:
        promises, assumptions = prove(subject, Proof(subject, folder, command=command, tell=tell))
    counts = count((*promises, *assumptions))
    return Contract(
        compiler=subject.compiler,
        seconds=round(time.monotonic() - start, 1),
        findings=findings,
        promises=promises,
        assumptions=assumptions,
        counts=counts,
        good=not counts["differs"] and not any(finding.state == "problem" for finding in findings),
    )


def assumed() -> Subject:
    """The first compiler of this machine of which anything is assumed.

    Raises:
        CompilerUnavailableError: It is not there, or has no device.
    """
    found = next(filter(None, (adapter.assumed() for adapter in every())), None)
    if found is None:
        raise CompilerUnavailableError("no compiler on this machine has assumptions that could be proved")
    return found


def prove(subject: Subject, proof: Proof) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...]]:
    """What an experiment shows of the promises, and of what is assumed."""
    seen = proof.make()
    return tuple(kept(seen)), tuple(subject.check(seen))


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        # With no dot in its name: optimum-neuron would cut such a path off.
        folder = Path(tempfile.mkdtemp(prefix="cachekit-contract-"))
    except OSError as error:
        raise StoreError(
            "no temporary folder can be made",
            cause=cause_of(error),
            hint="make room in it, or set TMPDIR to a folder on a local disk",
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
