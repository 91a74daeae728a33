"""A home, a worker's output and log, and a warmed toy recipe, for tests of plan, warm and train."""

from pathlib import Path

import msgspec
import pytest

from cachekit.errors import InterruptedRunError
from cachekit.verbs.warm import warm
from tests.support import standin_worker
from tests.support.standins import Watched, overwrite


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture
def warmed(home, log):
    """A store in which the recipe is warm; gives the record."""
    watched = Watched(home)
    record = warm(watched.session, watched.prepare()).record
    log.unlink()
    return record


def blob(watched, record, number=0):
    return watched.store.layout.blob(record.files[number].sha256)


def ends_within(watched, graphs, then=None):
    """Let a member's next run end when it has compiled so many graphs that were not there, and half of another one.

    Args:
        watched: The member.
        graphs: How many.
        then: What is done last; by default somebody stops the run.
    """

    def run(job, environment, *_, **__):
        root = Path(environment["STANDIN_ROOT"])
        names = standin_worker.graph_names(msgspec.json.decode(msgspec.json.encode(job)))
        missing = [(name, seed) for name, seed in names.items() if not (root / name / "model.done").exists()]
        told = []
        for count, (name, seed) in enumerate(missing[:graphs], 1):
            standin_worker.compile_module(root / name, seed, 0)
            told.append(
                msgspec.json.encode({"event": "graphs", "found": len(names) - len(missing), "compiled": count}) + b"\n"
            )
        Path(job.events).write_bytes(b"".join(told) + b'{"half')
        half = root / missing[graphs][0]
        half.mkdir()
        (half / "model.code").write_bytes(b"half")
        if then is not None:
            then()
        raise InterruptedRunError("stopped")

    watched.session.launcher().run = run


def spoil(path):
    overwrite(path, path.read_bytes()[::-1] + b"!")
