"""The watch over a Neuron run: locks of its own workers, and what its logs tell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachekit import process
from cachekit.compilers.neuron import fit, locks, processes
from cachekit.compilers.neuron import watch as watches
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.watch import NeuronWatch
from cachekit.compilers.port import Node, Run
from cachekit.disk import FileSystem
from cachekit.errors import MissError
from cachekit.process import below
from tests.compilers.neuron.neuron_compile_cases import ALONE, extract, host, recipe, watch  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_trees import make
from tests.support.processes import until

# --- locks of a run's own workers -----------------------------------------------------------------------------------

HOLDER = """
import mmap, sys, time
from pathlib import Path
library = open(sys.argv[1], "rb")
mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
Path(sys.argv[2]).touch()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def all_is_seen(monkeypatch):
    """Some containers hide the memory of their first process from everyone; and the folder is nobody else's.

    The host has been up for longer than any lock is old: what is older than its last start is nobody's. Compilers that
    run on it beside this test, another test's, are none of its host's.
    """
    visible, every = process.has_loaded, processes._processes

    def of_this_test(proc):
        ours = {1, 2, os.getpid(), *below(os.getpid())}
        return (one for one in every(proc) if one.pid in ours)

    monkeypatch.setattr(processes, "_processes", of_this_test)
    monkeypatch.setattr(process, "boot_time", lambda proc: time.time() - 86_400)
    monkeypatch.setattr(process, "has_loaded", lambda *asked: visible(*asked) or False)
    monkeypatch.setattr(processes, "_in_container", lambda found: False)


