"""How long compiling takes by what shapes a job: a law for each compiler, which records then correct.

A law says for each measure of a job how compile seconds grow with it: `seconds ~ measure ** power`. It is only where
an estimate begins (`actions.estimate`): each power has a spread, and records of this machine move it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Law:
    """What is believed of a compiler before anything was measured.

    Attributes:
        layers: What a compile takes beside its layers, in layers: seconds grow as `layers + this`.
        powers: By measure, the power with which seconds grow, and how far off that may be (one standard deviation).
        source: Where it comes from.
    """

    layers: float
    powers: Mapping[str, tuple[float, float]]
    source: str


# Inductor writes C++ for each layer anew, whatever its width and batch: sizes are numbers in the code. What is the
# same for all (tracing's start, optimizer, loss, the first kernels) takes as long as some layers.
_INDUCTOR = Law(
    layers=3.0,
    powers={
        "layers": (1.0, 0.2),
        "width": (0.0, 0.06),
        "vocabulary": (0.0, 0.03),
        "tokens": (0.0, 0.04),
        "length": (0.0, 0.04),
        "accumulates": (0.0, 0.1),
    },
    source="measured: see benchmarks/bench_estimate.py",
)
# A Neuron graph is cut into tiles, each of them instructions that are scheduled: wider layers and more tokens are more
# of them, and cost less than in proportion. Not measured here; spreads are wide, and two records outweigh them.
_NEURON = Law(
    layers=3.0,
    powers={
        "layers": (1.0, 0.4),
        "width": (0.7, 0.4),
        "vocabulary": (0.05, 0.1),
        "tokens": (0.3, 0.3),
        "length": (0.1, 0.2),
        "accumulates": (0.2, 0.3),
    },
    source="assumed: no compile on Neuron was measured",
)
_LAWS = {"inductor": _INDUCTOR, "neuron": _NEURON, "neuron-native": _NEURON}


def law(compiler: str) -> Law:
    """The law of a compiler; for one that nobody knows Inductor's, which says least."""
    return _LAWS.get(compiler, _INDUCTOR)
