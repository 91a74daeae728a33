"""What the worker can train: one module a task, each with a `TASK` that keeps to `port.Task`."""

from cachekit.training.tasks.select import select

__all__ = ["select"]
