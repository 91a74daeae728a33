"""A user of a Neuron host that is stood in for, for tests of whole runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_machine import Machine, processes_under
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import COMPILER_DIRECTORY, SCRIPTS, Entry, neuron_host

FLAGS = "e30acd3a"  # the hash of no flags
OLD = 3600.0  # seconds: no lock of that age belongs to a compile that is about to begin


@pytest.fixture
def place():
    """A folder that no other host can share, also where the tests run in a container: only there a lock is certain."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)
        for pid in processes_under(Path(folder)):  # only where a test failed
            os.kill(pid, signal.SIGKILL)


def _machine(folder: Path) -> Machine:
    """A host whose trainings need three graphs, one of them a rank's alone."""
    made = Machine(folder)
    made.graphs(1, 2, **{"1": ["3"]})
    return made


@pytest.fixture
def machine(place):
    with neuron_alone():
        yield _machine(place / "user")


@pytest.fixture(scope="module")
def _once(tmp_path_factory):
    made = _machine(tmp_path_factory.mktemp("warmed") / "user")
    with neuron_alone():
        made("warm", "tiny.yaml")
    return made


@pytest.fixture
def warmed(machine, _once):
    """The machine after a warm, which was made once for all tests of a module: its store and its root are copies."""
    shutil.copytree(_once.home, machine.home)
    shutil.copytree(_once.host.root, machine.host.root, dirs_exist_ok=True)
    shutil.copy(_once.host.folder / "events.jsonl", machine.host.folder)
    return machine


def another(machine: Machine, folder: Path, **knobs) -> Machine:
    """Another host that has the same store."""
    other = Machine(folder, host=neuron_host(folder / "other-host", **knobs))
    other.home = machine.home
    other.environment["CACHEKIT_HOME"] = str(machine.home)
    other.plan.write_text(machine.plan.read_text())
    return other


def name(graph: object) -> str:
    return f"MODULE_{graph}+{FLAGS}"


def entry(machine: Machine, graph: object) -> Entry:
    return Entry(machine.host.root / COMPILER_DIRECTORY / name(graph))


def recorded(machine: Machine) -> list[str]:
    return [module.name.partition("/")[2] for module in machine.record().modules]


def age(place: Path, seconds: float = OLD) -> None:
    """Make a folder and all in it look as if nobody had touched it for long."""
    then = time.time() - seconds
    for path in (*place.rglob("*"), place):
        os.utime(path, (then, then))


def ask(machine: Machine, *graphs: object, **variables: str) -> subprocess.CompletedProcess:
    """A process that knows nothing of cachekit wants graphs."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), *map(str, graphs)],
        env={**machine.host.environment, **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
