"""Neuron in a process that is the user's own: its cache says what is new; only a log, what was found."""

from __future__ import annotations


def join(*, found: bool) -> list[str]:
    """The wrapper around the compiler reads its variables at each compile."""
    return []


def counters() -> None:
    pass


def compile_seconds() -> float:
    return 0.0
