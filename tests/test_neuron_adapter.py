"""Runs on a Neuron host that is stood in for, from the command line down to the compiler: kills, locks, failures.

The worker asks for graphs by their numbers (`neuron_worker`), so that a run takes a second; the same over real graphs
is `test_neuron_main_job`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from neuron_files import make_neff
from neuron_machine import RECIPE, Machine, end, left_behind, processes_under, until
from neuron_sdk import COMPILER_DIRECTORY, SCRIPTS, Entry, neuron_host
from one_neuron import neuron_alone

from cachekit.compilers.neuron import fit
from cachekit.record import File

FLAGS = "e30acd3a"  # the hash of no flags
# NEFFs that are whole, and not for the machine of these tests.
FOREIGN = {
    "another chip": ({"target": "cayman"}, "it was compiled for trn2"),
    "an older chip": ({"target": "tonga", "lnc": 1}, "it was compiled for inf1"),
    "an unknown chip": ({"target": "v5", "lnc": 1}, "which is no chip that is known here"),
    "two chips": ({"extra": {"kelf-b.json": b'{"target": "cayman"}'}}, "two targets"),
    "no chip": ({"without": ["kelf-0.json"]}, "nothing in it says which chip"),
    "another compiler": ({"version": "2.21.33363.0+82129205"}, "it was compiled by 2.21.33363.0"),
    "another module": ({"name": "MODULE_77+e30acd3a.neff"}, "it was compiled as MODULE_77"),
}
OLD = 3600.0  # seconds: no lock of that age belongs to a compile that is about to begin


@pytest.fixture
def place():
    """A folder that no other host can share, also where the tests run in a container: only there a lock is certain."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)
        for pid in processes_under(Path(folder)):  # only where a test failed
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def machine(place):
    made = Machine(place / "user")
    made.graphs(1, 2, **{"1": ["3"]})
    with neuron_alone():
        yield made


def another(machine: Machine, folder: Path, **knobs) -> Machine:
    """Another host that has the same store."""
    other = Machine(folder, host=neuron_host(folder / "other-host", **knobs))
    other.home = machine.home
    other.environment["CACHEKIT_HOME"] = str(machine.home)
    other.plan.write_text(machine.plan.read_text())
    return other


def name(graph: object) -> str:
    return f"MODULE_{graph}+{FLAGS}"


def entry(machine: Machine, graph: object) -> Entry:
    return Entry(machine.host.root / COMPILER_DIRECTORY / name(graph))


def recorded(machine: Machine) -> list[str]:
    return [module.name.partition("/")[2] for module in machine.record().modules]


def age(place: Path, seconds: float = OLD) -> None:
    """Make a folder and all in it look as if nobody had touched it for long."""
    then = time.time() - seconds
    for path in (*place.rglob("*"), place):
        os.utime(path, (then, then))


def poison(machine: Machine, graph: object, text: str) -> Path:
    """Have Neuron remember that a graph failed."""
    ask(machine, graph, NEURON_EXTRACT_GRAPHS_ONLY="1")
    log = entry(machine, graph).path / "model.log"
    log.write_text(f"Failed compilation with ['neuronx-cc', 'compile']: {text}")
    return log


