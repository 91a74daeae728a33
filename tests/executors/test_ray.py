"""Fleets on a real Ray cluster of three nodes on this machine; the compiler is a stand-in.

`make test-ray` makes the environment that it needs.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from cachekit import process
from cachekit.executors.fleet import every
from cachekit.store.layout import Layout
from tests.executors.fleet_session import until
from tests.executors.ray_cluster import SMALL, three_nodes

pytest_plugins = ["tests.executors.fleet_session"]
pytestmark = pytest.mark.ray
FREE = ("--price", "0")  # machines of one's own
PATIENCE = 150.0  # seconds until what must happen has happened


@pytest.fixture(scope="module")
def cluster():
    with three_nodes() as found:
        yield found


@pytest.fixture
def ray(fleet, cluster):
    """A fleet whose commands run on the cluster."""
    fleet.environment |= {"RAY_ADDRESS": cluster.address, "CACHEKIT_LEASE_SECONDS": "5"}
    return fleet


def _newest(ray):
    """The newest fleet; None before one is submitted."""
    return next(every(Layout(ray.home)), None)


def _begun(ray):
    """How many commands of the newest fleet have noted that they began."""
    return len(list(newest.path.glob("*.begun"))) if (newest := _newest(ray)) else 0


def _at_work(ray):
    """The workers of Ray that run commands of this fleet, each with the processes below it."""
    found = {}
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(ray.home).encode() in one.read_bytes() and b"process.py" in one.read_bytes():
                pid = int(one.parent.name)
                found[process.status(pid).parent] = (pid, *process.below(pid))
    return found


@pytest.mark.feature("F2")
def test_equal_keys_compile_once_on_the_nodes_of_a_cluster(ray):
    done = ray.warm(ray.matrix([1, 2, 3, 1]), "--on", "ray", "--jobs", "3", *FREE)
    assert done["counts"] == {"done": 4}
    assert ray.compiles == 3
    assert [unit["status"] for unit in done["units"]] == ["compiled"] * 3 + ["hit"]
    assert ray("fleet", "show", "-f", "json")[0]["counts"] == {"done": 4}, "its notes tell, now that nothing runs"


@pytest.mark.feature("F2")
def test_commands_outlive_who_submitted_them_and_a_worker_that_dies(ray):
    """The worker dies with all processes of its command; Ray begins the command again."""
    run = ray.begin("warm", "--matrix", ray.matrix([1, 2]), "--on", "ray", "--jobs", "2", *FREE, STANDIN_DELAY="3")
    until(lambda: len(_at_work(ray)) > 1)
    run.kill()
    run.communicate()
    worker, below = until(lambda: next(iter(_at_work(ray).items()), None))
    os.kill(worker, signal.SIGKILL)
    until(lambda: not [one for one in below if Path(f"/proc/{one}").exists()])
    done = ray("fleet", "wait", "--format", "json")[0]
    assert done["counts"] == {"done": 2}
    assert ray.compiles <= 2 + 1


@pytest.mark.slow
@pytest.mark.feature("F2")
def test_a_node_that_dies_loses_nothing(ray, cluster):
    run = ray.begin("warm", "--matrix", ray.matrix([1, 2, 3]), "--on", "ray", "--jobs", "3", *FREE, STANDIN_DELAY="3")
    until(lambda: len(_at_work(ray)) > 1)
    cluster.remove_node(cluster.plain, allow_graceful=False)
    cluster.plain = cluster.add_node(**SMALL)
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, out + err
    assert ray("fleet", "show", "--format", "json")[0]["counts"] == {"done": 3}
    assert ray.compiles <= 3 + 2, "at most what ran on the node compiles again"


def test_cancel_ends_all_and_ctrl_c_none(ray):
    run = ray.begin("warm", "--matrix", ray.matrix([1, 2, 3]), "--on", "ray", "--jobs", "2", *FREE, STANDIN_DELAY="200")
    until(lambda: _begun(ray) > 1)  # a process that is there may not have noted it yet
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert "the commands go on" in err
    assert ray("fleet", "show", "--format", "json")[0]["counts"] == {"running": 2, "waiting": 1}
    ray("fleet", "cancel")
    assert ray("fleet", "wait", "--format", "json", code=1)[0]["counts"] == {"cancelled": 3}
    until(lambda: not _at_work(ray))


@pytest.mark.slow
def test_a_command_that_fails_and_one_that_takes_too_long_say_so(ray):
    failed = ray.warm(ray.matrix([1]), "--on", "ray", *FREE, code=1, STANDIN_FAIL="compile")["units"][0]
    assert (failed["state"], failed["code"]) == ("failed", 6)
    assert "the compiler" in failed["error"]
    paid = ("--instance", "trn1.2xlarge", "--toolchain", "neuron-2.31", "--price", "1", "--max-dollars", "0.002")
    late = ray.warm(ray.matrix([2]), "--on", "ray", *paid, code=1, STANDIN_DELAY="200")["units"][0]
    assert late["state"] == "timed-out"


def test_what_ray_cannot_do_is_an_error_before_anything_is_submitted(ray, tmp_path):
    matrix = ray.matrix([1])
    _, err = ray("warm", "--matrix", matrix, "--on", "ray:neuron_cores=4", *FREE, code=2)
    assert "no node of the Ray cluster has CPU=1, neuron_cores=4" in err
    assert "neuron_cores=2" in err
    for wrong in ("ray:CPU=many", "ray:CPU=-1"):
        _, err = ray("warm", "--matrix", matrix, "--on", wrong, *FREE, code=2)
        assert f"{wrong} does not name resources" in err
    assert "on one node" in ray("train", "toy.yaml", "--nnodes", "2", "--on", "ray", *FREE, code=2)[1]
    for nowhere in ("127.0.0.1:1", "nowhere"):
        named = {"RAY_ADDRESS": nowhere}
        assert f"{nowhere} failed" in ray("warm", "--matrix", matrix, "--on", "ray", *FREE, code=1, **named)[1]
    for found in ("", "auto"):  # another user's cluster may be found first
        named = {"RAY_ADDRESS": found}
        assert "no Ray cluster is named" in ray("warm", "--matrix", matrix, "--on", "ray", *FREE, code=2, **named)[1]
    (tmp_path / "ray.py").write_text("raise ImportError('as if it were not there')")
    absent = {"PYTHONPATH": f"{tmp_path}:{ray.environment['PYTHONPATH']}"}
    assert "cachekit-neuron[ray]" in ray("warm", "--matrix", matrix, "--on", "ray", *FREE, code=1, **absent)[1]
    planned = ray.warm(matrix, "--on", "ray:CPU=2", "--dry-run")
    assert "# CPU=2 for each" in planned["request"]
    assert _newest(ray) is None
