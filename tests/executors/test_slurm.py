"""Fleets on a real Slurm of three nodes; the compiler is a stand-in, and each node has a home of its own.

`make test-slurm` installs what it needs.
"""

import json
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest

from cachekit import start
from cachekit.executors.fleet import every
from cachekit.store.layout import Layout
from tests.executors.fleet_session import until
from tests.executors.slurm_cluster import NODES, Cluster, lacking
from tests.support.processes import LONGEST, free_port
from tests.support.real_machine import SMALL, Machine, assert_compiled_nothing

pytest_plugins = ["tests.executors.fleet_session"]
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(lacking()), reason=lacking())]
FREE = ("--price", "0")  # machines of one's own
PATIENCE = 150.0  # seconds until what must happen has happened


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def slurm(fleet, cluster, tmp_path):
    """A fleet whose commands run on the cluster."""
    homes = tmp_path / "homes"
    fleet.environment |= {
        "SLURM_CONF": str(cluster.configuration),
        "CACHEKIT_SLURM_SETUP": f"export CACHEKIT_HOME={homes}/$SLURMD_NODENAME",
        "CACHEKIT_LEASE_SECONDS": "5",
    }
    return fleet


def _show(slurm):
    return slurm("fleet", "show", "--format", "json")[0]


def _running_on(slurm):
    """The nodes on which commands of the newest fleet run; none before it is submitted."""
    if not list(every(Layout(slurm.home))):
        return set()
    return {unit["machine"] for unit in _show(slurm)["units"] if unit["state"] == "running" and unit["machine"]}


@pytest.mark.feature("F2", "F9")
def test_twelve_commands_with_nine_keys_compile_nine_times(slurm):
    """Four have one key; those that find what the first one of them compiles begin last."""
    done = slurm.warm(slurm.matrix([1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 9]), "--on", "slurm:c", "--jobs", "3", *FREE)
    assert done["counts"] == {"done": 12}
    assert slurm.compiles == 9
    assert [unit["status"] for unit in done["units"]] == ["compiled"] * 9 + ["hit"] * 3
    assert {unit["machine"] for unit in done["units"]} == set(NODES)
    assert done["compiled"] == 27
    slurm("pull", "toy.yaml", "--set", "training.per_device_train_batch_size=7")
    assert slurm("plan", "toy.yaml", "--set", "training.per_device_train_batch_size=7", "-f", "quiet")[0] == "hit\n"


