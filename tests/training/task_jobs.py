"""Jobs of any task over rows made in a test: run in this process uncompiled, with what was scored kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from cachekit.recipe.schema import Data
from tests.training.test_training_model import job as toy
from tests.training.test_worker_ranks import train_here


def write(folder: Path, **splits) -> Path:
    """Rows as json lines, a file a split."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def job_of(folder: Path, task: str, splits, *, mode="train", labels=(), data=None, config=None, **training):
    """A job of a task over rows, with a model of width 8 and MiniLM's tokenizer."""
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    rows = write(folder / "data", **splits)
    job = toy(**(config or {}))
    settings = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_seq_length": 16,
        "max_steps": 2,
        "eval_strategy": "no",
        "save_strategy": "no",
        **training,
    }
    recipe = structs.replace(
        job.recipe,
        task=task,
        data=Data(path=str(rows), labels=tuple(labels) or None, **(data or {})),
        training=structs.replace(job.recipe.training, **settings),
    )
    return structs.replace(
        job,
        mode=mode,
        recipe=recipe,
        labels=tuple(labels),
        output_dir=str(folder / "out"),
        runtime="cachekit.compilers.inductor.runtime",
        events=str(work / "events.jsonl"),
        result=str(work / "result.json"),
    )


class Watched:
    """A job that ran, with every batch's shapes and everything that was scored."""

    def __init__(self, job, monkeypatch):
        from cachekit.training import tasks

        task = tasks.select(job.recipe.task)
        self.scored, self.shapes = [], set()
        ready = task.ready

        def watched(*arguments):
            work = ready(*arguments)
            self.features = work.features

            def score(features, predictions, labels):
                figures = work.score(features, predictions, labels)
                self.scored.append((features, predictions, labels, figures))
                return figures

            def collate(rows):
                batch = work.collate(rows)
                self.shapes.add(tuple((name, tuple(tensor.shape)) for name, tensor in sorted(batch.items())))
                return batch

            return replace(work, score=score, collate=collate)

        monkeypatch.delenv("WORLD_SIZE", raising=False)
        monkeypatch.setattr(task, "ready", watched, raising=False)
        monkeypatch.setattr("torch.compile", lambda forward, **_: forward)
        self.result = train_here(job)
        self.notes = [
            event["note"]
            for event in map(json.loads, Path(job.events).read_text().splitlines())
            if event.get("event") == "note"
        ]
