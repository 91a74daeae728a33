"""Checkpoints in parts."""

from . import checkpoint
from .checkpoint import save_checkpoint

__all__ = ["checkpoint", "save_checkpoint"]
