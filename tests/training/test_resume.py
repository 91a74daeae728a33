"""A training that was killed goes on from its last checkpoint, in each task: same figures, and no compile.

The zoo's recipes in small, on Inductor. Which checkpoint is whole is tested in `test_checkpoints.py`.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from cachekit.process import below
from tests.recipe.test_tiny import FIRST_OF_TASK
from tests.recipe.zoo_user import one_fleet, one_user  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

STEPS = 40
SAVE = 10
NOISE = 1e-3  # relative; sums may be made in another order, other rows or other dropout make far more
SETTINGS = {
    "training.max_steps": STEPS,
    "training.save_strategy": "steps",
    "training.save_steps": SAVE,
    "training.logging_steps": 1,
    "training.eval_strategy": "steps",
    "training.eval_steps": SAVE // 2,
    "training.bf16": "false",  # where the CPU has it, two equal runs differ by as much as NOISE
}


def killed_after(user, step: int, *arguments: str) -> None:
    """Start a training and end all its processes at once, as a spot instance does, when a checkpoint is there."""
    process = user.start(*arguments)
    wanted = user.work / "killed" / f"checkpoint-{step}" / "trainer_state.json"
    try:
        while not wanted.is_file():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.002)
    finally:
        for pid in (process.pid, *below(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (user.work / "killed" / "cachekit-result.json").exists(), "it was killed before its end"


@pytest.mark.feature("F1", "M3")
@pytest.mark.parametrize("name", FIRST_OF_TASK.values(), ids=list(FIRST_OF_TASK))
def test_a_killed_training_goes_on_as_if_nothing_had_been(user, name):
    settings = [word for setting, value in SETTINGS.items() for word in ("--set", f"{setting}={value}")]
    user("warm", name, "--tiny", *settings)
    whole = user("train", "--output-dir", "whole")
    losses = user.losses()
    killed_after(user, 2 * SAVE, "train", "--output-dir", "killed")
    resumed = user("train", "--output-dir", "model", "--checkpoint-dir", "killed", "--resume", "auto")

    assert list((user.work / "model").glob("*model.safetensors"))
    assert not list((user.work / "model").glob("checkpoint-*"))
    assert not list((user.work / "killed").glob("*model.safetensors"))
    assert (resumed["compiled"], resumed["built"], resumed["surprises"]) == (0, 0, [])
    assert resumed["found"] > 0
    begun = int(resumed["resumed_from"].rpartition("-")[2])
    assert begun in {2 * SAVE, 3 * SAVE}, "the last one, which it may have come to meanwhile"
    assert list(user.losses()) == list(range(begun + 1, STEPS + 1))
    assert user.losses() == pytest.approx({step: losses[step] for step in range(begun + 1, STEPS + 1)}, rel=NOISE)
    assert resumed["steps"] == whole["steps"] == STEPS
    assert resumed["metrics"].keys() == whole["metrics"].keys()
    for split, figures in whole["metrics"].items():
        assert resumed["metrics"][split] == pytest.approx(figures, rel=NOISE)
