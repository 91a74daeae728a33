"""Which checkpoint to go on from: the newest one that is whole. A run that was killed may have left half of one.

A checkpoint is whole when it has what `transformers.Trainer` writes for a resume, in this order: model, optimizer,
scheduler, random numbers, state (`Trainer._save_checkpoint`, 4.57 and 5.23). Without the optimizer's file the Trainer
itself would go on in silence with a fresh one.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from cachekit.compilers.nodes import SAGEMAKER
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.files import opened
from cachekit.text import cause_of, cut
from cachekit.writers import check_name, check_writers

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
# Or an index of several files, under the same name. PEFT writes adapters alone [peft: save_pretrained].
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")


def checkpoint(resume: str, folder: Path, journal: Journal) -> str:
    """The checkpoint to go on from; empty where none is wanted, or `auto` finds none that is whole.

    An engine that starts a command again after it was interrupted gives it the same words each time: the first time
    there is no checkpoint yet.

    Args:
        resume: `auto` for the newest whole one in `folder`, or a checkpoint's path.
        folder: Where the training writes checkpoints.
        journal: Told of each that was passed over (`resume.passed`), and that there is none (`resume.none`).

    Raises:
        UsageError: The one that was named cannot be used, or somebody else may have made it.
    """
    if not resume:
        return ""
    if resume != "auto":
        return _named(Path(resume))
    try:
        _check_writers(folder / "checkpoint-*")  # before there is one: the next start would be refused
        for found in checkpoints(folder):
            reason = flaw(found)
            if not reason:
                _check_writers(found)
                return str(found)
            journal.emit("resume.passed", checkpoint=str(found), reason=reason)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be read", cause=cause_of(error)) from error
    journal.emit("resume.none", folder=str(folder))
    return ""


def _named(path: Path) -> str:
    hint = "name a checkpoint-N folder, or pass --resume auto"
    try:
        if not (path / STATE).is_file():
            raise UsageError(f"{path} is not a checkpoint", cause=f"it has no {STATE}", hint=hint)
        reason = flaw(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{cut(str(path), 200)} is not a checkpoint", cause=cut(str(error), 200), hint=hint) from error
    if reason:
        raise UsageError(
            f"the checkpoint {path} is incomplete", cause=reason, hint="pass --resume auto, or name another checkpoint"
        )
    _check_writers(path)
    return str(path.absolute())


def _check_writers(checkpoint: Path) -> None:
    """See that a checkpoint is of those who may say whose code runs: its files are unpickled, and torch before 2.6
    runs what a pickle says. The Trainer looks for them by their names, also in folders to which links lead.
    """
    if is_jobs(checkpoint):
        return
    why, seen = "a checkpoint is unpickled, which may run code", set[tuple[int, int]]()
    try:
        check_name(checkpoint, why, found=True, loaded=True)
        there = os.walk(checkpoint, onerror=_raise, followlinks=True) if checkpoint.is_dir() else ()
        for folder, below, names in there:
            state = Path(folder).stat()
            if (state.st_dev, state.st_ino) in seen:  # a link leads there, too
                below.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
            check_name(Path(folder, "*"), why, found=True, loaded=True)
            for file in map(Path, repeat(folder), sorted(names)):
                if file.is_file():
                    with opened(file) as source:
                        check_writers(file, source.fileno(), why, found=True, loaded=True)
    except OSError as error:
        raise UsageError(f"{checkpoint} is not read", cause=cause_of(error)) from error


def _raise(error: OSError) -> None:
    raise error


def is_jobs(folder: Path) -> bool:
    """Whether a folder is of a job of SageMaker's: its container runs one job, and SageMaker makes these folders.

    With which modes, nobody here has seen.
    """
    return SAGEMAKER.exists() and SAGEMAKER.parents[2] in folder.absolute().parents


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of an output folder, newest first, whole or not."""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found[path] = int(match[1])
    return sorted(found, key=lambda path: found[path], reverse=True)


def flaw(checkpoint: Path) -> str:
    """Why a checkpoint cannot be gone on from; empty where it is whole.

    Raises:
        PermissionError: This user may not read it, which another checkpoint would not mend.
    """
    try:
        for file in sorted(filter(Path.is_file, checkpoint.iterdir())):
            opened(file).close()  # not all that looks into it says why it cannot
        return next(_flaws(checkpoint), "")
    except PermissionError:
        raise
    except OSError as error:
        return f"{Path(error.filename or checkpoint).name} cannot be read: {cause_of(error)}"


def weight_names(checkpoint: Path) -> set[str]:
    """The names of a whole model's weights in a checkpoint; none where they are not safetensors, or an adapter's."""
    index = _json(checkpoint / f"{_WEIGHTS[0]}.index.json")
    if index is not None:
        return set(index.get("weight_map") or {})
    file = checkpoint / _WEIGHTS[0]
    return _tensors(file) if file.is_file() else set()


def _flaws(checkpoint: Path) -> Iterator[str]:
    state = _json(checkpoint / STATE)
    if state is None:
        yield f"it has no {STATE}"
    elif not isinstance(state.get("global_step"), int):
        yield f"{STATE} is truncated"
    yield from _weights(checkpoint)
    # One of each, or one a rank with the rank in its name. What `torch.save` writes is a zip archive, whose table
    # stands at its end.
    for what, pattern in (("optimizer.pt", "*optimizer*"), ("scheduler.pt", "scheduler*"), ("rng_state", "rng_state*")):
        files = sorted(checkpoint.glob(pattern))
        if not files:
            yield f"it has no {what}"
        for file in files:
            if file.suffix in {".pt", ".pth"} and not zipfile.is_zipfile(file):
                yield f"{file.name} is truncated"


def _weights(checkpoint: Path) -> Iterator[str]:
    for name in _WEIGHTS:
        index = _json(checkpoint / f"{name}.index.json")
        if index is not None:
            shards = index.get("weight_map")
            names = sorted(set(shards.values())) if isinstance(shards, dict) else []
            if not names:
                yield f"{name}.index.json is truncated"
        elif (checkpoint / name).is_file():
            names = [name]
        else:
            continue
        for shard in map(str, names):
            file = checkpoint / shard
            if not file.is_file():
                yield f"it has no {shard}"
            elif not (_tensors(file) if file.suffix == ".safetensors" else zipfile.is_zipfile(file)):
                yield f"{shard} is truncated"
        return
    yield "it has no weights"


def _json(path: Path) -> dict[str, Any] | None:
    """A JSON object; an empty one where the file holds something else, None where there is no file."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _tensors(file: Path) -> set[str]:
    """The names of the tensors in a safetensors file; none where it is cut off."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            return set(opened.keys())
    except SafetensorError:
        return set()
