"""Which checkpoint a training goes on from."""

from __future__ import annotations

import json

import pytest

from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.training.checkpoints import checkpoint
from tests.training.made_checkpoints import FILES, make


@pytest.fixture
def output(tmp_path):
    """An output folder with checkpoints 2 and 4, both whole."""
    for step in (2, 4):
        make(tmp_path / f"checkpoint-{step}")
    return tmp_path


def found(output, resume="auto"):
    """The checkpoint, and what was passed over."""
    told = []
    journal = Journal(None, "test")
    journal.listen(lambda event: told.append((event.get("checkpoint", "").rpartition("/")[2], event.get("reason", ""))))
    return checkpoint(resume, output, journal).rpartition("/")[2], told


def test_the_newest(output):
    make(output / "checkpoint-10")
    assert found(output) == ("checkpoint-10", [])


def test_nothing_to_resume(output):
    assert found(output, "") == ("", [])


@pytest.mark.parametrize("name", ["checkpoint-99.tmp", "checkpoint", "checkpoint-x", "my-checkpoint-99"])
def test_other_folders_are_no_checkpoints(output, name):
    (output / name).mkdir()
    (output / "checkpoint-98").write_bytes(b"a file")
    assert found(output) == ("checkpoint-4", [])


@pytest.mark.parametrize("missing", FILES)
def test_one_that_lacks_a_file(output, missing):
    make(output / "checkpoint-99", [name for name in FILES if name != missing])
    name, [(passed, reason)] = found(output)
    assert (name, passed) == ("checkpoint-4", "checkpoint-99")
    assert reason.startswith("it has no ")


@pytest.mark.parametrize("cut", FILES)
@pytest.mark.parametrize("left", [0, 0.3, 0.99])
def test_one_whose_file_is_cut_off(output, cut, left):
    file = make(output / "checkpoint-99") / cut
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * left)])
    assert found(output) == ("checkpoint-4", [("checkpoint-99", f"{cut} is truncated")])


def test_one_of_several_files_and_ranks(output):
    files = ["optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "trainer_state.json"]
    folder = make(output / "checkpoint-99", [*files, "model-1-of-2.safetensors", "model-2-of-2.safetensors"])
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert found(output) == ("checkpoint-99", [])
    (folder / "model-2-of-2.safetensors").unlink()
    assert found(output) == ("checkpoint-4", [("checkpoint-99", "it has no model-2-of-2.safetensors")])


def test_weights_of_torch(output):
    make(output / "checkpoint-99", ["pytorch_model.bin", *FILES[1:]])
    assert found(output) == ("checkpoint-99", [])


def test_where_none_is_whole_the_training_begins_anew_and_says_so(output):
    """An engine gives a command that was interrupted the same words again, whenever that was."""
    for step in (2, 4):
        (output / f"checkpoint-{step}" / "optimizer.pt").unlink()
    lacks = "it has no optimizer.pt"
    assert found(output) == ("", [("checkpoint-4", lacks), ("checkpoint-2", lacks), ("", "")])
    assert found(output / "not-there-yet") == ("", [("", "")])


def test_one_that_was_named_must_be_whole(output):
    assert found(output, str(output / "checkpoint-2")) == ("checkpoint-2", [])
    (output / "checkpoint-2" / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="checkpoint-2 is incomplete") as caught:
        found(output, str(output / "checkpoint-2"))
    assert caught.value.cause == "model.safetensors is truncated"


@pytest.mark.parametrize("name", ["nowhere", "x" * 5000, "a\0b"])
def test_one_that_is_not_there(output, name):
    with pytest.raises(UsageError, match="is not a checkpoint"):
        found(output, str(output / name))