@pytest.mark.feature("F2", "F9")
def test_a_node_that_dies_costs_one_compile_and_loses_nothing(slurm, cluster):
    """The engine requeues what ran there, under the same number; its lease ends, and another node compiles."""
    slurm.environment["STANDIN_DELAY"] = "2"
    run = slurm.begin("warm", "--matrix", slurm.matrix([1, 2, 3, 4]), "--on", "slurm", "--jobs", "3", *FREE)
    node = min(until(lambda: _running_on(slurm)))
    cluster.kill(node)
    out, err = run.communicate(timeout=PATIENCE)
    cluster.start(node)
    assert run.returncode == 0, out + err
    done = _show(slurm)
    assert done["counts"] == {"done": 4}
    assert slurm.compiles <= 4 + 1
    assert len(list(slurm.shared.rglob("*.json"))) >= 4
    until(lambda: cluster.idle() == len(NODES))


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_a_controller_that_is_away_is_waited_for(slurm, cluster, seconds):
    slurm.environment["STANDIN_DELAY"] = str(max(2, seconds // 4))  # seen while they run, on a busy machine, too
    run = slurm.begin("warm", "--matrix", slurm.matrix([1, 2]), "--on", "slurm", "--jobs", "2", *FREE)
    until(lambda: _running_on(slurm))
    cluster.stop_controller()
    time.sleep(seconds)  # in which commands end
    cluster.start_controller()
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, out + err
    assert slurm.compiles == 2


def test_cancel_ends_all_and_ctrl_c_none(slurm, cluster):
    slurm.environment["STANDIN_DELAY"] = "100"
    run = slurm.begin("warm", "--matrix", slurm.matrix([1, 2, 3, 4]), "--on", "slurm", "--jobs", "3", *FREE)
    until(lambda: _running_on(slurm))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the commands go on" in err
    assert _show(slurm)["counts"].get("running", 0) > 0
    until(lambda: "1 waiting: JobArrayTaskLimit" in slurm("fleet", "show")[0])
    slurm("fleet", "cancel")
    done = slurm("fleet", "wait", "--format", "json", code=1)[0]
    assert done["counts"] == {"cancelled": 4}
    assert not [unit["reason"] for unit in done["units"] if unit["reason"]], "why it waited before is none"
    until(lambda: cluster.idle() == len(NODES))


def test_what_slurm_has_forgotten_its_notes_still_tell(slurm, tmp_path):
    """Minutes after a job ended the controller knows it no more: a laptop that slept asks later than that."""
    with Cluster(tmp_path / "short", min_job_age=2) as short:
        slurm.environment["SLURM_CONF"] = str(short.configuration)
        slurm.warm(slurm.matrix([1, 2]), "--on", "slurm", "--jobs", "2", *FREE)
        name = next(every(Layout(slurm.home))).id
        until(lambda: not short.asked("squeue", "--noheader", "--states=all", f"--name=cachekit-{name}"))
        assert _show(slurm)["counts"] == {"done": 2}
        run = slurm.begin("warm", "--matrix", slurm.matrix([3, 4]), "--on", "slurm", *FREE, STANDIN_DELAY="100")
        until(lambda: _running_on(slurm))
        slurm("fleet", "cancel")
        run.communicate(timeout=60)
        until(lambda: not short.asked("squeue", "--noheader", "--states=all"))
        assert _show(slurm)["counts"] == {"cancelled": 2}


def test_a_command_that_fails_on_its_node_says_why(slurm):
    done = slurm.warm(slurm.matrix([1]), "--on", "slurm", *FREE, code=1, STANDIN_FAIL="compile")
    (unit,) = done["units"]
    assert (unit["state"], unit["code"]) == ("failed", 6)
    assert "the compiler" in unit["error"]


def test_a_machine_that_cannot_even_begin_says_why_in_its_own_words(slurm):
    broken = {"CACHEKIT_SLURM_SETUP": "echo no such module: neuron >&2; exit 3"}
    done = slurm.warm(slurm.matrix([1]), "--on", "slurm", *FREE, code=1, **broken)
    (unit,) = done["units"]
    assert unit["state"] == "failed"
    assert unit["error"] == "no such module: neuron"


@pytest.mark.slow
def test_a_machine_that_does_not_see_the_store_is_told_as_that(slurm, cluster):
    """In its place lies an empty file system, on each node: Slurm only says that the job could not be launched."""
    slurm.home.mkdir(mode=0o700)
    step = ("srun", "-N3", "--ntasks-per-node=1", "sh", "-c")
    assert cluster.asked(*step, f"mount -t tmpfs none {slurm.home} && echo hidden").split() == ["hidden"] * len(NODES)
    try:
        done = slurm.warm(slurm.matrix([1]), "--on", "slurm", *FREE, code=1)
    finally:
        cluster.asked(*step, f"umount {slurm.home}")
    assert done["units"][0]["state"] == "failed"
    assert f"it did not begin: does its machine see {slurm.home}" in done["error"]["cause"]


def test_a_budget_is_kept_by_a_limit_of_time(slurm):
    matrix, instance = slurm.matrix([1, 2]), ("--instance", "trn1.2xlarge", "--toolchain", "neuron-2.31")
    options = ("--on", "slurm", "--jobs", "2")
    assert "--max-dollars" in slurm("warm", "--matrix", matrix, *options, code=2)[1]
    assert "is unknown" in slurm("warm", "--matrix", matrix, *options, "--max-dollars", "3", code=2)[1]
    dry = (*options, "--dry-run")
    assert "--max-dollars" in slurm.warm(matrix, *dry)["lacks"][0], "what a budget would be for can be seen without one"
    planned = slurm.warm(matrix, *dry, *instance, "--max-dollars", "3")
    per_hour = planned["price"]["per_hour"]
    assert planned["max_seconds"] == pytest.approx(3 / per_hour * 3600 / 2, abs=0.001)
    assert "#SBATCH --time=67" in planned["request"] or "#SBATCH --time=" in planned["request"]
    # A job that asks for more than its partition gives would wait for ever.
    short = slurm.warm(matrix, "--on", "slurm:short", "--dry-run", *instance, "--max-dollars", "3")
    assert short["max_seconds"] == 30 * 60
    assert "#SBATCH --time=30\n" in short["request"]
    assert (
        "not enough for 1 min 0 s of each command"
        in slurm("warm", "--matrix", matrix, *options, *instance, "--max-dollars", "0", code=2)[1]
    )
    three = ("train", "toy.yaml", "--nnodes", "3", "--format", "json", "--on", "slurm", "--dry-run", *instance)
    assert slurm(*three, "--max-dollars", "3")[0]["max_seconds"] == pytest.approx(3 / per_hour * 3600 / 3, abs=0.001)
    assert slurm("fleet", "ls", "--format", "json")[0] == []


def test_what_slurm_cannot_do_is_an_error_before_anything_is_submitted(slurm):
    matrix = slurm.matrix([1])
    _, err = slurm("warm", "--matrix", matrix, "--on", "slurm:gpu", *FREE, code=2)
    assert "no partition 'gpu'" in err
    assert "there are: c, short" in err
    _, err = slurm("warm", "--matrix", matrix, "--on", "slurm", *FREE, code=1, SBATCH_RESERVATION="nobody's")
    assert "Requested reservation is invalid" in err
    assert "SBATCH_ACCOUNT" in err
    _, err = slurm("warm", "--matrix", matrix, "--on", "slurm", *FREE, code=2, CACHEKIT_CACHE="local:rw")
    assert "no shared cache" in err
    _, err = slurm("warm", "--matrix", matrix, "--on", "slurm", *FREE, code=1, PATH="/nowhere")
    assert "Slurm was not found" in err


@pytest.mark.slow
@pytest.mark.feature("F2", "F9")
def test_a_node_whose_disk_is_full_says_so_and_the_others_go_on(slurm):
    """Its own disk, where it has its store: a file system of a few blocks, mounted in its space alone."""
    store = f"{slurm.home.parent}/homes/n2"
    setup = slurm.environment["CACHEKIT_SLURM_SETUP"]
    full = f"[ $SLURMD_NODENAME != n2 ] || {{ mkdir -p {store}; mount -t tmpfs -o size=300k none {store}; }}"
    batches = [1, 2, 3, 4, 5, 6]
    done = slurm.warm(
        slurm.matrix(batches), "--on", "slurm", "--jobs", "3", *FREE, code=1, CACHEKIT_SLURM_SETUP=f"{setup}; {full}"
    )
    failed = [unit for unit in done["units"] if unit["state"] != "done"]
    assert {unit["state"] for unit in failed} == {"failed"}
    assert {unit["machine"] for unit in failed} == {"n2"}
    for unit in failed:
        assert "No space left on device" in unit["error"]
        assert store in unit["error"]
    assert f"{failed[0]['name']} on n2: " in done["error"]["cause"]
    # The others have compiled theirs, and once there is room the rest follows.
    again = slurm.warm(
        "list.yaml", "--on", "slurm", "--jobs", "3", *FREE, CACHEKIT_SLURM_SETUP=f"{setup}; umount -q {store}; true"
    )
    assert again["counts"] == {"done": len(batches)}
    assert sum(unit["status"] == "hit" for unit in again["units"]) == len(batches) - len(failed)


@pytest.mark.slow
@pytest.mark.feature("F2", "F10")
def test_a_command_that_runs_out_of_time_gives_its_lease_back(slurm):
    """Slurm's limits are of whole minutes. Whoever compiles the same next waits for nobody."""
    slurm.environment |= {"STANDIN_DELAY": "300", "CACHEKIT_LEASE_SECONDS": "600"}
    paid = ("--instance", "trn1.2xlarge", "--toolchain", "neuron-2.31", "--price", "60", "--max-dollars", "1")
    done = slurm.warm(slurm.matrix([1]), "--on", "slurm", *paid, code=1)
    (unit,) = done["units"]
    assert unit["state"] == "timed-out"
    assert "error[interrupted]" in slurm("fleet", "logs")[0]
    assert slurm.warm("list.yaml", "--on", "slurm", *FREE, STANDIN_DELAY="0")["counts"] == {"done": 1}


@pytest.mark.slow
@pytest.mark.feature("F2")
@pytest.mark.parametrize("seed", range(20))
def test_random_kills_lose_nothing_and_cost_a_compile_each(slurm, cluster, seed):
    chance = random.Random(seed)
    slurm.environment["STANDIN_DELAY"] = "1"
    batches = [1, 1, 2, 3, 4, 5]
    run = slurm.begin("warm", "--matrix", slurm.matrix(batches), "--on", "slurm", "--jobs", "3", *FREE)
    until(lambda: _running_on(slurm))
    kills = chance.randint(1, 3)
    for _ in range(kills):
        time.sleep(chance.uniform(0, 4))
        node = chance.choice(NODES)
        cluster.kill(node)
        time.sleep(chance.uniform(0, 2))
        cluster.start(node)
    out, err = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, out + err
    assert _show(slurm)["counts"] == {"done": len(batches)}
    assert slurm.compiles <= len(set(batches)) + kills
    until(lambda: cluster.idle() == len(NODES))


@pytest.mark.feature("F2")
def test_each_machine_of_a_step_is_told_its_place(cluster):
    """`cachekit train --nnodes 3` under srun is the same command on each machine."""
    code = "from cachekit.compilers.nodes import place; found = place(3, 29500); print(found.rank, found.address)"
    step = ("srun", "-N3", "--ntasks-per-node=1", sys.executable, "-c", code)
    assert sorted(cluster.asked(*step).splitlines()) == [f"{rank} {NODES[0]}" for rank in range(3)]
    twice = ("srun", "-N2", "--ntasks-per-node=2", sys.executable, "-c", code.replace("place(3", "place(2"))
    refused = subprocess.run(twice, env=cluster.environment, capture_output=True, text=True, check=False)
    assert "Slurm started 4 commands on 2 machines" in refused.stderr


def _runs(slurm, mode):
    """What the stand-in worker noted of its runs of a kind."""
    noted = map(json.loads, slurm.log.read_text().splitlines())
    return [(one["found"], one["compiled"]) for one in noted if one["mode"] == mode]


@pytest.mark.feature("F2")
def test_a_training_on_three_nodes_is_one_command_of_which_one_compiles(slurm):
    """Slurm starts it on each node; two of them wait for what the third one compiles."""
    words = ("train", "toy.yaml", "--on", "slurm", "--nnodes", "3", "--master-port", str(free_port()), *FREE)
    assert "sets each machine's rank" in slurm(*words, "--node-rank", "1", code=2)[1]
    words += ("--format", "json")
    planned = slurm(*words, "--dry-run")[0]
    assert planned["nodes"] == 3
    assert "#SBATCH --nodes=3\n" in planned["request"]
    (unit,) = slurm(*words)[0]["units"]
    assert (unit["state"], unit["machine"]) == ("done", "n[1-3]")
    assert (_runs(slurm, "trial"), _runs(slurm, "train")) == ([(0, 3)], [(3, 0)] * 3)
    assert len({path.name for path in (slurm.home.parent / "homes").iterdir()}) == 3, "each has a store of its own"


@pytest.mark.feature("F2", "C2")
def test_a_warm_that_needs_all_machines_of_the_training_gets_them(slurm):
    """As Neuron's does, whose graphs name all workers."""
    slurm.environment["STANDIN_TOGETHER"] = "1"
    words = ("toy.yaml", "--on", "slurm", "--nnodes", "3", "--master-port", str(free_port()), *FREE, "--format", "json")
    assert "#SBATCH --nodes=3\n" in slurm("warm", *words, "--dry-run")[0]["request"]
    (unit,) = slurm("warm", *words)[0]["units"]
    assert (unit["state"], unit["machine"], unit["status"]) == ("done", "n[1-3]", "compiled")
    assert _runs(slurm, "trial") == [(0, 3)] * 3
    slurm("train", *words, "--require-warm")
    assert _runs(slurm, "train") == [(3, 0)] * 3
    assert "this is one machine" in slurm("warm", "toy.yaml", "--on", "local", "--nnodes", "3", code=2)[1]
    entries = [{"recipe": "toy.yaml", "set": {"parallel.nodes": nodes}} for nodes in (1, 3)]
    (slurm.work / "list.yaml").write_text(json.dumps(entries))
    _, err = slurm("warm", "--matrix", "list.yaml", "--on", "slurm", *FREE, code=2)
    assert "need different numbers of machines: 1 and 3" in err


@pytest.mark.feature("F2")
def test_a_node_that_dies_before_three_of_them_train_costs_one_compile(slurm, cluster):
    """Slurm puts the whole job back into its queue, and begins it again when there are three nodes."""
    slurm.environment["STANDIN_DELAY"] = "8"
    words = ("--nnodes", "3", "--master-port", str(free_port()))
    run = slurm.begin("train", "toy.yaml", "--on", "slurm", *words, *FREE)
    homes = slurm.home.parent / "homes"
    until(lambda: len(list(homes.glob("*/v1/journal"))) == len(NODES))
    cluster.kill("n2")
    until(lambda: cluster.asked("sinfo", "--noheader", "--states=down", "--format=%D"))
    cluster.start("n2")
    out, err = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, out + err
    assert _show(slurm)["counts"] == {"done": 1}
    assert slurm.compiles <= 2
    assert _runs(slurm, "train")[-3:] == [(3, 0)] * 3
    until(lambda: cluster.idle() == len(NODES))


@pytest.mark.feature("F2")
def test_a_node_that_dies_while_three_of_them_train_is_a_requeue_without_a_compile(slurm, cluster):
    """The others name it and end; the job asks Slurm for its requeue, and begins when there are three nodes again."""
    slurm.environment["STANDIN_TRAINS"] = "15"
    words = ("--nnodes", "3", "--master-port", str(free_port()))
    run = slurm.begin("train", "toy.yaml", "--on", "slurm", *words, *FREE)
    until(lambda: slurm.log.exists() and len(_runs(slurm, "train")) == len(NODES))
    cluster.kill("n2")
    until(lambda: _show(slurm)["counts"] == {"waiting": 1})
    cluster.start("n2")
    out, err = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, out + err
    (unit,) = _show(slurm)["units"]
    assert unit["state"] == "done"
    assert slurm.compiles == 1
    assert _runs(slurm, "train")[len(NODES) :] == [(3, 0)] * 3
    log = "\n".join(slurm("fleet", "logs", "-f", "json")[0]["lines"])
    assert "error[machine-gone]: node 1 (n2) went away" in log
    until(lambda: cluster.idle() == len(NODES))


@pytest.mark.feature("F1", "F2", "P1")
def test_three_nodes_train_over_gloo_after_a_warm_and_none_compiles(cluster, tmp_path):
    """The real Inductor: a trial run on one machine makes the graphs of a run on three."""
    (tmp_path / "shared").mkdir(mode=0o700)
    machine = Machine(tmp_path / "here", CACHEKIT_CACHE=f"local:rw,{tmp_path / 'shared'}:rw")
    assert machine("warm", machine.recipe(SMALL), "--nnodes", "3")["compiled"] == 3
    machine.log.unlink()
    train = shlex.join([*start.COMMAND, "cachekit", "train", "tiny.yaml", "--nnodes", "3", "--master-port"])
    own = f"CACHEKIT_HOME={tmp_path}/$SLURMD_NODENAME {train} {free_port()} --require-warm --format json"
    step = ("srun", "-N3", "--ntasks-per-node=1", f"--output={tmp_path}/%t.json", f"--error={tmp_path}/%t.log")
    environment = {**machine.environment, "SLURM_CONF": str(cluster.configuration)}
    subprocess.run([*step, "sh", "-c", own], cwd=machine.work, env=environment, check=False, timeout=LONGEST)
    for rank in range(3):
        assert_compiled_nothing(machine, json.loads((tmp_path / f"{rank}.json").read_text()))
