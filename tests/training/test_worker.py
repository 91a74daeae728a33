"""The training worker's border: how it is started, and what becomes of its failures. No test here needs torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs

from cachekit import start
from cachekit.errors import CompilerUnavailableError, TrainingError
from cachekit.training import Job, ProcessLauncher, launch
from cachekit.training.failure import full_disk, of_exception
from cachekit.training.job import Events
from tests.support.standins import recipe

PLENTY = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096, f_files=100, f_favail=50)
NO_BYTES = SimpleNamespace(f_bavail=3, f_frsize=4096, f_files=100, f_favail=50)
NO_FILES = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096, f_files=100, f_favail=0)


@pytest.fixture
def job(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    return Job(
        mode="trial",
        recipe=recipe(),
        labels=("no", "yes"),
        precision="fp32",
        config={},
        weights="",
        tokenizer="",
        output_dir="",
        runtime="a_runtime_that_is_not_there",
        settings={},
        events=str(work / "events.jsonl"),
        result=str(work / "result.json"),
    )


def run(job, command=None):
    """Run a job; gives its events."""
    told = []
    log = Path(job.events).parent.parent / "worker.log"
    with log.open("a") as stream:
        stream.write("error: another run's\n")
    ProcessLauncher(command).run(job, {}, log, told.append)
    return told


def saying(*lines, code=1):
    """A worker that prints and ends."""
    script = f"import sys\nfor line in {lines!r}: print(line)\nsys.exit({code})"
    return [sys.executable, "-c", script]


# How it is started


def test_files_of_the_working_directory_are_not_imported(job, tmp_path, monkeypatch):
    for name in ("msgspec", "tempfile", "data", "sklearn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('my own file ran')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompilerUnavailableError, match="a_runtime_that_is_not_there is not installed"):
        run(job)


@pytest.mark.parametrize(("mask", "mode"), [(0, 0o775), (0o027, 0o750)])
def test_nobody_else_can_write_to_a_folder_that_a_training_makes(job, tmp_path, monkeypatch, mask, mode):
    """A link in it would be followed. GitLab's jobs, for one, have a umask of 0."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "makes_a_folder.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    before = os.umask(mask)
    try:
        with pytest.raises(TrainingError):
            run(structs.replace(job, runtime="makes_a_folder"))
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == mode


def test_any_module_is_started_so(tmp_path):
    (tmp_path / "argparse.py").write_text("raise SystemExit('my own file ran')")
    found = subprocess.run(
        [*start.COMMAND, "json.tool", "--compact"], cwd=tmp_path, input=b"[1, 2]", capture_output=True, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"[1,2]\n", b"")


