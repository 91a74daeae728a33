"""The stand-in for AWS's closed packages keeps the contract that is documented: everything else on Neuron relies on it.

Most of it needs no torch: a script asks the cache for graphs. Tests marked `xla` have real graphs (`make test-xla`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import real_dir
from neuron_sdk import SCRIPTS, Entry, NeuronHost, neuron_host

FINISHED = {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
EXTRACTED = {"compile_flags.json", "model.hlo_module.pb"}
FAILED = {"compile_flags.json", "model.hlo_module.pb", "model.log"}
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000\d{3}:  \d+  \[INFO\]: "
LIMIT = 60  # seconds that a test waits for something that takes less than one


@pytest.fixture
def host(tmp_path) -> NeuronHost:
    return neuron_host(tmp_path / "host")


def start(host: NeuronHost, *command: object, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [str(part) for part in command],
        env={**host.environment, **variables},
        cwd=host.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(host: NeuronHost, *command: object, limit: float = LIMIT, **variables: str) -> tuple[int, str]:
    process = start(host, *command, **variables)
    try:
        said, _ = process.communicate(timeout=limit)
    finally:
        stop(process)
    return process.returncode, said


def stop(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def ask(*graphs: object) -> tuple[object, ...]:
    """A training of these graphs."""
    return (sys.executable, SCRIPTS / "graphs.py", *graphs)


def entry(host: NeuronHost, graph: object) -> Entry:
    return next(found for found in host.entries() if found.name.startswith(f"MODULE_{graph}+"))


def until(condition, what: str) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"waited too long until {what}"
        time.sleep(0.02)


# --- the cache ---------------------------------------------------------------------------------------------------


def test_a_compile_leaves_four_files_and_the_next_process_a_hit(host):
    code, said = run(host, *ask(11))
    assert code == 0
    assert re.search(STAMP + r"Compilation Successfully Completed for model\.MODULE_11\+e30acd3a\.hlo_module\.pb", said)
    assert "\nCompiler status PASS\n" in said
    found = entry(host, 11)
    assert (found.name, found.files) == ("MODULE_11+e30acd3a", FINISHED)
    assert (found.path / "compile_flags.json").read_text() == '["--target=trn1"]'
    assert (found.path / "model.done").stat().st_size == 0

    code, said = run(host, *ask(11))
    assert code == 0
    assert re.search(STAMP + f"Using a cached neff at {re.escape(str(found.path))}/model.neff\n", said)
    assert host.compiles == 1
    assert len(host.events("loaded")) == 2
    assert not list((host.folder / "tmp").rglob("*.neff")), "nothing stays behind in the temporary folder"


@pytest.mark.parametrize(
    "flags, target, digest",
    [
        # Published names of real entries (SDK 2.20.1 on), and one that the same formula predicts.
        ("", "trn1", "e30acd3a"),
        ("--model-type transformer", "trn1", "f7f529f3"),
        ("--model-type=cnn-training -O1 --enable-saturate-infinity", "trn1", "d505a3f8"),
        ("", "trn3", "70e3f644"),
        # The wrapper's own options do not count.
        ("--retry_failed_compilation --model-type transformer --log_level INFO", "trn1", "f7f529f3"),
    ],
)
def test_the_flags_half_of_a_name_is_the_real_one(host, flags, target, digest):
    run(host, *ask(12), NEURON_CC_FLAGS=flags, NEURON_PLATFORM_TARGET_OVERRIDE=target)
    assert [found.name for found in host.entries()] == [f"MODULE_12+{digest}"]


def test_the_cache_dir_flag_wins_over_the_variable(host):
    other = host.folder / "other"
    run(host, *ask(13), NEURON_CC_FLAGS=f"--cache_dir={other}")
    assert not host.entries()
    assert [found.files for found in host.entries(other)] == [FINISHED]


def test_extraction_writes_the_graph_and_compiles_nothing(host):
    code, said = run(host, *ask(14), NEURON_EXTRACT_GRAPHS_ONLY="1")
    found = entry(host, 14)
    assert code == 0
    line = (
        f"Extracting graphs ({found.path}/model.hlo_module.pb) for ahead-of-time parallel compilation. No compilation"
    )
    assert f"{line} was done.\n" in said
    assert (found.files, host.compiles) == (EXTRACTED, 0)


def test_two_processes_compile_a_graph_once(host):
    host.knobs(compile_seconds=1)
    processes = [start(host, *ask(15)) for _ in range(2)]
    said = [process.communicate(timeout=LIMIT)[0] for process in processes]
    assert host.compiles == 1
    assert sum("Using a cached neff" in text for text in said) == 1
    assert entry(host, 15).files == FINISHED


def test_a_lock_is_an_empty_file_and_its_waiters_wait(host):
    host.knobs(lock_minute=0.2)
    run(host, *ask(16), NEURON_EXTRACT_GRAPHS_ONLY="1")
    lock = entry(host, 16).path / "model.hlo_module.pb.lock"
    lock.touch()
    process = start(host, *ask(16))
    assert process.stdout is not None
    hlo = re.escape(str(lock.with_name("model.hlo_module.pb")))
    told = []
    for _ in range(2):
        line = process.stdout.readline()
        said = re.fullmatch(
            STAMP + rf"Another process must be compiling {hlo}, been waiting for: (\d+)\.0 minutes\n", line
        )
        assert said, line
        told.append(int(said[1]))
    assert 1 <= told[0] < told[1], "a machine that stood still may leave a minute out"
    lock.unlink()
    said, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, host.compiles) == (0, 1)
    assert "Compilation Successfully Completed" in said


def test_a_killed_compile_leaves_its_lock(host):
    host.knobs(failures=[{"class": "hang"}])
    process = start(host, *ask(17))
    until(lambda: host.compiles, "the compiler runs")
    stop(process)
    process.communicate()
    found = entry(host, 17)
    assert found.files == EXTRACTED | {"model.hlo_module.pb.lock"}
    assert (found.path / "model.hlo_module.pb.lock").stat().st_size == 0


def test_an_interrupted_compile_is_remembered_as_failed(host):
    host.knobs(failures=[{"class": "hang"}])
    process = start(host, *ask(18))
    until(lambda: host.compiles, "the compiler runs")
    stop(process, signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert entry(host, 18).files == FAILED


@pytest.mark.parametrize(
    "failure, text",
    [
        ("device-oom", "[ERROR] [NCC_EOOM002]"),
        (
            "host-oom",
            "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory",
        ),
        ("internal", "neuronx-cc compilation failed with 70"),
        ("disk-full", "No space left on device"),
        ("killed", "neuronx-cc compilation failed with -9"),
    ],
)
def test_a_failure_is_remembered_until_it_is_retried(host, failure, text):
    host.knobs(failures=[{"match": "MODULE_19+*", "class": failure}])
    code, said = run(host, *ask(19))
    found = entry(host, 19)
    log = (found.path / "model.log").read_text()
    assert code != 0
    assert found.files == FAILED
    assert log.startswith("Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', ")
    assert text in log
    assert text in said

    host.knobs(failures=[])
    code, said = run(host, *ask(19))
    skipped = (
        f"Got a cached failed neff at {found.path}/model.neff. Will skip compilation, please set --retry_failed_compi"
    )
    assert code != 0
    assert skipped in said
    assert host.compiles == 1, "a remembered failure is not compiled again"

    code, said = run(host, *ask(19), NEURON_CC_FLAGS="--retry_failed_compilation")
    assert code == 0
    assert f"Got a cached failed neff at {found.path}/model.neff. With eror log: [" in said
    assert entry(host, 19).files == FINISHED


@pytest.mark.parametrize("damage", ["bit", "truncated", "foreign", "empty"])
def test_what_is_no_neff_of_the_graph_is_found_out_as_it_is_loaded(host, damage):
    run(host, *ask(20, 21))
    neff = entry(host, 20).path / "model.neff"
    whole = neff.read_bytes()
    flipped = bytearray(whole)
    flipped[2000] ^= 1
    other = (entry(host, 21).path / "model.neff").read_bytes()
    neff.write_bytes({"bit": bytes(flipped), "truncated": whole[:-512], "foreign": other, "empty": b""}[damage])
    code, said = run(host, *ask(20))
    assert code != 0
    assert "from another graph" in said if damage == "foreign" else "NEFF is invalid; could be broken or hacked" in said


# --- the compiler and the system tools -----------------------------------------------------------------------------


def test_an_extracted_entry_is_compiled_with_the_documented_command(host):
    run(host, *ask(22), NEURON_EXTRACT_GRAPHS_ONLY="1")
    hlo = entry(host, 22).path / "model.hlo_module.pb"
    output = host.folder / "out.neff"
    command = ("neuronx-cc", "compile", hlo, "--framework", "XLA", "--target", "trn2", "--output", output, "-O1")
    code, said = run(host, *command)
    header = output.read_bytes()[:1024]
    assert (code, said) == (0, ".\nCompiler status PASS\n")
    assert header[8:16] == (1024).to_bytes(8, "little")
    assert header[220:476].rstrip(b"\0").decode() == str(output)
    event = host.events("compile")[0]
    assert (event["target"], event["flags"]) == ("trn2", ["-O1"])
    assert event["graph"] == hashlib.sha256(hlo.read_bytes()).hexdigest()


def test_a_rule_fails_as_often_as_it_says(host):
    host.knobs(failures=[{"class": "internal", "times": 2, "min_bytes": 500}])
    hlo, small = host.folder / "hlo.pb", host.folder / "small.pb"
    hlo.write_bytes(bytes(500))
    small.write_bytes(bytes(499))
    command = ("neuronx-cc", "compile", "--framework=XLA", "--output=out.neff", "--target=trn1")
    assert [run(host, *command, path)[0] for path in (small, hlo, hlo, hlo)] == [0, 70, 70, 0]


def test_the_compiler_tells_its_version_and_refuses_what_it_does_not_know(host):
    assert run(host, "neuronx-cc", "--version")[1].startswith("NeuronX Compiler version 2.26.6360.0+6f180f47\n")
    assert "dot" in run(host, "neuronx-cc", "list-operators", "--framework", "XLA")[1]
    assert run(host, "neuronx-cc", "compile", host.folder / "none.pb", "--target", "trn1")[0] == 1
    assert run(host, "neuronx-cc", "compile", host.folder / "knobs.json", "--target", "trn9")[0] == 1


def test_versions_are_found_as_those_of_installed_packages(host):
    names = ("neuronx-cc", "libneuronxla", "torch-neuronx")
    source = f"import importlib.metadata as m\nprint([m.version(name) for name in {names}])"
    versions = ["2.26.6360.0+6f180f47", "2.2.17544.0+fb9962bf", "2.9.0.2.15.32035+de43f57c"]
    assert run(host, sys.executable, "-c", source)[1].strip() == str(versions)


def test_neuron_ls_has_the_fields_of_a_real_one(host):
    real = json.loads((real_dir("device") / "neuron-ls.trn1.2xlarge.real.nolicence.json").read_text())
    found = json.loads(run(host, "neuron-ls", "-j")[1])
    assert [(name, type(value)) for name, value in found[0].items()] == [
        (name, type(value)) for name, value in real[0].items()
    ]
    host.knobs(cores=32, devices=16, instance_type="trn1.32xlarge")
    found = json.loads(run(host, "neuron-ls", "--json-output")[1])
    assert (len(found), sum(device["nc_count"] for device in found)) == (16, 32)
    assert [core for device in found for core in device["neuroncore_ids"]] == list(range(32))
    host.knobs(devices=0)
    assert run(host, "neuron-ls", "-j") == (1, "no neuron device found\n")


def test_neuron_monitor_has_the_fields_of_a_real_one(host):
    path = real_dir("device") / "neuron-monitor.trn1.2xlarge.real.nolicence.json"
    real = (
        json.loads(path.read_text().splitlines()[0])
        if path.read_text().count("\n}") == 0
        else json.loads(path.read_text())
    )
    process = start(host, "neuron-monitor")
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    stop(process)
    process.communicate()
    assert found.keys() <= real.keys()
    assert found["neuron_hardware_info"].keys() <= real["neuron_hardware_info"].keys()


# --- neuron_parallel_compile ---------------------------------------------------------------------------------------


def npc(host: NeuronHost, *arguments: object, **variables: str) -> tuple[int, str]:
    return run(host, "neuron_parallel_compile", *arguments, **variables)


def test_a_trial_extracts_then_its_graphs_are_compiled_once_each(host):
    run(host, *ask(31))
    host.forget()
    code, said = npc(host, *ask(31, 32, 32, 33), NEURON_PARALLEL_COMPILE_DUMP_RESULTS="1")
    assert (code, host.compiles) == (0, 2)
    assert {found.name: found.files for found in host.entries()} == {
        f"MODULE_{graph}+e30acd3a": FINISHED for graph in (31, 32, 33)
    }
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
    report = json.loads(next(host.folder.glob("neuron_parallel_compile_results_*.json")).read_text())
    assert report["compilation_summary"] == {"true": 2}
    assert {path: found["status"] for path, found in report["compilation_report"].items()} == {
        graph % 32: True,
        graph % 33: True,
    }


def test_old_failures_are_hidden_but_in_one_number(host):
    host.knobs(failures=[{"match": "MODULE_34+*", "class": "device-oom"}])
    assert npc(host, *ask(34, 35))[0] == 1
    code, said = npc(host, *ask(34, 35, 36))
    assert code == 0, "a remembered failure is skipped, and no failure of this run"
    assert "locked are 0, failed are 1, done are 2, total is 3\n" in said
    assert "Compilation summary: 0/1 failed, 1 succeeded" in said
    assert npc(host, *ask(34), NEURON_CC_FLAGS="--retry_failed_compilation")[0] == 1
    host.knobs(failures=[])
    assert npc(host, *ask(34), NEURON_CC_FLAGS="--retry_failed_compilation")[0] == 0


def test_a_failure_is_tried_again_as_often_as_asked(host):
    host.knobs(failures=[{"class": "host-oom", "times": 1}])
    code, _ = npc(host, *ask(37), NEURON_PARALLEL_COMPILE_MAX_RETRIES="1")
    assert (code, host.compiles, entry(host, 37).files) == (0, 2, FINISHED)


@pytest.mark.parametrize("parallel", [1, 3])
def test_as_many_compilers_run_as_asked(host, parallel):
    host.knobs(compile_seconds=2 if parallel > 1 else 0.3)
    code, said = npc(host, "--num_parallel", parallel, *ask(41, 42, 43))
    running = most = 0
    for event in host.events("compile", "compiled"):
        running += 1 if event["event"] == "compile" else -1
        most = max(most, running)
    assert (code, most) == (0, parallel)
    assert said.count("starting dynamic scheduling") == parallel


def test_a_script_error_ends_it_before_any_compile(host):
    assert npc(host, *ask(44, "error"))[0] == 1
    assert host.compiles == 0
    assert npc(host, *ask(44, "error"), NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE="1")[0] == 0
    assert host.compiles == 1


def test_its_commands_apart(host):
    assert npc(host, "--command", "collect", *ask(45))[0] == 0
    assert (entry(host, 45).files, host.compiles) == (EXTRACTED, 0)
    assert npc(host, "--command", "compile", *ask(45))[0] == 0
    assert entry(host, 45).files == FINISHED
    lock = entry(host, 45).path / "model.hlo_module.pb.lock"
    lock.touch()
    assert npc(host, "--command", "clear-locks")[0] == 0
    assert not lock.exists()
    assert npc(host, "--command", "clean")[0] == 0
    assert not host.entries()


def test_its_work_folder_is_removed_as_it_starts(host):
    work = host.folder / "work"
    (work / "old").mkdir(parents=True)
    _, said = npc(host, "--parallel_compile_workdir", work, *ask(46))
    assert f"Removing existing workdir {work}\n" in said
    assert not (work / "old").exists()


def test_it_waits_for_a_lock_and_says_what_remains(host):
    host.knobs(lock_minute=0.2)
    npc(host, "--command", "collect", *ask(47))
    lock = entry(host, 47).path / "model.hlo_module.pb.lock"
    lock.touch()
    process = start(host, "neuron_parallel_compile", *ask(47, 48))
    assert process.stdout is not None
    seen = ""
    while "locked are 1" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    lock.unlink()
    process.communicate(timeout=LIMIT)
    assert (process.returncode, entry(host, 47).files, entry(host, 48).files) == (0, FINISHED, FINISHED)


def test_it_hangs_at_its_end_when_told_to(host):
    host.knobs(parallel_compile_hangs=True)
    process = start(host, "neuron_parallel_compile", *ask(49))
    assert process.stdout is not None
    for line in process.stdout:
        if "Compilation summary: 0/1" in line:
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    stop(process)
    process.communicate()
    assert entry(host, 49).files == FINISHED


def test_an_interrupt_marks_what_compiles_as_failed(host):
    host.knobs(failures=[{"match": "MODULE_50+*", "class": "hang"}])
    process = start(host, "neuron_parallel_compile", *ask(50))
    until(lambda: host.compiles, "the compiler runs")
    stop(process, signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert entry(host, 50).files == FAILED


# --- real graphs ---------------------------------------------------------------------------------------------------


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