def ask(machine: Machine, *graphs: object, **variables: str) -> subprocess.CompletedProcess:
    """A process that knows nothing of cachekit wants graphs."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), *map(str, graphs)],
        env={**machine.host.environment, **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


# --- warm and train -------------------------------------------------------------------------------------------------


@pytest.mark.feature("F1", "M3")
def test_all_ranks_graphs_are_in_the_record_and_nothing_compiles_twice(machine, place):
    done = machine("warm", "tiny.yaml")
    assert (done["compiled"], recorded(machine)) == (3, [name(1), name(2), name(3)])
    machine.host.forget()
    assert machine("warm", "tiny.yaml")["compiled"] == 0
    other = another(machine, place / "other")
    for one in (machine, other):
        result = one("train", "tiny.yaml", "--require-warm")
        assert (result["compiled"], result["found"], one.host.compiles) == (0, 3, 0)
        assert len(one.host.events("loaded")) == 5, "two workers share two graphs, one has a third"
        assert not left_behind(one.host)


def test_two_warms_at_once_compile_once(machine):
    machine.host.knobs(compile_seconds=0.5)
    processes = [machine.start("warm", "tiny.yaml") for _ in range(2)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(json.loads(out)["compiled"] for out, _ in said) == [0, 3]
    assert machine.host.compiles == 3
    assert sum("the same key is being compiled by" in words for _, words in said) == 1


@pytest.mark.feature("N3")
def test_files_of_the_working_directory_are_not_imported(machine):
    """Neither by the launcher of the workers nor by the tools around it."""
    for module in ("argparse", "signal", "subprocess"):
        (machine.work / f"{module}.py").write_text("raise SystemExit('my own file ran')")
    assert machine("warm", "tiny.yaml")["status"] == "compiled"


def test_a_process_that_knows_nothing_of_cachekit_uses_the_same_root(machine):
    """Its modules are not taken for ours; ours are found by it."""
    machine.host.knobs(compile_seconds=0.3)
    stranger = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "graphs.py"), "71", "72", "73", "2"],
        env=machine.host.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine("warm", "tiny.yaml")
    said, _ = stranger.communicate(timeout=60)
    assert (stranger.returncode, machine.host.compiles) == (0, 6)
    assert recorded(machine) == [name(1), name(2), name(3)]
    assert len(said.splitlines()) > 4
    later = ask(machine, 1, 2, 3)
    assert (later.returncode, later.stdout.count("Using a cached neff"), machine.host.compiles) == (0, 3, 6)


@pytest.mark.feature("M3")
def test_what_the_record_lacks_compiles_and_is_added_with_where(machine):
    machine("warm", "tiny.yaml")
    machine.host.knobs(compile_seconds=0.5)
    machine.graphs(1, 2, **{"1": ["3"]}, train=[["8", "evaluation"], ["9", "training step after a checkpoint"]])
    result = machine("train", "tiny.yaml")
    assert (result["compiled"], result["built"]) == (2, 2)
    assert result["surprises"] == ["evaluation", "training step after a checkpoint"]
    assert "compiled in: evaluation, training step after a checkpoint" in machine.said
    assert recorded(machine) == [name(graph) for graph in (1, 2, 3, 8, 9)]
    machine.host.forget()
    assert machine("train", "tiny.yaml", "--require-warm")["found"] == 5
    assert machine.host.compiles == 0


@pytest.mark.feature("M3")
def test_a_strict_training_stops_as_a_compile_begins(machine):
    """The log tells of it only at its end, an hour later perhaps."""
    machine("warm", "tiny.yaml")
    machine.graphs(1, 2, train=[["8", "evaluation"]])
    machine.host.knobs(compile_seconds=300)
    refused = machine("train", "tiny.yaml", "--require-warm", code=3)
    assert name(8) in refused["error"]["message"]
    assert refused["error"]["cause"] == "it began to compile in: evaluation"
    assert not left_behind(machine.host)
    assert not entry(machine, 8).finished
    assert recorded(machine) == [name(1), name(2), name(3)]


def test_workers_that_use_different_graphs_are_told_of(machine):
    machine("warm", "tiny.yaml")
    machine("train", "tiny.yaml")
    assert "workers used graphs that not all of them used" in machine.said


def test_a_trial_in_which_a_worker_dies_is_no_warm(machine):
    machine.graphs(1, 2, **{"1": ["3"]}, die=1)
    failed = machine("warm", "tiny.yaml", code=1)
    assert failed["error"]["code"] == "training-failed"
    assert not list((machine.home / "v1" / "records").rglob("*.json"))


@pytest.mark.feature("F6", "M3")
def test_a_module_that_could_not_be_restored_is_told_of_with_its_reason(machine, place):
    machine("warm", "tiny.yaml")
    other = another(machine, place / "other")
    ask(other, 2, NEURON_EXTRACT_GRAPHS_ONLY="1")
    notes = entry(other, 2).path / "notes.txt"
    notes.touch()
    other.host.knobs(compile_seconds=2)
    refused = other("train", "tiny.yaml", "--require-warm", code=3)["error"]
    reason = "notes.txt lies there, which is not of Neuron's cache"
    assert f"{COMPILER_DIRECTORY}/{name(2)} was left as it is, and not restored: {reason}" in other.said
    assert name(2) in refused["message"]
    assert f"the record has it, but it was not restored: {reason}" in refused["cause"]
    assert str(notes.parent) in refused["hint"]

    (notes.parent / "model.hlo_module.pb.lock").unlink(missing_ok=True)
    trained = other("train", "tiny.yaml")
    assert (trained["compiled"], notes.exists()) == (1, True)
    assert f"not restored: {reason}" in other.said
    assert "they are added to the record" not in other.said

    other.graphs(1, 2, train=[["8", "evaluation"]])
    refused = other("train", "tiny.yaml", "--require-warm", code=3)["error"]
    assert (refused["cause"], "the record lacks it" in refused["hint"]) == ("it began to compile in: evaluation", True)


# --- without neuron_parallel_compile --------------------------------------------------------------------------------


def test_without_neuron_parallel_compile_graphs_are_compiled_directly_the_largest_first(machine):
    (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.graphs(5, 1234567, 678)
    machine("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=1")
    assert recorded(machine) == sorted(map(name, (5, 1234567, 678)))
    sizes = [event["bytes"] for event in machine.host.events("compile")]
    assert sizes == sorted(sizes, reverse=True)
    machine.host.forget()
    machine("train", "tiny.yaml", "--require-warm")
    assert machine.host.compiles == 0


# --- kills ----------------------------------------------------------------------------------------------------------


def hidden(machine: Machine) -> list[Path]:
    return [path for path in machine.host.root.rglob(".cachekit-*") if path.is_dir()]


@pytest.mark.feature("S2")
@pytest.mark.parametrize("npc", [True, False], ids=["parallel-compile", "directly"])
def test_a_kill_during_a_compile_leaves_no_process_and_the_next_warm_finishes(machine, npc):
    if not npc:
        (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "hang", "times": 1}])
    process = machine.start("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=1")
    until(lambda: machine.host.events("failed"), "a compile hangs")
    end(process)
    process.communicate()
    until(lambda: not left_behind(machine.host), "every process has ended")
    assert not list((machine.home / "v1" / "records").rglob("*.json"))
    lock = entry(machine, 2).path / "model.hlo_module.pb.lock"
    assert lock.exists(), "Neuron's lock has no owner who could take it away"
    assert not entry(machine, 2).finished

    age(entry(machine, 2).path)
    done = machine("warm", "tiny.yaml")
    assert f"cleared the lock of {name(2)}" in machine.said
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert not lock.exists()
    assert len(machine.host.events("compiled")) == 3, "what was finished was not compiled again"


@pytest.mark.feature("F6", "S2")
def test_a_kill_during_a_restore_leaves_nothing_half_visible(machine, place):
    machine.graphs(*range(1, 60))
    machine("warm", "tiny.yaml")
    other = another(machine, place / "other")
    process = other.start("train", "tiny.yaml", "--require-warm")
    until(lambda: len(other.host.entries()) > 3, "the restore has begun")
    end(process)
    process.communicate()
    until(lambda: not left_behind(other.host), "every process has ended")
    assert all(found.finished and (found.path / "model.neff").exists() for found in other.host.entries())
    result = other("train", "tiny.yaml", "--require-warm")
    assert (result["compiled"], result["found"], other.host.compiles) == (0, 59, 0)
    assert not hidden(other)


def test_ctrl_c_ends_compilers_in_sessions_of_their_own(machine):
    machine("warm", "tiny.yaml")
    machine.graphs(1, 2, train=[["8", "evaluation"]])
    machine.host.knobs(failures=[{"match": "*MODULE_8+*", "class": "hang"}])
    process = machine.start("train", "tiny.yaml")
    until(lambda: machine.host.events("failed"), "a compile hangs")
    end(process, 2)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not left_behind(machine.host)
    assert not (entry(machine, 8).path / "model.log").exists(), "Neuron would never compile it again"


# --- locks ----------------------------------------------------------------------------------------------------------


def lock(machine: Machine, graph: object, seconds: float = 0) -> Path:
    ask(machine, graph, NEURON_EXTRACT_GRAPHS_ONLY="1")
    path = entry(machine, graph).path / "model.hlo_module.pb.lock"
    path.touch()
    if seconds:
        age(path.parent, seconds)
    return path


def test_a_stale_lock_is_cleared_before_a_warm_and_before_a_restore(machine, place):
    lock(machine, 2, OLD)
    machine("warm", "tiny.yaml")
    assert f"cleared the lock of {name(2)}: no process of this host compiles" in machine.said
    other = another(machine, place / "other")
    lock(other, 2, OLD)
    result = other("train", "tiny.yaml", "--require-warm")
    assert (result["found"], other.host.compiles) == (3, 0)
    assert f"cleared the lock of {name(2)}" in other.said


@pytest.mark.slow
@pytest.mark.parametrize("npc", [True, False], ids=["parallel-compile", "directly"])
def test_a_lock_that_becomes_stale_while_it_is_waited_for_is_cleared(machine, npc):
    """It may belong to somebody until two minutes have passed; who waits for it does not hold it."""
    if not npc:
        (machine.host.bin / "neuron_parallel_compile").unlink()
    lock(machine, 2, 100)
    done = machine("warm", "tiny.yaml")
    assert f"{name(2)} is locked, and may stay so: it, or its module, was written 1" in machine.said
    assert (done["status"], len(machine.host.events("compiled"))) == ("compiled", 3)


def test_a_live_lock_is_waited_for(machine):
    machine.host.knobs(compile_seconds=4, lock_minute=0.5)
    stranger = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "graphs.py"), "2"], env=machine.host.environment, stdout=subprocess.DEVNULL
    )
    until(lambda: machine.host.compiles, "a stranger compiles")
    machine.graphs(2)
    machine("warm", "tiny.yaml")
    assert stranger.wait(60) == 0
    assert f"{name(2)} is being compiled by another process: neuronx-cc" in machine.said
    assert (machine.host.compiles, recorded(machine)) == (1, [name(2)])


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.feature("F3", "N2")
@pytest.mark.parametrize(
    "kind, code, advice",
    [
        ("device-oom", "NCC_EOOM002", "per_device_train_batch_size"),
        ("user-error", "NCC_EBVF030", "change what its message names"),
    ],
)
def test_a_graph_that_cannot_compile_is_named_and_remembered_and_the_others_are_kept(machine, kind, code, advice):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": kind}])
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert error["message"] == "1 of 3 graphs did not compile"
    assert f"{name(2)}: {kind} ({code}): " in error["cause"]
    assert advice in error["hint"]
    assert [entry(machine, graph).finished for graph in (1, 2, 3)] == [True, False, True]
    assert not list((machine.home / "v1" / "records").rglob("*.json"))

    machine.host.forget()
    assert machine("warm", "tiny.yaml", code=6)["error"]["cause"] == error["cause"]
    assert machine.host.compiles == 0, "it is known to fail again"

    age(entry(machine, 2).path, 8 * 86400)
    machine.host.knobs(failures=[])
    done = machine("warm", "tiny.yaml")
    assert f"{name(2)} failed before ({kind}); trying again" in machine.said
    assert (done["compiled"], machine.host.compiles) == (1, 1), "only the rest compiles"
    assert recorded(machine) == [name(1), name(2), name(3)]


@pytest.mark.feature("N3")
@pytest.mark.parametrize(
    "text, kind",
    [
        ("KeyboardInterrupt", "interrupted"),
        ("[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient memory", "host-oom"),
        ("OSError: [Errno 28] No space left on device", "disk-full"),
        ("neuronx-cc compilation failed with -9", "host-oom"),
        ("subprocess.TimeoutExpired: timed out after 3600 seconds", "timed-out"),
    ],
)
def test_a_remembered_failure_that_may_not_come_again_is_cleared(machine, text, kind):
    poison(machine, 2, text)
    done = machine("warm", "tiny.yaml")
    assert f"{name(2)} failed before ({kind}); trying again" in machine.said
    assert (done["compiled"], recorded(machine)) == (3, [name(1), name(2), name(3)])
    assert not (entry(machine, 2).path / "model.log").exists()


@pytest.mark.feature("N2")
def test_a_remembered_failure_that_will_come_again_is_explained(machine):
    poison(machine, 2, "[ERROR] [NCC_EOOM002] The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB.")
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert "device-oom (NCC_EOOM002): " in error["cause"]
    assert "27.0GB exceeds the HBM limit" in error["cause"]
    assert [entry(machine, graph).finished for graph in (1, 2, 3)] == [True, False, True]


@pytest.mark.feature("N3")
def test_what_the_advice_says_of_trying_again_is_so(machine):
    """A training stops at a failure of unknown class; its option has it compiled."""
    machine("warm", "tiny.yaml")
    machine.graphs(1, 2, train=[["9", "evaluation"]])
    log = poison(machine, 9, "odd words")
    error = machine("train", "tiny.yaml", code=6)["error"]
    assert "--retry_failed_compilation in NEURON_CC_FLAGS" in error["hint"]
    assert log.exists()
    assert machine("train", "tiny.yaml", NEURON_CC_FLAGS="--retry_failed_compilation")["compiled"] == 1
    assert entry(machine, 9).finished


@pytest.mark.feature("N2")
def test_a_failure_of_a_direct_compile_is_remembered_with_its_log(machine):
    (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "device-oom"}])
    machine("warm", "tiny.yaml", code=6)
    (path,) = (machine.host.root / ".cachekit" / "failures").glob("*.json")
    known = json.loads(path.read_text())
    assert (known["module"], known["kind"]) == (name(2), "device-oom")
    assert "exceeds the HBM limit" in known["log"]
    machine.host.forget()
    machine("warm", "tiny.yaml", code=6)
    assert machine.host.compiles == 0
    path.write_text(json.dumps({**known, "expires": known["when"]}))
    machine.host.knobs(failures=[])
    assert machine("warm", "tiny.yaml")["compiled"] == 1


@pytest.mark.feature("N3")
@pytest.mark.parametrize("npc", [True, False], ids=["parallel-compile", "directly"])
@pytest.mark.parametrize("kind", ["host-oom", "killed"])
def test_a_compile_that_ran_out_of_the_hosts_memory_is_tried_again(machine, npc, kind):
    if not npc:
        (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": kind, "times": 1}])
    done = machine("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=2")
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert len(machine.host.events("failed")) == 1
    assert not list(machine.host.root.rglob("model.log"))


@pytest.mark.feature("N3")
def test_an_internal_error_without_a_code_is_reported_and_not_remembered(machine):
    (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "internal"}])
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert "internal: " in error["cause"]
    assert "neuronx-cc" in error["hint"]


def test_a_training_that_meets_a_remembered_failure_says_so(machine):
    machine("warm", "tiny.yaml")
    log = poison(machine, 8, "[ERROR] [NCC_EOOM002] The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB.")
    machine.graphs(1, 2, train=[["8", "evaluation"]])
    error = machine("train", "tiny.yaml", code=6)["error"]
    assert name(8) in error["message"]
    assert "device-oom" in error["cause"]
    assert str(log) in error["hint"]
    log.write_text("Failed compilation with ['neuronx-cc']: KeyboardInterrupt")
    assert machine("train", "tiny.yaml")["compiled"] == 1
    assert f"{name(8)} failed before (interrupted); trying again" in machine.said


# --- hangs at exit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knob", ["trial_hangs", "parallel_compile_hangs"])
def test_a_warm_that_never_ends_by_itself_is_ended_and_completed(machine, knob):
    machine.host.knobs(**{knob: True})
    done = machine("warm", "tiny.yaml", "--set", "compiler.options.exit_timeout=1")
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert (done["compiled"], len(machine.host.events("compiled"))) == (3, 3)
    assert not left_behind(machine.host)


def test_a_silent_compile_is_no_hang(machine):
    """One of two compile workers has nothing left to do; the other one is silent for long."""
    machine.host.knobs(failures=[], compile_seconds=4)
    machine.graphs(1)
    options = ("--set", "compiler.options.exit_timeout=1", "--set", "compiler.options.num_parallel=2")
    assert machine("warm", "tiny.yaml", *options)["compiled"] == 1
    assert machine.host.compiles == 1, "it was not cut short and begun again"


# --- damage and foreign modules -------------------------------------------------------------------------------------


@pytest.mark.feature("F6", "S5")
@pytest.mark.parametrize("damage", ["bit", "cut", "empty"])
def test_a_damaged_neff_in_the_root_is_replaced(machine, damage):
    machine("warm", "tiny.yaml")
    neff = entry(machine, 2).path / "model.neff"
    whole = neff.read_bytes()
    flipped = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    neff.write_bytes({"bit": flipped, "cut": whole[:-512], "empty": b""}[damage])
    result = machine("train", "tiny.yaml", "--require-warm")
    assert (result["compiled"], neff.read_bytes()) == (0, whole)


@pytest.mark.feature("F6", "S5")
def test_a_damaged_module_in_the_store_is_a_miss(machine, place):
    machine("warm", "tiny.yaml")
    neff = next(file for file in machine.record().modules[1].files if file.path == "model.neff")
    blob = next((machine.home / "v1" / "blobs").rglob(neff.sha256))
    raw = bytearray(blob.read_bytes())
    raw[1500] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(raw)
    other = another(machine, place / "other")
    assert other("train", "tiny.yaml", "--require-warm", code=3)["error"]["code"] == "not-warm"
    assert not other.host.entries() or all(found.finished for found in other.host.entries())
    result = other("train", "tiny.yaml")
    assert (result["status"], result["compiled"]) == ("warmed", 0)


@pytest.mark.feature("F6", "K1")
@pytest.mark.parametrize("what", FOREIGN)
def test_a_module_for_another_target_is_never_restored(machine, place, what):
    """A record whose digests fit, and whose NEFF is not for this machine: somebody made it so."""
    machine("warm", "tiny.yaml")
    output = place / "model.neff"
    make_neff(output, **{"version": "2.26.6360.0+6f180f47", "target": "sunda", **FOREIGN[what][0]})
    foreign = publishable(output, place)

    def change(module):
        files = tuple(foreign[0] if file.path == "model.neff" else file for file in module.files)
        return [module if name(2) not in module.name else type(module)(module.name, files)]

    machine.rewrite(change, {foreign[0].sha256: foreign[1]})
    other = another(machine, place / "other")
    error = other("train", "tiny.yaml", "--require-warm", code=5)["error"]
    assert FOREIGN[what][1] in error["cause"]
    assert not entry(other, 2).path.exists()
    result = other("train", "tiny.yaml")
    assert (result["compiled"], result["found"]) == (0, 3)
    assert "the record cannot be used, and is made anew" in other.said


@pytest.mark.feature("F6", "K1")
@pytest.mark.parametrize("how", [("train",), ("warm", "--recache")])
def test_a_foreign_neff_in_the_root_is_not_kept(machine, how):
    """Somebody copied a cache of another machine: Neuron itself takes such a module for a hit."""
    machine("warm", "tiny.yaml")
    neff = entry(machine, 2).path / "model.neff"
    make_neff(neff, version="2.26.6360.0+6f180f47", target="tonga", lnc=1)
    verb, *options = how
    assert machine(verb, "tiny.yaml", *options)["status"]
    assert fit.check(neff, target="trn1") is None
    recorded_neff = next(file for file in machine.record().modules[1].files if file.path == "model.neff")
    assert fit.check(next((machine.home / "v1" / "blobs").rglob(recorded_neff.sha256)), target="trn1") is None


def publishable(path: Path, folder: Path) -> tuple[File, Path]:
    import hashlib

    raw = path.read_bytes()
    copy = folder / "to-publish"
    copy.write_bytes(raw)
    return File("model.neff", len(raw), hashlib.sha256(raw).hexdigest()), copy


# --- flags, roots, launchers ----------------------------------------------------------------------------------------


@pytest.mark.feature("K2")
def test_flags_reach_the_compiler_in_their_order_and_spelling(machine):
    flags = ["--model-type transformer", "-O1", "--enable-saturate-infinity"]
    machine.recipe(RECIPE + "compiler: {flags: [--model-type, transformer, -O1, --enable-saturate-infinity]}\n")
    machine("warm", "tiny.yaml", NEURON_CC_FLAGS="--model-type=cnn-training")
    wanted = ["--target=trn1", *" ".join(flags).split()]
    assert all(
        json.loads((found.path / "compile_flags.json").read_text()) == wanted for found in machine.host.entries()
    )
    assert {tuple(event["flags"]) for event in machine.host.events("compile")} == {(*wanted[1:], "--verbose=35")}
    machine.recipe()
    planned = machine("plan", "tiny.yaml", NEURON_CC_FLAGS="-O2 --model-type=transformer --cache_dir=/tmp/x")
    assert planned["ingredients"]["hard"]["compiler.flags"] == ["-O2", "--model-type=transformer"]


def test_the_shells_cache_dir_is_the_root(machine, place):
    root = place / "elsewhere"
    machine("warm", "tiny.yaml", NEURON_CC_FLAGS=f"--cache_dir={root} --model-type=transformer")
    assert not machine.host.entries()
    assert {found.name.partition("+")[2] for found in machine.host.entries(root)} == {"f7f529f3"} or len(
        machine.host.entries(root)
    ) == 3


@pytest.mark.parametrize(
    "url, words", [("s3://bucket/cache", "is not on a local disk"), ("/proc/version", "is not a folder")]
)
def test_a_root_that_is_no_local_folder_is_refused(machine, url, words):
    error = machine("warm", "tiny.yaml", code=2, NEURON_COMPILE_CACHE_URL=url)["error"]
    assert words in error["message"]
    assert "NEURON_COMPILE_CACHE_URL" in error["hint"]
    assert machine.host.compiles == 0


# --- hosts ----------------------------------------------------------------------------------------------------------


def test_placeholders_from_pypi_are_recognised_and_explained(place):
    site = place / "site"
    for package, version in (("neuronx_cc", "1.0.post1"), ("torch_neuronx", "1.0"), ("libneuronxla", "1.0")):
        folder = site / f"{package}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
        )
    machine = Machine(place / "user")
    environment = {"PYTHONPATH": os.pathsep.join([str(site), machine.environment["PYTHONPATH"]])}
    error = machine("plan", "tiny.yaml", "--compiler", "neuron", code=1, **environment)["error"]
    assert "neuronx-cc 1.0.post1" in error["message"]
    assert "placeholders from PyPI" in error["cause"]
    assert "https://pip.repos.neuron.amazonaws.com" in error["hint"]
    assert machine("plan", "tiny.yaml", **environment)["compiler"] == "inductor", "auto takes what is really there"


@pytest.mark.feature("K3", "P2")
def test_a_laptop_predicts_the_key_of_the_instance(machine, place):
    """The registry names the versions; here they are those of the host."""
    here = machine("plan", "tiny.yaml")["ingredients"]["hard"]
    laptop = machine(
        "plan", "tiny.yaml", "--toolchain", "neuron-2.31", "--instance", "trn1.2xlarge", PYTHONPATH=_bare()
    )
    there = laptop["ingredients"]["hard"]
    # The environment that runs this has its own torch and transformers, and perhaps no torch-xla.
    foreign = {"toolchain.torch", "toolchain.torch-xla", "toolchain.transformers"}
    assert {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)} <= foreign
    assert there["toolchain.neuronx-cc"] == "2.26.6360.0"
    assert there["parallel.data_parallel_size"] == 2
    machine("warm", "tiny.yaml")
    again = machine("plan", "tiny.yaml", "--toolchain", "neuron-2.31", "--instance", "trn1.2xlarge")
    assert {change["name"] for change in again["nearest"]["changes"]} <= foreign if again["status"] == "miss" else True


def _bare() -> str:
    return str(Path(__file__).resolve().parent.parent)
