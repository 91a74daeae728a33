"""What carries cachekit elsewhere: the GitHub Action in a real shell, the Dockerfile, and where torch comes from."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tests.support.standins import RUN_WARM
from tests.trust.trust_cases import pem

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))

sys.path.insert(0, str(ROOT / "constraints"))

import torch_index  # noqa: E402

# The GitHub Action


class Runner:
    """The part of a GitHub runner that runs a composite action's shell steps: GitHub's documented files and variables.

    Source: docs.github.com, "Workflow commands" and "Metadata syntax". Steps that use other actions are not run.
    """

    def __init__(self, folder: Path, tools: Path = BIN, **inputs: str) -> None:
        self.tools = tools  # where its `cachekit` is
        self.inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
        self.files = {name: folder / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT")}
        for path in self.files.values():
            path.touch()
        self.temp = folder

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run the step of this name as `shell: bash` does."""
        step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
        given = {
            key: self.inputs[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for key, value in step.get("env", {}).items()
        }
        kept = dict(line.split("=", 1) for line in self.files["GITHUB_ENV"].read_text().splitlines())
        environment = {**os.environ, "PATH": f"{self.tools}:{BIN}:{os.environ['PATH']}", "RUNNER_TEMP": str(self.temp)}
        environment |= {name: str(path) for name, path in self.files.items()}
        environment |= {"GITHUB_ACTION_PATH": str(ROOT)} | kept | given
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command, env=environment, cwd=self.temp, capture_output=True, text=True, check=False, timeout=3600
        )

    def outputs(self) -> dict[str, str]:
        """What the steps handed on."""
        return dict(line.split("=", 1) for line in self.files["GITHUB_OUTPUT"].read_text().splitlines())

    def restores(self) -> bool:
        """Whether GitHub would take the step that restores the store."""
        restore = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Restore")
        left, different, right = restore["if"].split()
        assert (left, different) == ("steps.key.outputs.signs", "!=")
        return self.outputs()["signs"] != right.strip("'")


def test_the_action_is_what_github_takes():
    """Against the schema of schemastore.org that `check-jsonschema` ships."""
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-actions", ROOT / "action.yml"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout


def test_the_action_asks_for_the_entry_of_its_recipes(tmp_path):
    """The key is the same for the same recipes, and another one for others."""
    keys = {}
    both, longer = "bert roberta-mlm", "--tiny --set training.max_seq_length=16"
    for number, (recipes, options) in enumerate([(both, "--tiny"), ("bert\nroberta-mlm\n", "--tiny"), (both, longer)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        runner = Runner(folder, recipes=recipes, options=options)
        for step in ("Install cachekit", "Plan"):
            made = runner.run(step)
            assert made.returncode == 0, made.stderr
        keys[number] = runner.outputs()["key"]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("cachekit-")
    assert runner.restores()


@pytest.mark.feature("T2")
def test_a_job_that_signs_restores_nothing(tmp_path, monkeypatch):
    """What is restored counts as made here; whoever runs code in another job of the repository can have saved it."""
    monkeypatch.setenv("CACHEKIT_TRUST_KEY", pem(0))
    runner = Runner(tmp_path, recipes="bert", options="--tiny")
    for step in ("Install cachekit", "Plan"):
        assert runner.run(step).returncode == 0
    assert not runner.restores()


@pytest.mark.parametrize("given", [{"recipes": "no-such"}, {"recipes": " "}, {"recipes": "bert", "options": "--no"}])
def test_a_wrong_input_ends_the_action_with_cachekits_code(tmp_path, given):
    runner = Runner(tmp_path, **given)
    assert runner.run("Install cachekit").returncode == 0
    assert runner.run("Plan").returncode == 2
    assert runner.run("Warm").returncode == 2
    assert "hit" not in runner.outputs()


def test_the_action_compiles_nothing_where_that_is_asked(tmp_path):
    runner = Runner(tmp_path, **{"recipes": "bert", "options": "--tiny", "require-warm": "true"})
    assert runner.run("Install cachekit").returncode == 0
    made = runner.run("Warm")
    assert made.returncode == 3, made.stderr
    assert "hit" not in runner.outputs()


def test_a_second_job_restores_what_the_first_one_compiled(tmp_path):
    """Two jobs with a cache entry between them: the store's folder is copied, as GitHub's cache does.

    The compiler is a stand-in; that a copied store serves real graphs is `tests/verbs/test_main_job.py`'s.
    """
    first, second, tools = tmp_path / "first", tmp_path / "second", tmp_path / "bin"
    tools.mkdir()
    (tools / "cachekit").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {RUN_WARM} cli "$@"\n')
    (tools / "cachekit").chmod(0o755)
    for folder, hit in ((first, "false"), (second, "true")):
        folder.mkdir()
        if folder is second:
            shutil.copytree(first / "cachekit", second / "cachekit", symlinks=True)
            shutil.rmtree(first)
        runner = Runner(folder, tools, recipes="bert", options="--tiny")
        for step in ("Install cachekit", "Plan", "Warm"):
            made = runner.run(step)
            assert made.returncode == 0, made.stderr
        assert runner.outputs()["hit"] == hit


# The Dockerfile


def test_the_dockerfile_has_no_findings():
    """hadolint's; no image is built here, as that wants a daemon."""
    made = subprocess.run(
        [BIN / "hadolint", "--format", "json", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert json.loads(made.stdout) == []
    assert made.returncode == 0


def test_an_image_has_what_it_is_built_from():
    """Each path that pyproject.toml and the Dockerfile name passes .dockerignore."""
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert {"cachekit", "constraints", "recipes", "registry", "pyproject.toml", "README.md", "LICENSE"} == let_in
    assert all((ROOT / name).exists() for name in let_in)


# torch's index


@pytest.fixture
def index():
    """An index of packages that answers for torch, on loopback."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/cpu/torch/" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_torch_comes_without_cuda_where_no_gpu_is(index, tmp_path, monkeypatch):
    monkeypatch.setattr(torch_index.platform, "machine", lambda: "x86_64")
    driver = tmp_path / "nvidiactl"
    assert torch_index.arguments(f"{index}/cpu", driver)[0] == ["--extra-index-url", f"{index}/cpu"]
    arguments, said = torch_index.arguments(f"{index}/gone", driver)
    assert arguments == []
    assert "cannot be reached" in said
    assert "gigabytes of CUDA" in said
    driver.touch()
    assert torch_index.arguments(f"{index}/cpu", driver) == (
        [],
        "torch: this machine has an NVIDIA GPU, so pip takes the build with CUDA",
    )
    monkeypatch.setattr(torch_index.platform, "machine", lambda: "aarch64")
    assert torch_index.arguments(f"{index}/cpu", tmp_path / "none")[0] == []
