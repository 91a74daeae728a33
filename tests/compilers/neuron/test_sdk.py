"""The stand-in for AWS's closed packages keeps the contract that is documented; all other tests rely on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.compilers.neuron.neuron_machine import LIMIT
from tests.support.neuron_sdk import SCRIPTS, NeuronHost, neuron_host
from tests.support.places import real_dir
from tests.support.processes import until

FINISHED = {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
EXTRACTED = {"compile_flags.json", "model.hlo_module.pb"}
FAILED = {"compile_flags.json", "model.hlo_module.pb", "model.log"}
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000\d{3}:  \d+  \[INFO\]: "
ASK = (sys.executable, SCRIPTS / "graphs.py")
NPC = "neuron_parallel_compile"


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
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout


def files(host: NeuronHost) -> dict[str, set[str]]:
    return {found.name.partition("+")[0].removeprefix("MODULE_"): found.files for found in host.entries()}


@pytest.mark.slow
def test_a_compile_leaves_four_files_and_the_next_process_a_hit(host):
    code, said = run(host, *ASK, 11, NEURON_CC_FLAGS="--retry_failed_compilation --model-type transformer")
    assert code == 0
    assert re.search(STAMP + r"Compilation Successfully Completed for model\.MODULE_11\+f7f529f3\.hlo_module\.pb", said)
    (found,) = host.entries()
    assert (found.name, found.files) == ("MODULE_11+f7f529f3", FINISHED)
    assert json.loads((found.path / "compile_flags.json").read_text()) == [
        "--target=trn1",
        "--model-type",
        "transformer",
    ]
    code, said = run(host, *ASK, 11, NEURON_CC_FLAGS="--model-type transformer")
    assert re.search(STAMP + f"Using a cached neff at {re.escape(str(found.path))}/model.neff\n", said)
    assert (code, host.compiles, len(host.events("loaded"))) == (0, 1, 2)
    other = host.folder / "other"
    run(host, *ASK, 13, NEURON_CC_FLAGS=f"--cache_dir={other}")
    assert [one.files for one in host.entries(other)] == [FINISHED], "the flag wins over the variable"


@pytest.mark.slow
def test_a_lock_is_an_empty_file_that_its_waiters_wait_for_and_a_killed_compile_leaves(host):
    host.knobs(lock_minute=0.2, failures=[{"class": "hang", "times": 1}])
    process = subprocess.Popen(
        [*map(str, ASK), "17"], env=host.environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: host.events("failed"), "a compile that hangs")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert files(host) == {"17": EXTRACTED | {"model.hlo_module.pb.lock"}}
    (lock,) = host.root.rglob("*.lock")
    assert lock.stat().st_size == 0
    command = [*map(str, ASK), "17"]
    with subprocess.Popen(command, env=host.environment, stdout=subprocess.PIPE, text=True) as waiter:
        line = waiter.stdout.readline()
        assert re.fullmatch(
            STAMP + r"Another process must be compiling \S+model.hlo_module.pb, been waiting for: \d+\.0 minutes\n",
            line,
        )
        lock.unlink()
        waiter.communicate(timeout=60)
    assert files(host) == {"17": FINISHED}


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["device-oom", "host-oom", "internal", "disk-full", "killed"])
def test_a_failure_is_remembered_until_it_is_retried(host, failure):
    host.knobs(failures=[{"match": "MODULE_19+*", "class": failure}])
    code, said = run(host, *ASK, 19)
    assert (code != 0, files(host)) == (True, {"19": FAILED})
    (log,) = host.root.rglob("model.log")
    assert log.read_text().startswith("Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', ")
    host.knobs(failures=[])
    code, said = run(host, *ASK, 19)
    assert code != 0
    assert f"Got a cached failed neff at {log.with_name('model.neff')}. Will skip compilation" in said
    assert host.compiles == 1, "a remembered failure is not compiled again"
    assert run(host, *ASK, 19, NEURON_CC_FLAGS="--retry_failed_compilation")[0] == 0
    assert files(host) == {"19": FINISHED}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["bit", "truncated", "foreign"])
def test_what_is_no_neff_of_the_graph_is_found_out_as_it_is_loaded(host, damage):
    run(host, *ASK, 20, 21)
    ours, other = (entry.path / "model.neff" for entry in host.entries())
    whole = ours.read_bytes()
    flipped = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    ours.write_bytes({"bit": flipped, "truncated": whole[:-512], "foreign": other.read_bytes()}[damage])
    code, said = run(host, *ASK, 20)
    assert code != 0
    assert "from another graph" in said if damage == "foreign" else "NEFF is invalid; could be broken or hacked" in said


@pytest.mark.slow
def test_a_trial_extracts_then_its_graphs_are_compiled_once_each(host):
    run(host, *ASK, 31)
    host.forget()
    code, said = run(host, NPC, *ASK, 31, 32, 32, 33)
    assert (code, host.compiles, files(host)) == (0, 2, dict.fromkeys(("31", "32", "33"), FINISHED))
    lines = [re.sub(STAMP, "", line) for line in said.splitlines()]
    graph = f"{host.root}/neuronxcc-2.26.6360.0+6f180f47/MODULE_%d+e30acd3a/model.hlo_module.pb"
    at = lines.index(f"New graph list from script: {graph % 31}")
    assert lines[at + 1 : at + 5] == [
        *(f"\t{graph % number}" for number in (32, 32, 33)),
        "Worker 0/None starting dynamic scheduling for 4 HLOs",
    ]
    assert lines[-5:] == [
        "Worker 0 completed: 2 tasks compiled",
        "Current remaining items are 0, locked are 0, failed are 0, done are 3, total is 3",
        "Compilation summary - Total graphs: 2, Success: 2, Failed: 0",
        "Total successful compilations: 2",
        "Compilation summary: 0/2 failed, 2 succeeded",
    ]


@pytest.mark.slow
def test_old_failures_are_hidden_but_in_one_number_and_a_script_error_ends_it(host):
    host.knobs(failures=[{"match": "MODULE_34+*", "class": "device-oom"}])
    assert run(host, NPC, *ASK, 34, 35)[0] == 1
    code, said = run(host, NPC, *ASK, 34, 35, 36)
    assert code == 0, "a remembered failure is skipped, and no failure of this run"
    assert "locked are 0, failed are 1, done are 2, total is 3\n" in said
    assert "Compilation summary: 0/1 failed, 1 succeeded" in said
    host.forget()
    assert (run(host, NPC, *ASK, 44, "error")[0], host.compiles) == (1, 0)


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
