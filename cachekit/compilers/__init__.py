"""Compilers: one port, and an adapter each."""

from cachekit.compilers.port import Compiler, Harvest, Node, Observed, Restored, Unwatched, Watch
from cachekit.compilers.select import select

__all__ = ["Compiler", "Harvest", "Node", "Observed", "Restored", "Unwatched", "Watch", "select"]
