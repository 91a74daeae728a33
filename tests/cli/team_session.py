"""Members of a team on a test Hub, each with a machine of its own."""

from __future__ import annotations

import hashlib
import resource
from functools import partial
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.cli_session import DRIVER, RECIPE, Answer, environment
from tests.support.hubserver import HubServer
from tests.support.processes import run_python


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    with HubServer(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def hub(shared_hub):
    shared_hub.log.clear()
    yield shared_hub
    shared_hub.faults.clear()


class Member:
    """A member of the team: a folder with the project, a home, the environment of the Hub."""

    def __init__(self, folder: Path, hub: HubServer, worker: Path, token: str | None = None) -> None:
        self.work, self.home = folder / "project", folder / "home"
        (self.work / "data").mkdir(parents=True)
        (self.work / "tiny.yaml").write_text(RECIPE)
        (self.work / "data" / "train.csv").write_text("text,label\nthe sea is still,calm\nSTOP NOW,loud\n")
        self.worker = worker
        self.variables: dict[str, str | None] = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": token or hub.token,
            "HF_HUB_OFFLINE": None,
            "HF_HOME": str(folder / "hf"),
            "CACHEKIT_HOME": str(self.home),
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def __call__(self, *arguments: str, code: int = 0, largest: int | None = None) -> Answer:
        words = ("-c", DRIVER, self.worker, *arguments)
        how = {"folder": self.work, "environment": environment(**self.variables), "code": code}
        if largest is None:
            run = forked.run_python(*words, **how)
        else:
            limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (largest, largest))
            run = run_python(*words, preexec_fn=limit, **how)
        return Answer(run.returncode, run.stdout, run.stderr)


@pytest.fixture
def join(tmp_path, hub, worker):
    def member(name: str, token: str | None = None) -> Member:
        return Member(tmp_path / name, hub, worker, token)

    return member


@pytest.fixture
def repo(hub, request):
    name = f"cache-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]}"
    return hub.repo(f"team/{name}")
