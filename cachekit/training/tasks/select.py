"""The task of a recipe; its module is loaded when it is the one."""

from __future__ import annotations

import importlib

from cachekit.recipe.schema import TaskName
from cachekit.training.tasks.port import Task


def select(name: TaskName) -> Task:
    """The task of that name."""
    module = importlib.import_module(f"cachekit.training.tasks.{name.replace('-', '_')}")
    task: Task = module.TASK
    return task
