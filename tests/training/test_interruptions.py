"""One training, interrupted fifty times at random: the same figures as without, to the last digit, and no compile.

A real training of a small model on Inductor. Half of the interruptions kill all its processes at once, as a machine
that is taken away does; the other half is a SIGTERM to the command, as engines send before they take a machine away.
The workers of trainings that are interrupted after their first step are forks of a process that has imported PyTorch,
which is half of a start. Those that are interrupted in their start, and the first and the last training, are not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cachekit.process import below
from tests.support.places import ROOT
from tests.support.processes import LONGEST, begin_python
from tests.support.real_machine import Machine, assert_compiled_nothing

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("INTERRUPTIONS", "50"))
STEPS = 5 * TIMES
SAVE = 2  # steps from checkpoint to checkpoint
SETTINGS = {
    "max_steps": STEPS,
    "save_strategy": "steps",
    "save_steps": SAVE,
    "save_total_limit": 3,
    "eval_strategy": "steps",
    "eval_steps": 10,
    "logging_steps": 1,
    "bf16": "false",
}
RECIPE = ("bert", "--tiny")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # several threads may add up in another order


@pytest.fixture
def door(tmp_path):
    """Where workers are asked for that need not import PyTorch."""
    yield tmp_path / "door"
    (tmp_path / "door.end").touch()


@pytest.mark.feature("F1", "M3", "F10")
def test_fifty_interruptions_leave_no_trace(tmp_path, door):
    machine = Machine(tmp_path, **ONE_THREAD)
    settings = [word for field, value in SETTINGS.items() for word in ("--set", f"training.{field}={value}")]
    machine("warm", *RECIPE, *settings)
    machine.log.unlink()

    whole = machine("train", *RECIPE, *settings, "--output-dir", "whole")
    losses = logged(machine)
    assert_compiled_nothing(machine, whole)
    assert list(losses) == list(range(1, STEPS + 1))

    chosen = random.Random(19)
    train = ("train", *RECIPE, *settings, "--output-dir", "again", "--resume", "auto", "--require-warm")
    before, lost = 0, []
    for _ in range(TIMES):
        interrupt(machine, chosen, door, *train)
        taken = logged(machine)
        assert taken == {step: losses[step] for step in taken}
        if taken:
            lost.append(before - min(taken) + 1)
            before = max(taken)
    resumed = machine(*train)
    lost.append(before - min(logged(machine)) + 1)

    assert max(lost) <= SAVE, "steps that were taken again after an interruption"
    assert logged(machine) == {step: losses[step] for step in logged(machine)}
    assert_compiled_nothing(machine, resumed)
    assert (resumed["steps"], resumed["metrics"]) == (whole["steps"], whole["metrics"])
    model = "model.safetensors"
    assert (machine.work / "again" / model).read_bytes() == (machine.work / "whole" / model).read_bytes()


def interrupt(machine: Machine, chosen: random.Random, door: Path, *train: str) -> None:
    """Start a training, and end it some steps later; sometimes before its first step."""
    steps, pause = chosen.choice([0, 1, 2, 3, 5]), chosen.random()
    known = set(journals(machine))
    program = (ROOT / "tests/support/preloaded.py", "--cachekit", door) if steps else ("-m", "cachekit")
    process = begin_python(*program, *train, folder=machine.work, environment=machine.environment)
    deadline = time.monotonic() + LONGEST
    try:
        while not (set(journals(machine)) - known and begun(machine) and len(logged(machine)) >= steps):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(pause * (10 if steps == 0 else 0.02))  # somewhere in its start; or in a step, or a checkpoint
        assert process.poll() is None, "it came to its end before it was interrupted"
        if chosen.random() < 0.5:
            process.terminate()
            process.communicate()
            assert process.returncode == 130
            return
    finally:
        forks = below(int(Path(f"{door}.pid").read_text())) if steps else ()
        for pid in (process.pid, *below(process.pid), *forks):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def journals(machine: Machine) -> list:
    return sorted((machine.home / "v1" / "journal").rglob("*.jsonl"), key=lambda path: path.name)


def events(machine: Machine) -> list[dict]:
    """Those of the newest run; the last line may still be being written."""
    lines = journals(machine)[-1].read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def begun(machine: Machine) -> bool:
    return any(event["event"] == "worker.start" for event in events(machine))


def logged(machine: Machine) -> dict[int, float]:
    """The steps of the newest run, each with its loss."""
    found = [event for event in events(machine) if event["event"] == "worker.log" and "loss" in event]
    return {event["step"]: event["loss"] for event in found}
