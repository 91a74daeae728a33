"""Figures of a training, and of its cache, in trackers: TensorBoard's own event files, and W&B offline."""

from __future__ import annotations

import json
import struct

import pytest
from msgspec import structs

from cachekit.training import trackers
from tests.training.jobs import others_warnings, train_here
from tests.training.task_jobs import rows_job

pytestmark = pytest.mark.usefixtures("uncompiled")
pytest_plugins = ["tests.support.cli_session"]
ROWS = [{"text": "the sea", "label": "no"}, {"text": "the wind", "label": "yes"}] * 4
BLOCK = 32_768  # bytes of such a log
KNOWN = {"waited_seconds": 12.5, "saved_seconds": 0.0}


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("torch.compile", lambda forward, **_: forward)


def train(folder, tracker, mode="train"):
    """A training of two steps that is evaluated once, and then on test rows."""
    settings = {"report_to": (tracker,), "eval_strategy": "steps", "eval_steps": 2, "logging_steps": 1}
    splits = {"train": ROWS, "validation": ROWS, "test": ROWS}
    job = rows_job(folder, "text-classification", splits, labels=("no", "yes"), mode=mode, **settings)
    return train_here(structs.replace(job, figures=KNOWN))


def offline_run(path):
    """The name and the figures of a run that W&B kept offline: a log as LevelDB has it, of W&B's own records."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, place, whole = path.read_bytes(), 7, b""  # bytes before the first chunk
    name, figures = "", {}
    while place + 7 <= len(raw):
        if BLOCK - place % BLOCK < 7:  # no room for a chunk's head: filled up
            place += BLOCK - place % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", raw, place + 4)
        whole += raw[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # a whole record, or the last piece of one
            record, whole = Record.FromString(whole), b""
            name = record.run.display_name or name
            for item in record.history.item:
                figures["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return name, figures


@pytest.mark.feature("U2")
def test_tensorboard_has_the_trainings_figures_and_the_caches(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    result = train(tmp_path, "tensorboard")
    with others_warnings():
        read = EventAccumulator(str(tmp_path / "events")).Reload()
    assert {"train/loss", "eval/accuracy", "test/accuracy"} <= set(read.Tags()["scalars"])
    assert read.Scalars("test/accuracy")[-1].value == pytest.approx(result.metrics["test"]["accuracy"])
    told = {name: read.Scalars(f"train/cachekit/{name}") for name in (*KNOWN, "graphs_found", "graphs_compiled")}
    assert {name: events[-1].value for name, events in told.items()} == {
        **KNOWN,
        "graphs_found": 0,
        "graphs_compiled": 0,
    }
    assert {len(events) for events in told.values()} == {3}, "with both evaluations, and as the training ended"
    assert len(list((tmp_path / "events").iterdir())) == 1, "an evaluation after the training belongs to its run"


def test_wandb_has_them_offline(tmp_path, monkeypatch):
    import wandb

    for name, value in {"MODE": "offline", "DIR": tmp_path, "SILENT": "true", "PROJECT": "ours"}.items():
        monkeypatch.setenv(f"WANDB_{name}", str(value))
    with others_warnings():
        train(tmp_path, "wandb")
        wandb.teardown()  # ends its process, too: before that, the file need not be written out
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    run, said = offline_run(path)
    assert run == "toy", "named after the recipe"
    assert {"train/loss", "eval/accuracy", "test/accuracy"} <= said.keys()
    assert {name: said[f"train/cachekit/{name}"] for name in KNOWN} == KNOWN


def test_a_trial_reports_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    train(tmp_path, "tensorboard", mode="trial")
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("figures", [dict, lambda: 1 / 0], ids=["none", "that fail"])
def test_figures_that_are_not_there_harm_nobody(tmp_path, monkeypatch, figures):
    import transformers.trainer

    before = list(transformers.trainer.DEFAULT_CALLBACKS)
    monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", before.copy())
    trackers.add(transformers.trainer, figures)
    trackers.add(transformers.trainer, figures)
    own, *rest = transformers.trainer.DEFAULT_CALLBACKS
    assert [one.__name__ for one in rest if one.__name__ == own.__name__] == [], "the last one counts"
    logs = {"eval_runtime": 1.0}
    own().on_log(type("Arguments", (), {"report_to": ["wandb"]}), None, None, logs=logs)
    assert logs == {"eval_runtime": 1.0}


def test_a_callback_leaves_it_to_who_has_the_cache_in_hand(monkeypatch):
    """Under `cachekit run` the callback only counts, and the command's figures are told."""
    import transformers.trainer

    from cachekit import CacheCallback
    from cachekit.verbs.run import ATTENDED

    monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", [])
    monkeypatch.setenv(ATTENDED, "a run")
    CacheCallback()
    assert transformers.trainer.DEFAULT_CALLBACKS == []
    monkeypatch.delenv(ATTENDED)
    CacheCallback()
    assert len(transformers.trainer.DEFAULT_CALLBACKS) == 1


def test_a_tracker_that_is_not_installed_is_an_error_before_anything_compiles(command, machine, worker, monkeypatch):
    monkeypatch.setattr(trackers, "PACKAGES", {**trackers.PACKAGES, "mlflow": ("no_such_package",)})
    answer = command("train", "tiny.yaml", "--set", "training.report_to=[tensorboard, mlflow]", code=2)
    assert answer.err.splitlines() == [
        "error[bad-recipe]: training.report_to names mlflow, which cannot be imported",
        "  cause: the package is not installed beside cachekit",
        "  hint: python -m pip install mlflow; or report nothing: --set training.report_to=[]",
    ]
    assert command("store", "ls", "--format", "quiet").out == "", "nothing was warmed"


def test_where_figures_go_is_in_no_key(command, machine):
    keys = {
        command("plan", "tiny.yaml", "--set", f"training.report_to={names}", "--format", "json").json["key"]
        for names in ("[]", "[wandb]", "[tensorboard, trackio]")
    }
    assert len(keys) == 1
