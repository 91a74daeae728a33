"""Terminals, pipes that close, odd encodings, and what stops a run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cachekit
from tests.cli.cli_cases import Terminal, start
from tests.support.cli_session import (
    DEADLINE,
    DRIVER,
    RECIPE,
    environment,
    process,
    publish,
    the_error,
)
from tests.support.processes import alive, until

pytest_plugins = ["tests.support.cli_session"]


# The terminal


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_an_error_is_red_on_a_terminal(work, home):
    terminal = Terminal("-m", "cachekit", "plan", "nope", NO_COLOR=None, TERM="xterm")
    assert terminal.end() == ""
    assert terminal.text.startswith("\x1b[31merror[unknown-name]:\x1b[0m ")


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1", "TERM": "xterm"}, {"NO_COLOR": None, "TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(work, home, changes):
    terminal = Terminal("-m", "cachekit", "plan", "nope", **changes)
    terminal.end()
    assert terminal.text.startswith("error[unknown-name]: ")
    assert "\x1b" not in terminal.text


def test_no_escape_codes_without_a_terminal(work, home, worker, tmp_path):
    driver = ("-c", DRIVER, str(worker))
    for arguments, code in ((["warm", "tiny.yaml"], 0), (["train"], 0), (["plan", "nope"], 2)):
        answer = process(*arguments, code=code, program=driver, NO_COLOR=None, FORCE_COLOR=None, TERM="xterm")
        assert "\x1b" not in answer.out + answer.err


@pytest.mark.parametrize("no_color", ["1", None], ids=["plain", "colour"])
def test_one_live_line_on_a_terminal(work, home, worker, tmp_path, no_color):
    changes = {"FAKE_WORKER": "waits", "NO_COLOR": no_color, "TERM": "xterm", "COLUMNS": "80"}
    terminal = Terminal("-c", DRIVER, str(worker), "warm", "tiny.yaml", **changes)
    terminal.until("graphs: 3 compiled")
    (tmp_path / "go on").touch()
    answer = terminal.end()
    assert terminal.process.returncode == 0
    assert answer.startswith("tiny: warm")
    assert "\x1b" not in answer
    assert "compiling: a trial run of a few steps\r\n" in terminal.text, "a line that stays"
    assert terminal.text.count("\x1b[?25l") == terminal.text.count("\x1b[?25h") == 1, "the cursor comes back"
    # The live line is rewritten in place, and wiped at the end: the screen keeps no half-finished line.
    assert terminal.text.rindex("\x1b[2K") > terminal.text.rindex("graphs: ")
    assert bool(COLOUR.search(terminal.text)) == (no_color is None)


def test_a_command_in_a_notebook_writes_lines_that_stay(work, home, worker, tmp_path):
    """`!cachekit warm`: ipykernel gives it a terminal of this name, which keeps each state of a line that changes."""
    terminal = Terminal("-c", DRIVER, str(worker), "warm", "tiny.yaml", NO_COLOR=None, TERM="xterm-color")
    assert terminal.end().startswith("tiny: warm")
    assert "compiling: a trial run of a few steps\r\n" in terminal.text
    assert "\x1b" not in terminal.text


# Odd places to print to


@pytest.mark.parametrize(
    "arguments", [["store", "ls"], ["zoo", "ls", "models"], ["plan", "bert", "--format", "json"]], ids=" ".join
)
def test_a_reader_that_goes_away_is_no_failure(work, home, arguments):
    """`cachekit store ls | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "cachekit", *arguments],
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    finally:
        os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
def test_output_in_another_encoding(work, home, encoding):
    """A name in the user's own script, and a name that is no text at all."""
    (work / "caf\u00e9.yaml").write_text(RECIPE)
    process("plan", "caf\u00e9.yaml", PYTHONIOENCODING=encoding)
    process("plan", "caf\u00e9.yaml", "--format", "json", PYTHONIOENCODING=encoding)
    for name in ("na\u00efve \u2192.yaml", os.fsdecode(b"\xff.yaml")):
        the_error(process("plan", name, code=2, PYTHONIOENCODING=encoding))
        answer = process("plan", name, "--format", "json", code=2, PYTHONIOENCODING=encoding)
        assert answer.json["error"]["code"] == "bad-recipe"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_difference_in_another_encoding(work, home, encoding):
    publish(home, "training.max_seq_length=16")
    answer = process("plan", "tiny.yaml", PYTHONIOENCODING=encoding)
    assert re.search(r"training\.max_seq_length: 16 \S+ 8\n", answer.out)


# Interrupted


def started(tmp_path: Path) -> list[int]:
    """The worker and its child, once they run."""
    until((tmp_path / "pids").exists, "the worker's start")
    return [int(word) for word in (tmp_path / "pids").read_text().split()]


@pytest.mark.parametrize(
    ("verb", "whole_group"), [pytest.param("warm", False, id="leader"), pytest.param("train", True, id="group")]
)
def test_ctrl_c_ends_the_worker_and_what_it_started(home, worker, tmp_path, verb, whole_group):
    run = start(worker, "hangs", verb, "tiny.yaml", "-q")
    pids = started(tmp_path)
    (os.killpg if whole_group else os.kill)(run.pid, signal.SIGINT)
    output, told = run.communicate(timeout=DEADLINE)
    assert (run.returncode, output) == (130, "")
    assert told.startswith("error[interrupted]: stopped\n")
    assert len(told.splitlines()) <= 3
    assert "Traceback" not in told
    for pid in pids:
        until(lambda pid=pid: not alive(pid), f"the end of process {pid}")
    left = [path for path in (home / "v1" / "cache_dirs", home / "v1" / "tmp") if path.exists() and any(path.iterdir())]
    assert left == []
    assert process("plan", "tiny.yaml", "--format", "quiet").out == "miss\n"


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
@pytest.mark.parametrize("module", ["typer", "yaml"])
def test_ctrl_c_while_the_verbs_are_loaded(home, tmp_path, number, cause, module):
    text = "import time; print('loading', flush=True); time.sleep(60)"
    if module == "yaml":  # code that is made of a text, as in a dataclass, and after which nothing else is
        text = f'exec("{text}")'
    (tmp_path / f"{module}.py").write_text(text)
    run = subprocess.Popen(
        [sys.executable, "-m", "cachekit", "plan", "bert", "--format", "json"],
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{Path(cachekit.__file__).parent.parent}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    assert run.stdout.readline() == "loading\n"
    run.send_signal(number)
    output, told = run.communicate(timeout=DEADLINE)
    assert run.returncode == 130
    assert json.loads(output)["error"]["code"] == "interrupted"
    assert told == f"error[interrupted]: stopped\n  cause: {cause}\n  hint: run the command again\n"


def test_ctrl_c_twice(work, home, worker, tmp_path):
    """The worker does not listen, and its user loses patience."""
    run = start(worker, "stubborn", "warm", "tiny.yaml")
    pids = started(tmp_path)
    try:
        os.kill(run.pid, signal.SIGINT)
        time.sleep(0.5)  # it waits for the worker now
        os.kill(run.pid, signal.SIGINT)
        _, told = run.communicate(timeout=DEADLINE)
        assert run.returncode == 130
        assert "Traceback" not in told
        for pid in pids:
            until(lambda pid=pid: not alive(pid), f"the end of process {pid}")
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_killed_run_takes_its_worker_along(work, home, worker, tmp_path):
    run = start(worker, "hangs", "warm", "tiny.yaml")
    pids = started(tmp_path)
    run.kill()
    run.communicate(timeout=DEADLINE)
    try:
        until(lambda: not alive(pids[0]), "the worker's end")
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert process("plan", "tiny.yaml", "--format", "quiet").out == "miss\n"


@pytest.mark.parametrize("words", ["zoo", "zoo --format json", "--help", "plan --help"])
def test_a_full_disk_behind_stdout_is_no_bug(work, home, words):
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "cachekit", *words.split()],
            env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert run.returncode == 2
    assert "bug" not in run.stderr
    assert "json" in words or "cannot write to standard output" in run.stderr


@pytest.mark.parametrize(
    "words, closed",
    [
        ("store ls", ">&-"),
        ("zoo -f json", ">&-"),
        ("store gc", "2>&-"),
        ("store export - tiny.yaml", ">&-"),
        ("run -- true", "<&- >&- 2>&-"),
    ],
)
def test_what_a_process_is_started_without(work, home, words, closed):
    publish(home)
    run = subprocess.run(
        ["sh", "-c", f'"$0" -m cachekit {words} {closed}', sys.executable],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "error[" not in run.stderr


@pytest.mark.parametrize("place", ["full", "gone"])
def test_a_log_that_takes_nothing_more_fails_no_run(work, home, worker, place):
    """`cachekit warm 2> log` on a full disk, and `2>&1 | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-c", DRIVER, str(worker), "warm", "tiny.yaml"],
            env=environment(), stdout=subprocess.PIPE, stderr=full if place == "full" else writing,
            text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
    os.close(writing)
    assert run.returncode == 0
    assert run.stdout.startswith("tiny: warm")
    assert process("plan", "tiny.yaml", "--format", "quiet").out == "hit\n"
