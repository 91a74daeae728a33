"""Processes: what the kernel tells of them, and that nothing outlives the run that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachekit.process import SUBREAPER, Status, answer, began, below, is_dead, namespace, status
from tests.support.processes import started, until

ORPHANS = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "


@contextmanager
def under_subreaper(program: str) -> Iterator[subprocess.Popen]:
    command = [*SUBREAPER, sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("ending, code", [("sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_what_a_command_leaves_behind_ends_with_it(ending, code):
    before = set(below(os.getpid()))
    with under_subreaper(ORPHANS + ending) as process:
        assert process.wait(30) == code
    assert not started(before)


def test_a_command_is_asked_to_end_and_then_nothing_is_left():
    before = set(below(os.getpid()))
    with under_subreaper(ORPHANS + "print('up', flush=True); time.sleep(600)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(30) == -15
    assert not started(before)


def test_all_ends_with_whoever_started_it():
    program = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(600)"
    )
    command = [*SUBREAPER, sys.executable, "-c", ORPHANS + "time.sleep(600)"]
    with subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        warden = int(starter.stdout.readline())
        under = until(lambda: found if len(found := list(below(warden))) == 2 else None, "two processes")
        starter.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (warden, *under)), "their end")


def test_a_command_that_is_not_there_is_said_so():
    process = subprocess.run([*SUBREAPER, "no-such-command"], capture_output=True, text=True, check=False)
    assert process.returncode == 127
    assert "no-such-command cannot be run" in process.stderr


def test_a_process_is_known_by_what_the_kernel_tells(tmp_path):
    """The name in parentheses may hold anything, and a process of another user may be hidden."""
    own = status(os.getpid())
    assert own.parent == os.getppid()
    assert not own.dead
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) S (b) Z 1 " + "0 " * 17 + "99 0\n")
    assert status(7, tmp_path) == Status("a) S (b", "Z", 1, 99)
    assert status(7, tmp_path).dead
    assert status(8, tmp_path) is None
    with subprocess.Popen(["sleep", "600"]) as child:
        since = began(child.pid)
        assert not is_dead(namespace(), child.pid, since)
        assert is_dead(namespace(), child.pid, since + 1), "its number is somebody else's"
        assert not is_dead("another machine", child.pid, since + 1)
        child.kill()
        until(lambda: is_dead(namespace(), child.pid, since), "its end")  # though nobody has looked at it yet


def test_an_answer_may_hold_any_bytes_and_a_program_that_fails_has_none():
    assert answer(["printf", r"a\377"])[0] == "a"
    for command in (["false"], ["no-such-program"]):
        with pytest.raises(OSError):
            answer(command)