@pytest.mark.feature("N3")
def test_a_worker_of_ours_keeps_its_lock_between_its_compiler_and_its_neff(host, tmp_path, all_is_seen, monkeypatch):
    """libneuronxla's wrapper holds it, without a compiler, until it has copied the NEFF; and it looks like a waiter."""
    (one,) = extract(host, 1)
    lock = one.path / "model.hlo_module.pb.lock"
    library = tmp_path / "libneuronpjrt.so"
    library.write_bytes(bytes(4096))
    now = [0.0]
    monkeypatch.setattr(locks, "file_system", lambda *_: FileSystem("ext4", "/", "/dev/sda"))
    seen = NeuronWatch(
        Run(recipe(tmp_path), host.root, "train", found=True),
        ALONE,
        (),
        Node(),
        check=fit.check,
        clock=lambda: now[0],
    )
    command = [sys.executable, "-c", HOLDER, str(library), str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "ready\n"
        long_ago(one.path)
        seen.output(f"Another process must be compiling {lock}, been waiting for: 1.0 minutes\n".encode())

        def look(seconds):
            now[0] += seconds
            return [event["event"] for event in seen.look(worker.pid)]

        assert look(10) == []
        assert look(100) == []
        compiler = tmp_path / "neuronx-cc"
        compiler.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.read()\n")
        compiler.chmod(0o755)
        with subprocess.Popen([compiler, "link", f"model.{one.name}.pb"], stdin=subprocess.PIPE) as compiling:
            until(lambda: Path(f"/proc/{compiling.pid}/comm").read_text().startswith("neuronx-cc"), "the compiler")
            assert look(100) == [], "a compiler of it was seen"
        assert look(10) == []
        assert look(100) == []
        assert lock.exists()
        assert look(100) == ["lock-cleared"]
        assert not lock.exists()


def long_ago(folder):
    then = time.time() - 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


@pytest.mark.feature("N3")
def test_a_process_that_sets_its_root_as_it_runs_is_no_stranger(host, tmp_path, all_is_seen, monkeypatch):
    (one,) = extract(host, 1)
    library = tmp_path / "libneuronpjrt.so"
    library.write_bytes(bytes(4096))
    monkeypatch.setattr(locks, "file_system", lambda *_: FileSystem("ext4", "/", "/dev/sda"))
    command = [sys.executable, "-c", HOLDER, str(library), str(one.path / "model.hlo_module.pb.lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "NEURON_COMPILE_CACHE_URL": str(tmp_path / "another-root")},
    ) as worker:  # fmt: skip
        assert worker.stdout.readline() == "ready\n"
        long_ago(one.path)
        (found,) = locks.examine(scan(host.root).entries)
        assert (found.verdict, str(worker.pid) in found.reason) == ("maybe", True)


# --- what a run tells -----------------------------------------------------------------------------------------------

MODULE = "MODULE_9654787109829110272+f7f529f3"
OLD = f"2024-01-11 05:53:27.000203:  741529  INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: neuronx-cc compile \
--target=trn1 --framework=XLA /tmp/u/{MODULE}/model.hlo_module.pb --output /tmp/u/{MODULE}/model.neff --verbose=35\n"
NEW = (
    f"2026-07-29 17:19:00.000611:  10142  [INFO]: Compilation Successfully Completed for model.{MODULE}.hlo_module.pb\n"
)


@pytest.mark.feature("M3")
@pytest.mark.parametrize("line", [OLD, NEW], ids=["at its start", "at its end"])
def test_a_strict_watch_stops_at_a_compile_that_a_log_tells_of(host, tmp_path, line):
    seen = watch(tmp_path, strict=True)
    seen.event({"event": "at", "phase": "evaluation"})
    with pytest.raises(MissError, match=MODULE.replace("+", r"\+")) as raised:
        list(map(seen.output, (line.encode(), b"more\n")))
    assert "evaluation" in raised.value.cause


@pytest.mark.parametrize("more", [[], [NEW], [OLD, NEW]], ids=["begun", "ended", "seen again"])
def test_a_compile_belongs_to_what_the_worker_told_before_it_although_that_is_read_after_it(host, tmp_path, more):
    seen = watch(tmp_path)
    seen.output(OLD.encode())
    seen.event({"event": "at", "phase": "evaluation"})
    for line in more:
        seen.output(line.encode())
        seen.event({"event": "at", "phase": "saving"})
    assert seen.observed().surprises == ("evaluation",)


@pytest.mark.parametrize("looks", [True, False])
def test_of_what_is_new_a_run_without_a_log_takes_what_it_was_seen_to_compile(tmp_path, monkeypatch, looks):
    """The root is the host's: another project compiles there, too. Inside of a user's process nobody looks."""
    mine, another = (MODULE, "MODULE_7+f7f529f3")
    seen = watch(tmp_path)
    for name in (mine, another):
        make(tmp_path / "root", compiler="neuronxcc-2.26.6360.0", name=name)
    monkeypatch.setattr(watches, "compiles_below", lambda _: [("neuronx-cc", "compile", f"/tmp/model.{mine}.pb")])
    if looks:
        monkeypatch.setattr(watches, "LOOK", 0)
        seen.look(os.getpid())
    found = {module.partition("/")[2] for module in seen.observed().modules}
    assert found == ({mine} if looks else {mine, another})


START = "Worker {}/None starting dynamic scheduling for 3 HLOs"
END = "Worker {} completed: 1 tasks compiled"


@pytest.mark.parametrize(
    "lines, hangs",
    [
        ([], True),
        ([START.format(0)], False),
        ([START.format(0), START.format(1), END.format(1)], False),
        ([START.format(0), END.format(0)], True),
    ],
)
def test_silence_is_a_hang_only_where_nothing_compiles(host, tmp_path, lines, hangs):
    now = [0.0]
    seen = NeuronWatch(
        Run(recipe(tmp_path), tmp_path / "root", "trial"),
        ALONE,
        (),
        Node(),
        check=fit.check,
        clock=lambda: now[0],
    )
    now[0] = 1e6
    assert not seen.finished(), "the worker has not said that it is done"
    seen.event({"event": "done"})
    for line in lines:
        seen.output(f"2026-07-29 17:19:00.000611:  10142  [INFO]: {line}\n".encode())
    now[0] += 100
    assert not seen.finished()
    now[0] += 1000
    assert seen.finished() is hangs


def test_the_exit_code_of_a_trial_is_that_of_its_tool(host, tmp_path):
    trial = watch(tmp_path, trial=True, found=False)
    assert not trial.failed(3)
    trial.output(b"  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 4242)\n")
    assert trial.failed(1)
    assert watch(tmp_path).failed(1)
