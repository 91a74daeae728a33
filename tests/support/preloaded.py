"""The training worker as a fork of a process that has imported PyTorch already: a job takes seconds less.

    preloaded.py SOCKET JOB.json                   the command line of a `ProcessLauncher`
    preloaded.py --cachekit SOCKET ARGUMENTS...    the real command line, with such workers

The first one starts the process that is forked, with its own environment: what libraries read from variables while they
are imported is the same for all. It notes its process id in `SOCKET.pid`, and ends when `SOCKET.end` is made.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

POLL = 0.05


def serve(place):
    """Fork a worker for each connection."""
    import sklearn.metrics  # noqa: F401
    import torch  # noqa: F401
    from transformers import AutoModel, AutoTokenizer, Trainer  # noqa: F401

    from cachekit.training import backend, tasks, trainer, worker  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{place}.new")
        door.listen()
        Path(f"{place}.pid").write_text(str(os.getpid()))
        Path(f"{place}.new").rename(place)
        while not Path(f"{place}.end").exists():
            if not select.select([door], [], [], POLL)[0]:
                continue
            guest, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                look_after(guest, worker.main)
            guest.close()


def look_after(guest, main):
    """Run one worker to its end, or to that of whoever asked for it."""
    raw, descriptors, _, _ = socket.recv_fds(guest, 1 << 20, 2)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        asked = json.loads(raw)
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        sys.argv = ["worker", asked["job"]]
        code = 1
        try:
            code = main()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    while True:
        if select.select([guest], [], [], POLL)[0]:  # the guest is gone
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os._exit(0)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            guest.send(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))
            os._exit(0)


def ask(place, job):
    """Have a job done, and end as it did."""
    if not Path(place).exists():
        with Path(f"{place}.log").open("wb") as log:
            words = [sys.executable, __file__, "--serve", place]
            server = subprocess.Popen(words, start_new_session=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not Path(place).exists():
            if server.poll() is not None:
                sys.exit(Path(f"{place}.log").read_text())
            time.sleep(POLL)
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(place)
        said = {"environment": dict(os.environ), "folder": str(Path.cwd()), "job": job}
        socket.send_fds(guest, [json.dumps(said).encode()], [1, 2])
        answer = guest.recv(1)
    sys.exit(answer[0] if answer else 1)


def command(place, *arguments):
    """`cachekit`, which ends this process."""
    from cachekit import training
    from cachekit.cli import main

    launcher = training.ProcessLauncher
    training.ProcessLauncher = lambda: launcher([sys.executable, __file__, place])
    sys.argv = ["cachekit", *arguments]
    main()


if __name__ == "__main__":
    done = {"--serve": serve, "--cachekit": command}.get(sys.argv[1])
    done(*sys.argv[2:]) if done else ask(*sys.argv[1:])
