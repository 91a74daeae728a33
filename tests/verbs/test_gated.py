"""Models and data sets whose owners decide who may load them: refused with the recipe's field, and what to do."""

from __future__ import annotations

import os

import pytest

from cachekit.recipe.hub import gated
from tests.support.hubserver import HubServer
from tests.support.processes import run_cachekit

pytestmark = pytest.mark.versions

TEXT = "name: toy\nmodel: {id: acme/closed}\ndata: {id: acme/rows, labels: [no, yes]}\n"


def plan(folder, hub, token):
    """What `plan` says of a recipe whose model is on the test Hub only."""
    (folder / "toy.yaml").write_text(TEXT)
    variables = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", "HF_TOKEN"}}
    variables |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "hf"), "HF_TOKEN": token, "COLUMNS": "200"}
    return run_cachekit("plan", "toy.yaml", folder=folder, environment=variables, code=None)


@pytest.mark.parametrize(
    ("fault", "cause", "hint"),
    [
        ("401-gated", "the Hub was asked without a token that it knows", "then `hf auth login` or set HF_TOKEN"),
        (
            "403-gated",
            "they have not granted access to the owner of this token",
            "ask for access at https://huggingface.co/",
        ),
    ],
)
def test_a_gated_model_names_the_field(tmp_path, fault, cause, hint):
    with HubServer(tmp_path / "hub") as hub:
        hub.fault(fault, times=None)
        run = plan(tmp_path, hub, hub.token if fault.startswith("403") else "")
    assert run.returncode == 4, run.stderr
    assert "error[auth]: model.id acme/closed is gated: its owners decide who may load it" in run.stderr
    assert cause in run.stderr
    assert hint in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "Dataset 'acme/rows' is a gated dataset on the Hub. You must be authenticated to access it.",
            "without a token",
        ),
        (
            "Dataset 'acme/rows' is a gated dataset on the Hub. Visit the dataset page to ask for access.",
            "have not granted access",
        ),
    ],
)
def test_a_gated_data_set_is_told_from_another_failure(said, cause):
    """As `datasets` words it [datasets: load.py]: its exception has no answer of the Hub's."""
    told = gated(FileNotFoundError(said), "data.id", "acme/rows")
    assert told.message == "data.id acme/rows is gated: its owners decide who may load it"
    assert cause in told.cause
    assert "https://huggingface.co/datasets/acme/rows" in told.hint
    assert gated(FileNotFoundError("Dataset 'acme/rows' doesn't exist on the Hub"), "data.id", "acme/rows") is None
