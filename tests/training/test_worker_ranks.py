"""Steps and evaluations over several workers and accumulated batches: each is a whole one, each row is counted once.

In plain PyTorch, with gloo between the workers: which rows they take does not depend on the device. Those that are not
slow run with the Transformers of Neuron environments as well, which does some things in its own way.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cachekit import start
from cachekit.compilers.port import Watch
from cachekit.errors import DataError
from cachekit.recipe.schema import Data
from cachekit.training import ProcessLauncher, Result
from tests.training.jobs import job_of, recipe_of, train_here, uncompiled  # noqa: F401 - a fixture

pytestmark = pytest.mark.versions
WORKERS = 3
ROWS = {"train": 83, "validation": 21, "test": 13}


def toy_job(folder: Path, mode: str = "train", *, rows: int = ROWS["train"], resume="", **training):
    """A job over a few rows, in steps of two batches by default."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for name, count in {**ROWS, "train": rows}.items():
        lines = [f"row {number},{'yn'[number % 2]}\n" for number in range(count)]
        (data / f"{name}.csv").write_text("".join(["text,label\n", *lines]))
    settings = {"gradient_accumulation_steps": 2, "max_seq_length": 8, "num_train_epochs": 2, "save_strategy": "epoch"}
    settings |= {"per_device_train_batch_size": 2, **training}
    recipe = recipe_of("text-classification", Data(path=str(data), labels=("y", "n")), **settings)
    return job_of(folder, recipe, labels=("y", "n"), mode=mode, resume=resume)


def train_together(job) -> Result:
    """Run a job in several workers, each in a process of its own."""
    Path(job.events).parent.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    watch = Watch({})
    torchrun = ["torch.distributed.run", f"--nproc_per_node={WORKERS}", f"--master_port={port}", "--no_python"]
    watch.prefix = [*start.COMMAND, *torchrun]
    watch.workers = WORKERS
    changes = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    return ProcessLauncher().run(job, changes, Path(job.events).with_name("log"), lambda _: None, watch)


@pytest.mark.slow
@pytest.mark.feature("F1")
@pytest.mark.parametrize("mode", ["trial", "train"])
def test_workers_take_whole_steps_and_count_every_row_once(tmp_path, mode):
    """Batches that did not fill a round of all workers were dropped: a trial of four trained on nothing."""
    done = train_together(toy_job(tmp_path, mode))
    rows = {name: figures["rows"] for name, figures in done.metrics.items()}
    if mode == "trial":
        assert (done.steps, rows) == (3, {"validation": WORKERS * 2 + 1})
    else:
        assert (done.steps, rows) == (2 * (83 // (2 * 2 * WORKERS)), {"validation": 21, "test": 13})


@pytest.mark.feature("F1")
def test_an_epoch_ends_with_a_whole_step(tmp_path, uncompiled):
    """With fewer batches accumulated the last step was another graph, where tensors are lazy."""
    done = train_here(toy_job(tmp_path, rows=11))
    assert done.steps == 2 * (11 // 4)
    assert done.speed.rows_per_second == pytest.approx(4 * done.speed.steps_per_second, rel=0.01)
    assert done.speed.evaluation_seconds.keys() == {"validation", "test"}
    assert all(seconds > 0 for seconds in done.speed.evaluation_seconds.values())


def test_the_speed_is_that_of_steps_in_which_nothing_else_was(tmp_path, monkeypatch):
    """Neither the first step's, which loads or compiles graphs, nor one that an evaluation or a checkpoint follows."""
    from types import SimpleNamespace

    from cachekit.training import trainer

    now = 0.0
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: now))
    watch = SimpleNamespace(look=lambda: None)
    told = trainer.ProgressCallback(SimpleNamespace(emit=lambda *_, **__: None), watch, None)
    state = SimpleNamespace(global_step=0, max_steps=6)
    for seconds, then in (
        (60, None),
        (2, None),
        (100, "on_evaluate"),
        (2, None),
        (50, "on_save"),
        (3, None),
        (9, None),
    ):
        told.on_step_begin(None, state, None)
        told.on_step_end(None, state, None)
        if then:
            getattr(told, then)(None, state, None)
        now += seconds
    assert told.step_seconds == [2, 2, 3]
    speed = told.speed(32, {"validation": 7.41049})
    assert (speed.steps_per_second, speed.rows_per_second, speed.evaluation_seconds) == (0.5, 16, {"validation": 7.41})
    nothing = trainer.ProgressCallback(told._events, watch, None).speed(32, {})
    assert (nothing.steps_per_second, nothing.rows_per_second) == (None, None)


def test_fewer_rows_than_a_step_are_refused(tmp_path, uncompiled, monkeypatch):
    with pytest.raises(DataError, match="3 training rows do not fill a step") as refused:
        train_here(toy_job(tmp_path, rows=3))
    assert "a step takes 4 rows" in refused.value.cause
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(DataError, match="11 training rows do not fill a step") as refused:
        train_here(toy_job(tmp_path, rows=11))
    assert "3 workers" in refused.value.cause


@pytest.mark.feature("F1")
def test_a_resume_takes_the_batch_size_of_now(tmp_path, uncompiled):
    """Transformers 4.57 went on with that of the checkpoint: other shapes than those that were warmed."""
    assert train_here(toy_job(tmp_path, rows=16, num_train_epochs=1)).steps == 4
    checkpoint = tmp_path / "out" / "checkpoint-4"
    resumed = toy_job(tmp_path, rows=16, per_device_train_batch_size=1, resume=checkpoint)
    done = train_here(resumed)
    assert (done.steps, done.steps_taken) == (2 * 16 // 2, 2 * 16 // 2 - 4)
