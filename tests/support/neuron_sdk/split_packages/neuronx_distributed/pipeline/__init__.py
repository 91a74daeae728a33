"""Pipelines, of which there are none here."""

from . import model, partition, trace
from .model import NxDPPModel

__all__ = ["NxDPPModel", "model", "partition", "trace"]
