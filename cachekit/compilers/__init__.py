"""Compilers: one port, and an adapter each."""

from cachekit.compilers.port import Compiler, Guest, Harvest, Node, Observed, Restored, Unwatched, Watch
from cachekit.compilers.select import select

__all__ = ["Compiler", "Guest", "Harvest", "Node", "Observed", "Restored", "Unwatched", "Watch", "select"]
