"""Processes on the stand-in for the Neuron SDK, and what they leave in its cache."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.neuron_sdk import SCRIPTS, Entry, NeuronHost, neuron_host

FINISHED = {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
EXTRACTED = {"compile_flags.json", "model.hlo_module.pb"}
FAILED = {"compile_flags.json", "model.hlo_module.pb", "model.log"}
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000\d{3}:  \d+  \[INFO\]: "
LIMIT = 60  # seconds that a test waits for something that takes less than one


@pytest.fixture
def host(tmp_path) -> NeuronHost:
    return neuron_host(tmp_path / "host")


def start(host: NeuronHost, *command: object, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [str(part) for part in command],
        env={**host.environment, **variables},
        cwd=host.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(host: NeuronHost, *command: object, limit: float = LIMIT, **variables: str) -> tuple[int, str]:
    process = start(host, *command, **variables)
    try:
        said, _ = process.communicate(timeout=limit)
    finally:
        stop(process)
    return process.returncode, said


def stop(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def ask(*graphs: object) -> tuple[object, ...]:
    """A training of these graphs."""
    return (sys.executable, SCRIPTS / "graphs.py", *graphs)


def entry(host: NeuronHost, graph: object) -> Entry:
    return next(found for found in host.entries() if found.name.startswith(f"MODULE_{graph}+"))


def until(condition, what: str) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"waited too long until {what}"
        time.sleep(0.02)
