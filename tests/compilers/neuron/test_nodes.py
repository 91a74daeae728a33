"""Two Neuron hosts that train together: the command line on each, with the stand-in for the SDK and for the worker.

A graph of theirs names all workers, so a trial run needs both of them.
"""

from __future__ import annotations

import json
import shutil

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

    def start(self, verb, *words):
        """Start a command on both."""
        where = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
        pairs = enumerate(self.machines)
        return [one.start(verb, "tiny.yaml", *where, "--node-rank", str(rank), *words) for rank, one in pairs]

    def __call__(self, verb, *words, code=0):
        """What the same command told on both."""
        return self.told(self.start(verb, *words), code)

    def told(self, runs, code=0):
        """What commands tell that end with this code."""
        said = [run.communicate(timeout=LONGEST) for run in runs]
        assert [run.returncode for run in runs] == [code] * len(runs), said
        return [json.loads(out) for out, _ in said]


@pytest.fixture
def two(tmp_path):
    with neuron_alone():
        found = Two(tmp_path)
        assert [one["compiled"] for one in found("warm")] == [2, 2]
        yield found


@pytest.mark.feature("C2", "F2")
def test_machines_that_train_together_warm_together_and_none_waits_for_anothers_lease(two):
    """The one with the lease would wait for the other to join the trial run, and the other for the lease."""
    assert [one["compiled"] for one in two("train", "--require-warm")] == [0, 0]


@pytest.mark.feature("F2")
def test_what_would_not_be_one_run_is_named_by_both_before_torch_waits(two, tmp_path):
    first, second = two.machines
    # One of them has the record, and would train; the other would make its trial run.
    shutil.rmtree(second.home)
    shutil.rmtree(two.shared)
    two.shared.mkdir(mode=0o700)
    for told in two("train", code=2):
        assert "node 1 " in told["error"]["message"]
        assert " has no record of this key, and node 0 " in told["error"]["message"]
    assert not (first.work / "runs").exists()
    # Another toolchain has another key, and is told as what it is.
    other = tmp_path / "other" / "transformers-4.0.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.0.0\n")
    second.environment["PYTHONPATH"] = f"{other.parent}:{second.environment['PYTHONPATH']}"
    for told in two("train", "--recache", code=2):
        assert "has another toolchain than node 0" in told["error"]["message"]
        assert told["error"]["cause"].startswith("toolchain.transformers is 4.0.0 there and ")


@pytest.mark.feature("F2")
def test_a_machine_that_dies_while_it_trains_is_named(two, tmp_path):
    for one in two.machines:
        one.graphs(1, 2, after=str(one.folder / "begun"), until=str(tmp_path / "never"))
    first, second = two.start("train")
    try:
        until(lambda: all((one.folder / "begun").exists() for one in two.machines), "both to train", LONGEST)
        end(second)
        (told,) = two.told([first], code=75)
        assert told["error"]["message"].startswith("node 1 ")
        assert told["error"]["message"].endswith(" went away")
        assert "--resume auto" in told["error"]["hint"]
    finally:
        for one in (first, second):
            end(one)
            one.communicate()
