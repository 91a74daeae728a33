"""Two Neuron hosts that train together: the command line on each, with the stand-in for the SDK and for the worker.

A graph of theirs names all workers, so a trial run needs both of them.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compilers.neuron.neuron_machine import Machine, end
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.processes import LONGEST, free_port, until


class Two:
    """Two machines with a store each and one shared cache, and the same command on both."""

    def __init__(self, folder):
        self.shared = folder / "shared"
        self.shared.mkdir(mode=0o700)
        self.machines = [Machine(folder / str(number)) for number in range(2)]
        for one in self.machines:
            one.graphs(1, 2)
            one.environment["CACHEKIT_CACHE"] = f"local:rw,{self.shared}:rw"

    def lines(self, verb, *words):
        """Each machine, and the command line there."""
        where = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
        pairs = enumerate(self.machines)
        return [(one, (verb, "tiny.yaml", *where, "--node-rank", str(rank), *words)) for rank, one in pairs]

    def __call__(self, verb, *words, code=0):
        """What the same command told on both."""
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(one, *line, code=code) for one, line in self.lines(verb, *words)]
            return [run.result() for run in runs]


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """Two machines that have warmed together."""
    with neuron_alone():
        found = Two(tmp_path_factory.mktemp("two"))
        assert [one["compiled"] for one in found("warm")] == [2, 2]
        return found


@pytest.fixture
def two(warmed):
    """Those, for a test that changes nothing of theirs for good but the graphs that are asked for."""
    with neuron_alone():
        yield warmed
    for one in warmed.machines:
        one.graphs(1, 2)


@pytest.mark.feature("C2", "F2")
def test_machines_that_train_together_warm_together_and_none_waits_for_anothers_lease(two):
    """The one with the lease would wait for the other to join the trial run, and the other for the lease."""
    assert [one["compiled"] for one in two("train", "--require-warm")] == [0, 0]


@pytest.mark.feature("F2")
def test_what_would_not_be_one_run_is_named_by_both_before_torch_waits(two, tmp_path, monkeypatch):
    first, second = two.machines
    # One of them has the record, and would train; the other would make its trial run.
    monkeypatch.setitem(second.environment, "CACHEKIT_HOME", str(tmp_path / "empty"))
    for one in two.machines:
        monkeypatch.setitem(one.environment, "CACHEKIT_CACHE", "local:rw")
    runs = first.work / "runs"
    before = [*runs.rglob("*")]
    for told in two("train", code=2):
        assert "node 1 " in told["error"]["message"]
        assert " has no record of this key, but node 0 " in told["error"]["message"]
    assert [*runs.rglob("*")] == before, "nothing was trained"
    # Another toolchain has another key, and is told as what it is.
    other = tmp_path / "other" / "transformers-4.0.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.0.0\n")
    monkeypatch.setitem(second.environment, "PYTHONPATH", f"{other.parent}:{second.environment['PYTHONPATH']}")
    for told in two("train", "--recache", code=2):
        assert "has a different toolchain from node 0" in told["error"]["message"]
        assert told["error"]["cause"].startswith("toolchain.transformers is 4.0.0 there and ")


@pytest.mark.feature("F2")
def test_a_machine_that_dies_while_it_trains_is_named(two, tmp_path):
    for one in two.machines:
        one.graphs(1, 2, after=str(one.folder / "begun"), until=str(tmp_path / "never"))
    first, second = (one.start(*line) for one, line in two.lines("train"))
    try:
        until(lambda: all((one.folder / "begun").exists() for one in two.machines), "both to train", LONGEST)
        end(second)
        told = json.loads(first.communicate(timeout=LONGEST)[0])
        assert first.returncode == 75
        assert told["error"]["message"].startswith("node 1 ")
        assert told["error"]["message"].endswith(" went away")
        assert "--resume auto" in told["error"]["hint"]
    finally:
        for one in (first, second):
            end(one)
            one.communicate()
