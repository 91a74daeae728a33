"""Ids of a recipe name something on the Hub: a folder of the working directory is not loaded in its place."""

from __future__ import annotations

import os
import shutil

import pytest
from msgspec import structs

from cachekit.errors import DataError, TrainingError, UnknownNameError
from cachekit.recipe.schema import Data
from cachekit.training import ProcessLauncher
from tests.training.jobs import job_of, minilm, recipe_of, train_here, uncompiled, write  # noqa: F401

pytestmark = [pytest.mark.feature("T2"), pytest.mark.versions, pytest.mark.usefixtures("uncompiled")]
TASK = "text-classification"
ROWS = [{"text": "the sea", "label": "no"}, {"text": "the wind", "label": "yes"}] * 4


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job that trains in a folder where everybody can make some."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    rows = write(tmp_path / "rows", train=ROWS, validation=ROWS)
    return job_of(tmp_path, recipe_of(TASK, Data(path=str(rows)), max_steps=1), labels=("no", "yes"))


@pytest.mark.parametrize("field", ["tokenizer", "weights", "data"])
def test_a_folder_of_the_working_directory_is_not_taken_for_the_hubs(job, tmp_path, field):
    planted, error = tmp_path / "everybody" / "acme" / "toy", UnknownNameError
    if field == "data":
        data = structs.replace(job.recipe.data, path=None, id="acme/toy")
        job, error = structs.replace(job, recipe=structs.replace(job.recipe, data=data)), DataError
        shutil.copytree(tmp_path / "rows", planted)
    else:
        job = structs.replace(job, **{field: "acme/toy"})
        model = structs.replace(job.recipe.model, id="acme/toy", from_config=field == "tokenizer")
        job = structs.replace(job, recipe=structs.replace(job.recipe, model=model))
        shutil.copytree(minilm(), planted)
    with pytest.raises(error, match="acme/toy"):
        train_here(job)
    assert os.getcwd() == str(planted.parents[1])  # noqa: PTH109 - of the process
    assert not list((tmp_path / "work").glob("empty-*"))


def test_a_relative_cache_of_the_hub_stays_where_the_user_named_it(job, tmp_path):
    (tmp_path / "told.py").write_text("import os\nraise RuntimeError(os.environ['HF_HOME'])\n")
    changes = {"HF_HOME": "hf", "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    (tmp_path / "work").mkdir()
    with pytest.raises(TrainingError) as raised:
        ProcessLauncher().run(structs.replace(job, runtime="told"), changes, tmp_path / "log", lambda _: None)
    assert raised.value.cause == f"RuntimeError: {tmp_path}/everybody/hf"
