"""The config of a model that the registry does not know: from a test Hub, or told in one breath where there is none."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from huggingface_hub import constants

from cachekit.recipe.hub import cached_config
from tests.support.hubserver import HubServer

RECIPE = """
name: unknown
model: {id: team/unheard-of}
data: {id: nobody/nothing, labels: ["no", "yes"]}
"""
CONFIG = {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}


@pytest.fixture
def plan(tmp_path):
    """`cachekit plan` with an endpoint; gives exit code, stdout and the lines of stderr."""
    (tmp_path / "unknown.yaml").write_text(RECIPE)

    def run(endpoint, token="", patience=5, *, offline=False):
        plan = f"from cachekit import cli; from cachekit.recipe import hub; hub.PATIENCE = {patience}; cli.main()"
        found = subprocess.run(
            [sys.executable, "-c", plan, "plan", "unknown.yaml", "--format", "json"] + ["--offline"] * offline,
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"},
                "PYTHONPATH": os.pathsep.join(sys.path),
                "HF_ENDPOINT": endpoint,
                "HF_HOME": str(tmp_path / "hf"),
                "HF_TOKEN": token,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return found.returncode, found.stdout, found.stderr.splitlines()

    return run


@pytest.fixture
def hub(tmp_path):
    with HubServer(tmp_path / "hub") as server:
        server.repo("team/unheard-of").plant({"config.json": json.dumps(CONFIG).encode()}, "first")
        yield server


def test_a_model_of_the_hub(plan, hub):
    code, said, told = plan(hub.endpoint, hub.token)
    assert (code, told) == (0, [])
    assert json.loads(said)["architecture_from"] == "Hub"


@pytest.mark.parametrize("fault", [False, True], ids=["unknown", "failing"])
def test_a_hub_that_does_not_give_a_config_is_asked_once(plan, hub, fault):
    """The client's own way is to ask six times, for half a minute, and to tell of each."""
    if fault:
        hub.fault("503", "* *config.json", times=100)
    code, _, told = plan(hub.endpoint, hub.token if fault else hub.other_token)
    assert (code, len(told)) == (2, 3), told
    assert "'team/unheard-of' is in neither the registry nor the Hub cache" in told[0]
    assert told[0].endswith("and the Hub did not give it")
    assert hub.count("* *config.json") == 1


def test_no_hub(plan):
    code, _, told = plan("http://127.0.0.1:9")
    assert (code, len(told)) == (2, 3), told
    assert told[0].endswith("and the Hub could not be asked")
    assert "refused" in told[1] or "Max retries" in told[1]
    code, _, told = plan("http://127.0.0.1:9", offline=True)
    assert (code, len(told)) == (2, 3), told
    assert told[0].endswith("and the Hub was not asked")
    assert "--offline was given" in told[1]


def test_a_hub_that_never_answers(plan):
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        code, _, told = plan(f"http://127.0.0.1:{silent.getsockname()[1]}", patience=0.5)
    assert (code, len(told)) == (2, 3), told


@pytest.mark.versions
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "$ROOT/xdg"},
        {"XDG_CACHE_HOME": "/nowhere", "HF_HOME": "~/hf"},
        {"HF_HOME": "/nowhere", "HUGGINGFACE_HUB_CACHE": "{root}/old"},
        {"HUGGINGFACE_HUB_CACHE": "/nowhere", "HF_HUB_CACHE": "$ROOT/new"},
    ],
    ids=" ".join,
)
def test_a_model_in_the_clients_cache_is_where_the_client_says(variables, tmp_path, monkeypatch):
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), "ROOT": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value.format(root=tmp_path))
    where = Path(runpy.run_path(constants.__file__)["HF_HUB_CACHE"])
    assert where.is_relative_to(tmp_path)
    config = where / "models--team--unheard-of/snapshots/abc/config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    assert cached_config("team/unheard-of", "abc") == config
