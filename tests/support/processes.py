"""Processes that a test starts, side by side or below itself, and what it waits for."""

import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from cachekit.process import below

LONGEST = 1800.0  # seconds that a process may take, compiles among them
PATIENCE = 60.0  # seconds after which a test stops waiting for something that does not come


def run_python(*arguments, folder, environment, code=0, program=sys.executable, **options):
    """What became of a Python in a folder, with these variables and no others, and what it printed.

    Args:
        arguments: Of its command line.
        folder: Where it starts.
        environment: Its variables; None leaves one out.
        code: How it must end; None is any way.
        program: Which Python.
        options: Of `subprocess.run`.
    """
    run = subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        **{"text": True, "timeout": LONGEST, **options},
        check=False,
    )
    assert code in {None, run.returncode}, f"{arguments}: exit {run.returncode}\n{run.stdout}\n{run.stderr}"
    return run


def run_cachekit(*arguments, **options):
    """A command line in a process of its own; the options are those of `run_python`."""
    return run_python("-m", "cachekit", *arguments, **options)


def begin_python(*arguments, folder=None, environment, program=sys.executable, **options):
    """A Python that goes on beside the test, in a session of its own, with pipes for what it prints.

    The arguments are those of `run_python`; the options those of `subprocess.Popen`.
    """
    return subprocess.Popen(
        [program, *map(str, arguments)],
        cwd=folder,
        env={name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"start_new_session": True, **options},
    )


def started(before):
    """What this process and those below it started since, and still runs; other tests' servers may be there."""
    return set(below(os.getpid())) - before


def side_by_side(count, work):
    """Run `work(number)` in that many processes, started at one moment; returns what they returned, in order.

    A process that failed gives None; its traceback goes to stderr.
    """
    start_out, start_in = os.pipe()
    children = []
    for number in range(count):
        out, back = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            gc.disable()  # it would touch, and so copy, all of pytest's memory
            try:
                os.close(start_in)
                os.read(start_out, 1)  # returns when the only writer closes the pipe
                os.write(back, msgspec.json.encode(work(number)))
                code = 0
            except BaseException:  # noqa: BLE001 - a child never returns into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(back)
        children.append((pid, out))
    os.close(start_out)
    os.close(start_in)
    answers = []
    for pid, out in children:
        with os.fdopen(out, "rb") as stream:
            raw = stream.read()
        _, status = os.waitpid(pid, 0)
        answers.append(msgspec.json.decode(raw) if status == 0 else None)
    return answers


def free_port():
    """A port that is free now, below those that the kernel takes for connections of its own."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("", port)):
            return port


@contextmanager
def memory_folder():
    """A temporary folder on a file system in memory; an ordinary one where there is none, or a small one."""
    base = Path("/dev/shm")
    if not os.access(base, os.W_OK) or shutil.disk_usage(base).free < 1 << 30:
        base = None
    with tempfile.TemporaryDirectory(prefix="cachekit-test-", dir=base) as folder:
        yield Path(folder)


def alive(pid):
    """Whether a process runs; one that is dead and only not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(condition, what, limit=PATIENCE):
    """Wait for something, and return it; fails after so many seconds, which are no measure of speed."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return value


@contextmanager
def ended(child):
    """Let no process of a test outlive it."""
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.communicate()
