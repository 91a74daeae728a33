"""Layers whose weights are split, and the groups that share them."""

from . import layers, parallel_state, utils

__all__ = ["layers", "parallel_state", "utils"]
