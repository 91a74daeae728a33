"""Three machines that train together over gloo, with Inductor: real compiles, real processes, the same command on each.

A machine is a store, a home and a process tree of its own; what they share is a cache, and a folder of checkpoints.
"""

from __future__ import annotations

import json

import pytest

from tests.support.processes import LONGEST, begin_python, free_port, until
from tests.support.real_machine import SMALL, Machine, assert_compiled_nothing

pytestmark = pytest.mark.slow


class Three:
    """Three machines, and the same command on all of them."""

    def __init__(self, folder):
        (folder / "shared").mkdir(mode=0o700)
        cache = f"local:rw,{folder / 'shared'}:rw"
        self.machines = [Machine(folder / f"n{rank}", CACHEKIT_CACHE=cache) for rank in range(3)]
        for one in self.machines:
            one.recipe(SMALL)

    def start(self, *words):
        where = ("--nnodes", "3", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--format", "json")
        return [
            begin_python(
                *("-m", "cachekit", "train", "tiny.yaml", *where, "--node-rank", rank, *words),
                folder=one.work,
                environment=one.environment,
            )
            for rank, one in enumerate(self.machines)
        ]

    def __call__(self, *words, code=0):
        return told(self.start(*words), code)


def told(runs, code=0):
    """What commands tell that end with this code."""
    said = [run.communicate(timeout=LONGEST) for run in runs]
    assert [run.returncode for run in runs] == [code] * len(runs), said
    return [json.loads(out) for out, _ in said]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return Three(tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def first(three):
    """What their first training told: nobody had warmed anything."""
    return three()


@pytest.mark.feature("F1", "F2", "C2")
def test_one_compiles_and_the_others_wait_for_the_record_and_restore_it(three, first):
    assert sorted(one["status"] for one in first) == ["hit", "hit", "warmed"]
    assert sum(bool(machine.compiler_calls()) for machine in three.machines) == 1
    assert [one["compiled"] for one in first] == [0, 0, 0], "a trial run alone makes the graphs of a run together"
    assert len({json.dumps(one["metrics"]) for one in first}) == 1
    assert first[0]["metrics"]["validation"]["rows"] == 21


@pytest.mark.feature("F1", "F2", "P1")
@pytest.mark.usefixtures("first")
def test_a_machine_that_dies_is_named_and_the_run_goes_on_from_its_checkpoint(three, tmp_path):
    for machine in three.machines:
        machine.log.unlink(missing_ok=True)
    longer = ("--require-warm", "--output-dir", "longer", "--set")
    runs = three.start(*longer, "training.max_steps=1000000")
    checkpoint = three.machines[0].work / "longer" / "checkpoint-3"
    try:
        until(lambda: checkpoint.exists() or any(run.poll() is not None for run in runs), "a checkpoint", LONGEST)
        until(lambda: len(list(checkpoint.parent.glob("checkpoint-*"))) > 1, "another checkpoint", LONGEST)
        runs[2].kill()
        for error in told(runs[:2], code=75):
            assert error["error"]["message"].startswith("node 2 ")
            assert error["error"]["message"].endswith(" went away")
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    newest = max(int(path.name.rpartition("-")[2]) for path in checkpoint.parent.glob("checkpoint-*"))
    steps = f"training.max_steps={newest + 3}"
    # Only the first machine has written checkpoints: each in its own folder, they would not be one run.
    for error in three(*longer, steps, "--resume", "auto", code=2):
        assert "node 1 " in error["error"]["message"]
        assert " starts over, and node 0 " in error["error"]["message"]
    again = three(*longer, steps, "--resume", "auto", "--checkpoint-dir", str(checkpoint.parent))
    for machine, one in zip(three.machines, again, strict=True):
        assert_compiled_nothing(machine, one)
        assert int(one["resumed_from"].rpartition("-")[2]) in range(newest + 1)
        assert one["steps"] == newest + 3
