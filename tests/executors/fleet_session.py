"""What tests of fleets share: a working directory with a list, a shared cache, and the command line in processes.

PYTEST_DONT_REWRITE: its fixtures are for `pytest_plugins`.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cachekit import start
from tests.support import forked, processes
from tests.support.standins import RECIPE_YAML, compiles

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).with_name("standin")
DEADLINE = 180.0  # seconds; a command that does not end is a failure


def until(true):
    """What is waited for, once there is something; jobs of an engine take their time."""
    return processes.until(true, "what must happen", 300.0)


class Fleet:
    """A user's working directory; each command line runs in a process of its own, and so do those of the engine."""

    deadline = DEADLINE

    def __init__(self, folder, environment):
        self.work = folder / "work"
        self.work.mkdir()
        (self.work / "toy.yaml").write_text(RECIPE_YAML)
        self.shared = folder / "shared"
        self.shared.mkdir(mode=0o700)
        self.log = folder / "compiles"
        self.home = folder / "home"
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{SITE}:{ROOT}",
            "STANDIN_LOG": str(self.log),
            "CACHEKIT_HOME": str(self.home),
            "CACHEKIT_CACHE": f"local:rw,{self.shared}:rw",
            **environment,
        }

    def matrix(self, batches):
        """A list of fine-tunes, one a batch size; equal sizes have one key."""
        entries = [{"recipe": "toy.yaml", "set": {"training.per_device_train_batch_size": one}} for one in batches]
        (self.work / "list.yaml").write_text(json.dumps(entries))
        return "list.yaml"

    def begin(self, *arguments, **environment):
        """A command line in a process, which is not waited for."""
        return subprocess.Popen(
            [*start.COMMAND, "cachekit", *arguments],
            cwd=self.work, env={**self.environment, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *arguments, code=0, **environment):
        """A command line; returns what it printed, as JSON values where it printed JSON, and stderr."""
        how = {"environment": {**self.environment, **environment}, "timeout": self.deadline}
        run = forked.run_python(*start.COMMAND[1:], "cachekit", *arguments, folder=self.work, code=code, **how)
        return (json.loads(run.stdout) if "json" in arguments and run.stdout else run.stdout), run.stderr

    def warm(self, matrix, *options, code=0, **environment):
        """`cachekit warm --matrix`, as JSON values."""
        return self("warm", "--matrix", matrix, *options, "--format", "json", code=code, **environment)[0]

    @property
    def compiles(self):
        """How many commands compiled something."""
        return len(compiles(self.log))


@pytest.fixture
def fleet(tmp_path):
    """A fleet of the stand-in compiler."""
    return Fleet(tmp_path, {"STANDIN_DELAY": "0.2"})
