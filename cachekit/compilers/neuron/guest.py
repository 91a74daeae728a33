"""Neuron in a process that is the user's own: its cache says what is new; only a log, what was found."""

from __future__ import annotations


def join(*, found: bool) -> list[str]:  # noqa: ARG001 - the protocol's
    """See `compilers.port.Guest`: the wrapper around the compiler reads its variables at each compile."""
    return []


def counters() -> None:
    """See `compilers.port.Guest`."""


def compile_seconds() -> float:
    """See `compilers.port.Guest`."""
    return 0.0
