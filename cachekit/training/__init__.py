"""The training worker and its launcher. Only modules that run inside the worker import torch and transformers."""

from cachekit.training.job import Job, Result
from cachekit.training.launch import ProcessLauncher

__all__ = ["Job", "ProcessLauncher", "Result"]
