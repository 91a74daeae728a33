"""The stand-in for AWS's closed packages beside real ones; test_contract.py shows that it is as cachekit assumes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.neuron_sdk import SCRIPTS, NeuronHost, neuron_host
from tests.support.places import real_dir
from tests.support.processes import LONGEST

FINISHED = {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
EXTRACTED = {"compile_flags.json", "model.hlo_module.pb"}
ASK = (sys.executable, SCRIPTS / "graphs.py")


@pytest.fixture
def host(tmp_path) -> NeuronHost:
    return neuron_host(tmp_path / "host")


def run(host: NeuronHost, *command: object, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(part) for part in command],
        env={**host.environment, **variables},
        cwd=host.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    return done.returncode, done.stdout


def files(host: NeuronHost) -> dict[str, set[str]]:
    return {found.name.partition("+")[0].removeprefix("MODULE_"): found.files for found in host.entries()}


@pytest.mark.slow
def test_neuron_ls_has_the_fields_of_a_real_one(host):
    real = json.loads((real_dir("device") / "neuron-ls.trn1.2xlarge.real.nolicence.json").read_text())
    found = json.loads(run(host, "neuron-ls", "-j")[1])
    assert [(name, type(value)) for name, value in found[0].items()] == [
        (name, type(value)) for name, value in real[0].items()
    ]


OPTIMUM = """
import sys
sys.path.insert(0, {scripts!r})
import graphs
from libneuronxla import neuron_cc_wrapper
from optimum.neuron.cache import hub_cache

class Api:  # a Hub repo with nothing in it
    def __init__(self, **options): pass
    def repo_exists(self, repo): return True
    def file_exists(self, repo, path): return False

hub_cache.HfApi = Api
with hub_cache.hub_neuronx_cache(cache_repo_id="team/cache"):
    for graph in sys.argv[1:]:
        neuron_cc_wrapper.neuron_xla_compile(graphs.content(graph), graph)
"""


@pytest.mark.xla
def test_optimum_neuron_takes_the_same_entries_for_finished(host):
    """Its own lookup, from PyPI, in place of ours: it asks for `model.done`, then for a failure."""
    run(host, *ASK, 61, 62)
    next(host.root.rglob("MODULE_62+*/model.done")).unlink()  # an orphan: a NEFF that was never declared complete
    run(host, *ASK, 63, NEURON_EXTRACT_GRAPHS_ONLY="1")
    assert files(host)["63"] == EXTRACTED
    host.forget()
    code, said = run(host, sys.executable, "-c", OPTIMUM.format(scripts=str(SCRIPTS)), 61, 62, 63)
    assert code == 0, said
    assert host.compiles == 2
    assert "MODULE_61+e30acd3a/model.done not found" not in said
    assert all(f"MODULE_{graph}+e30acd3a/model.done not found in team/cache" in said for graph in (62, 63))
    assert files(host) == dict.fromkeys(("61", "62", "63"), FINISHED)
