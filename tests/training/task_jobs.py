"""Jobs of any task over rows made in a test: run in this process uncompiled, with what was scored kept."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cachekit.recipe.schema import Data
from tests.training.jobs import job_of, recipe_of, told, train_here, write


def rows_job(folder: Path, task: str, splits, *, mode="train", labels=(), data=None, **training):
    """A job of a task over rows, with a model of width 8 and MiniLM's tokenizer."""
    read = Data(path=str(write(folder / "data", **splits)), labels=tuple(labels) or None, **(data or {}))
    settings = {"per_device_eval_batch_size": 4, "max_seq_length": 16, "max_steps": 2, **training}
    return job_of(folder, recipe_of(task, read, **settings), labels=labels, mode=mode)


class WatchedJob:
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

            return structs.replace(work, score=score, collate=collate)

        monkeypatch.delenv("WORLD_SIZE", raising=False)
        monkeypatch.setattr(task, "ready", watched, raising=False)
        monkeypatch.setattr("torch.compile", lambda forward, **_: forward)
        self.result = train_here(job)
        self.notes = [event["note"] for event in told(job, "note")]
