"""Compilers: one port, and an adapter each."""

from cachekit.compilers.port import (
    ComparedBuilds,
    Compiler,
    Failed,
    Guest,
    Harvest,
    Node,
    Observed,
    Restored,
    Run,
    Watch,
)
from cachekit.compilers.registry import select

__all__ = [
    "ComparedBuilds",
    "Compiler",
    "Failed",
    "Guest",
    "Harvest",
    "Node",
    "Observed",
    "Restored",
    "Run",
    "Watch",
    "select",
]
