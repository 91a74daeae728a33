"""The stand-in for AWS's closed packages keeps the contract that is documented: everything else on Neuron relies on it.

Most of it needs no torch: a script asks the cache for graphs. Tests marked `xla` have real graphs (`make test-xla`).
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import sys

import pytest

from tests.compilers.neuron.sdk_cases import (  # noqa: F401 - fixtures
    EXTRACTED,
    FAILED,
    FINISHED,
    LIMIT,
    STAMP,
    ask,
    entry,
    host,
    run,
    start,
    stop,
    until,
)
from tests.support.places import real_dir

# --- the cache ---------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.slow  # these hold the stand-in to what is documented, and not cachekit


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
