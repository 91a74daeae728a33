"""A user of the zoo, in processes of its own and without a network, for tests with real compiles."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import begin_python


class User:
    """A user with a store and a folder. What one user compiled helps the next, as in a fleet."""

    def __init__(self, root: Path, fleet: Path) -> None:
        self.fleet = fleet
        self.work = root / "work"
        self.work.mkdir()
        self.home = root / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CACHEKIT_")},
            "CACHEKIT_HOME": str(self.home),
            "CACHEKIT_REMOTES": f"fleet={fleet}",
            "CACHEKIT_CACHE": "local:rw,fleet:rw",
            "HF_HUB_OFFLINE": "1",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        words = ("-m", "cachekit", *arguments, "--format", "json")
        return begin_python(*words, folder=self.work, environment=self.environment)

    def __call__(self, *arguments: str) -> dict:
        with self.start(*arguments) as process:
            output, errors = process.communicate()
        assert process.returncode == 0, errors
        return json.loads(output)

    def losses(self) -> dict[int, float]:
        """The newest training's, as they were logged: step to loss."""
        journal = max((self.home / "v1" / "journal").rglob("*.jsonl"), key=lambda path: path.name)
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        return {event["step"]: event["loss"] for event in events if event["event"] == "worker.log" and "loss" in event}


@pytest.fixture(scope="session", name="fleet")
def one_fleet(tmp_path_factory):
    """A folder that all users of one run of the tests share; `ZOO_FLEET` names one that outlives it."""
    if kept := os.environ.get("ZOO_FLEET"):
        return Path(kept)
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "fleet"


@pytest.fixture(name="user")
def one_user(tmp_path, fleet):
    return User(tmp_path, fleet)
