"""The stand-in for AWS's closed packages over real graphs (`make test-xla`)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.compilers.neuron.sdk_cases import EXTRACTED, FINISHED, ask, entry, host, run, start, stop  # noqa: F401 - fixtures
from tests.support.neuron_sdk import SCRIPTS, NeuronHost


def xla_compiles(said: str) -> list[int]:
    return [int(number) for number in re.findall(r"xla-compiles=(\d+)", said)]


def long(host: NeuronHost, *command: object, **variables: str) -> tuple[int, str]:
    return run(host, *command, limit=580, **variables)


@pytest.mark.xla
def test_graphs_have_the_same_names_in_every_process(host, tmp_path):
    names = set()
    for number, variables in enumerate([{}, {"PYTHONHASHSEED": "7"}, {"XLA_IR_DEBUG": "1", "OMP_NUM_THREADS": "2"}]):
        root = tmp_path / f"root{number}"
        code, said = run(host, sys.executable, SCRIPTS / "steps.py", NEURON_COMPILE_CACHE_URL=str(root), **variables)
        assert code == 0, said
        found = {entry.name for entry in host.entries(root)}
        assert [len(found)] == xla_compiles(said), "one entry for each graph that XLA compiled, of whatever kind"
        names.add(frozenset(found))
    assert len(names) == 1
    assert all(re.fullmatch(r"MODULE_\d{1,20}\+e30acd3a", name) for name in names.pop())


@pytest.mark.xla
def test_a_whole_fine_tune_of_two_ranks_is_warmed_and_compiles_nothing(host, tmp_path):
    host.knobs(trial_zeros=True)  # the trial gets zeros from the device, as AWS documents
    flags = {"NEURON_CC_FLAGS": "--model-type transformer"}
    launch = ("torchrun", "--nproc_per_node=2", SCRIPTS / "bert.py")
    code, said = long(host, "neuron_parallel_compile", *launch, tmp_path / "trial", **flags)
    assert code == 0, said[-5000:]
    entries = host.entries()
    assert {frozenset(found.files) for found in entries} == {frozenset(FINISHED)}
    assert said.count("Extracting graphs (") == sum(xla_compiles(said))
    ours, theirs = (
        set(re.findall(rf"{pid}  \[INFO\]: Extracting graphs \((\S+)\)", said))
        for pid in sorted(set(re.findall(r"(\d+)  \[INFO\]: Extracting", said)))
    )
    assert len(ours & theirs) >= 8
    assert len(ours ^ theirs) == 1, "rank 1 has work of its own"

    host.forget()
    code, said = long(host, *launch, tmp_path / "run", **flags)
    assert code == 0, said[-5000:]
    assert host.compiles == 0
    assert len(host.events("loaded")) == said.count("Using a cached neff at") == sum(xla_compiles(said))

    # Again, from its first checkpoint: nothing new.
    code, said = long(host, *launch, tmp_path / "run", **flags)
    assert code == 0, said[-5000:]
    assert host.compiles == 0


@pytest.mark.xla
def test_a_failed_compile_ends_the_script(host):
    host.knobs(failures=[{"class": "device-oom", "times": 1}])
    code, said = run(host, sys.executable, SCRIPTS / "steps.py")
    assert code != 0
    assert "NCC_EOOM002" in said
    assert "xla-compiles" not in said


@pytest.mark.xla
def test_a_script_hangs_after_extraction_when_told_to(host):
    host.knobs(trial_hangs=True)
    process = start(host, "neuron_parallel_compile", sys.executable, SCRIPTS / "steps.py")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("xla-compiles"):
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    stop(process)
    process.communicate()
    assert {frozenset(found.files) for found in host.entries()} == {frozenset(EXTRACTED)}


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
    source = OPTIMUM.format(scripts=str(SCRIPTS))
    run(host, *ask(61, 62))
    (entry(host, 62).path / "model.done").unlink()  # an orphan: a NEFF that was never declared complete
    run(host, *ask(63), NEURON_EXTRACT_GRAPHS_ONLY="1")
    host.forget()
    code, said = run(host, sys.executable, "-c", source, 61, 62, 63)
    assert code == 0, said
    assert host.compiles == 2
    assert "MODULE_61+e30acd3a/model.done not found" not in said
    assert all(f"MODULE_{graph}+e30acd3a/model.done not found in team/cache" in said for graph in (62, 63))
    assert {frozenset(found.files) for found in host.entries()} == {frozenset(FINISHED)}
