"""Runs one command of a fleet, on its machine: `python unit.py FOLDER NUMBER`.

It is run as a file, with nothing of cachekit imported: so this module may import the standard library only. Beside the
fleet's file lie, by the command's number N:

    N.begun     host and time: it began (again, where an engine starts it anew after a machine's death)
    N.out       what it printed on stdout, in its last attempt
    N.log       what it printed on stderr, in all attempts
    N.ended     host, times and exit code: it ended, and was not killed with its machine
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def note(path: Path, **fields: object) -> None:
    """Write a note whole or not at all."""
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    fresh.write_text(json.dumps({"host": os.uname().nodename, **fields}), encoding="utf-8")
    fresh.replace(path)


def _heed(act: Callable[[int], object]) -> None:
    """Do something when this process is asked to end, or told that its machine goes."""
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(asked, lambda number, _: act(number))


def main(folder: Path, number: str) -> int:
    """Run the command to its end; returns its exit code as a shell gives it, 143 for one that SIGTERM ended."""
    umask = os.umask(0o077)  # of the notes; the command has the user's
    fleet = json.loads((folder / "fleet.json").read_text(encoding="utf-8"))
    argv = fleet["units"][int(number)]["argv"]
    began = time.time()
    (folder / f"{number}.ended").unlink(missing_ok=True)
    note(folder / f"{number}.begun", time=began)
    with (folder / f"{number}.out").open("wb") as out, (folder / f"{number}.log").open("ab") as log:
        # An engine that ends a command asks this process, which in a container is the first one and would be deaf.
        asked: list[int] = []  # while the command was being started
        _heed(asked.append)
        try:
            child = subprocess.Popen(
                argv, cwd=fleet["cwd"], stdin=subprocess.DEVNULL, stdout=out, stderr=log, umask=umask
            )
        except OSError as error:
            log.write(f"{argv[0]} cannot be run in {fleet['cwd']}: {error.strerror}\n".encode())
            code = 127  # a shell's
        else:
            _heed(child.send_signal)
            for one in asked:
                child.send_signal(one)
            code = child.wait()
    code = 128 - code if code < 0 else code
    note(folder / f"{number}.ended", began=began, ended=time.time(), code=code)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