def test_the_worker_is_of_the_cachekit_that_starts_it(tmp_path):
    other = tmp_path / "cachekit"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('another cachekit')")
    found = subprocess.run(
        [*start.COMMAND, "cachekit", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")


# What it says


def test_the_phase_of_a_failure_is_where_it_happened(tmp_path):
    """Once it was always "start": leaving a phase by an exception put the outer one back first."""
    events = Events(tmp_path / "events")
    with events.timed("data"):
        pass
    assert events.failed_in == "start"
    with pytest.raises(ValueError), events.timed("train"), events.timed("save"):
        raise ValueError
    assert events.failed_in == "save"
    events.close()


def test_the_first_error_of_the_cxx_compiler_is_quoted():
    said = (
        "backend='inductor' raised:\nCppCompileError: C++ compile error\n\nCommand:\ng++ -O3 x.cpp\n\nOutput:\n"
        "/x/vec256_int.h:7:3: warning: overflow in conversion\n/x/k.cpp:3:9: error: 'y' was not declared\n"
        "/x/k.cpp:4:1: error: expected ';'\n"
    )
    from cachekit.compilers.inductor.runtime import Runtime

    error = RuntimeError(said)
    assert Runtime().failure(ValueError("rows")) is None
    failure = of_exception(error, "first training step", [], Runtime().failure(error))
    assert failure.code == "compile-failed"
    assert failure.message == "the compiler failed in: first training step"
    assert failure.cause == "the C++ compiler says: error: 'y' was not declared"


class LibraryError(Exception):
    """One that is no OSError, as libraries in other languages raise."""


def chained(inner):
    error = RuntimeError("could not save")
    error.__cause__ = inner
    return error


@pytest.mark.parametrize(
    "error",
    [
        LibraryError("Error while serializing: I/O error: No space left on device (os error 28)"),
        LibraryError("write: Disk quota exceeded"),
        chained(OSError(28, "No space left on device")),
        chained(LibraryError("cc1plus: fatal error: x.o: No space left on device")),
    ],
)
def test_a_full_disk_by_any_exception(error):
    failure = of_exception(error, "save", [])
    assert (failure.code, failure.message) == ("training-failed", "the disk is full")
    assert failure.cause.startswith("in: save; ")


def test_a_full_disk_that_no_exception_names(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: NO_BYTES)
    failure = of_exception(RuntimeError("PytorchStreamWriter failed writing file data/0"), "save", [tmp_path / "out"])
    assert failure.message == f"the disk is full: nothing more fits into {tmp_path / 'out'}"
    assert failure.cause == "in: save; PytorchStreamWriter failed writing file data/0"


@pytest.mark.parametrize("found, full", [(PLENTY, False), (NO_BYTES, True), (NO_FILES, True)])
def test_when_a_disk_is_full(tmp_path, monkeypatch, found, full):
    asked = []
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or found)
    assert full_disk([tmp_path / "not" / "there"]) == (tmp_path / "not" / "there" if full else None)
    assert asked == [tmp_path], "what is not there yet will be on its parent's disk"


@pytest.mark.parametrize("length, told", [(1 << 20, True), (launch._LONGEST, False), (2 * launch._LONGEST, False)])
def test_what_follows_a_long_line_is_told(job, length, told):
    """A line that is too long for memory is skipped; no line hides the next ones."""
    script = (
        "import json, pathlib, sys\n"
        "job = json.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        f"lines = ['', json.dumps({{'event': 'note', 'note': 'x' * {length}}}), json.dumps({{'event': 'graphs'}})]\n"
        "pathlib.Path(job['events']).write_text(''.join(line + '\\n' for line in lines))\n"
        "pathlib.Path(job['result']).write_text('{}')\n"
    )
    events = [event["event"] for event in run(job, [sys.executable, "-c", script]) if event["event"] != "tick"]
    assert events == (["note", "graphs"] if told else ["graphs"])


# What it leaves when it dies


@pytest.mark.parametrize(
    "lines, cause",
    [
        (
            ["Traceback (most recent call last):", "  File x", "OSError: [Errno 5] Input/output error"],
            "OSError: [Errno",
        ),
        (
            ["/x/y.cpp:1: error: no", "/x/vec256_int.h:7:3: warning: overflow in conversion", "    7 | x", "      | ^"],
            "/x/y.cpp:1: error: no",
        ),
        (["In file included from /x/vec.h:3:", "/x/vec256_int.h:7:3: warning: overflow", "      | ^~~~"], ""),
        (["some words", "/x/vec256_int.h:7:3: warning: overflow"], "some words"),
        ([], ""),
    ],
)
def test_what_a_dead_worker_said_last(job, lines, cause):
    with pytest.raises(TrainingError, match=r"died \(exit code 1\)") as caught:
        run(job, saying(*lines))
    assert caught.value.cause.startswith(cause)
    assert bool(caught.value.cause) is bool(cause)


@pytest.mark.parametrize("code", [1, 0])
def test_a_worker_that_died_on_a_full_disk(job, monkeypatch, code):
    monkeypatch.setattr(os, "statvfs", lambda path: NO_BYTES)
    with pytest.raises(TrainingError) as caught:
        run(job, saying("/x/vec256_int.h:7:3: warning: overflow", code=code))
    assert caught.value.message == f"the disk is full: nothing more fits into {Path(job.events).parent}"
    assert "warning" not in caught.value.cause
    assert "CACHEKIT_COMPILER_CACHE_DIR" in caught.value.hint


def test_a_failure_fits_on_a_disk_that_is_full(job, tmp_path, monkeypatch):
    """Its room is taken at the start."""
    work = Path(job.events).parent
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", work]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        (tmp_path / "fills_the_disk.py").write_text(f"open('{work}/rest', 'wb').write(bytes(1 << 20))")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(TrainingError) as caught:
            run(msgspec.structs.replace(job, runtime="fills_the_disk"), [*start.COMMAND, "cachekit.training.worker"])
        assert caught.value.message == f"the disk is full: nothing more fits into {work}"
        assert caught.value.cause == "in: import; No space left on device"
    finally:
        subprocess.run(["umount", work], check=True)
