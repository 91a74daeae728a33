"""Compilers: one port, and an adapter each."""

from cachekit.compilers.port import (
    Compared,
    Compiler,
    Failed,
    Guest,
    Harvest,
    Node,
    Observed,
    Restored,
    Unwatched,
    Watch,
)
from cachekit.compilers.registry import select

__all__ = [
    "Compared",
    "Compiler",
    "Failed",
    "Guest",
    "Harvest",
    "Node",
    "Observed",
    "Restored",
    "Unwatched",
    "Watch",
    "select",
]
