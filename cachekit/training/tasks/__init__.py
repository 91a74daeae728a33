"""What the worker can train: one module a task, each with a `TASK`, a value of `port.Task`."""

from cachekit.training.tasks.port import select

__all__ = ["select"]
