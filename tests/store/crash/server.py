"""Runs one piece of work at a time in a forked process that `killat.c` kills, or whose disk it breaks, at a call.

`Crashes` is the tests' side; `server.py` itself runs under LD_PRELOAD, has everything imported, and forks for each
request, so that a kill costs milliseconds and thousands are affordable.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from cachekit.store.gc import Keep
from cachekit.verbs.entry import Named
from cachekit.verbs.records import pin, remove
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, Watched, find, make_record, publish, recipe

# The work, by name


def work_publish(home, number=1, artifacts=("a", "b"), created="2026-01-02T03:04:05+00:00"):
    watched = Watched(home)
    publish(watched.store, make_record(number, artifacts, created=created))


def work_lookup_then_publish(home, number, artifacts, created):
    watched = Watched(home)
    made = make_record(number, artifacts, created=created)
    find(watched.store, made[0])
    publish(watched.store, made)


def work_records(home):
    list(Watched(home).store.records())


def work_warm(home, graphs, salt="", inline=True, recache=False):
    watched = Watched(home, compiler=StandIn(graphs=graphs, salt=salt), inline=inline, wait=0)
    warm(watched.session, watched.prepare(recipe()), recache=recache)


def work_train(home, output, batch=8, extra=0, inline=True):
    watched = Watched(home, compiler=StandIn(extra=extra), inline=inline, wait=0)
    train(watched.session, watched.prepare(recipe(batch)), output_dir=Path(output))


def work_gc(home, **limits):
    Watched(home).gc(Keep(**limits))


def work_rm(home, keys):
    remove(Watched(home).session, keys)


def work_pin(home, key):
    pin(Watched(home).store, [Named(key)])


WORK = {name.removeprefix("work_"): function for name, function in list(globals().items()) if name.startswith("work_")}


# The server's side


def _child(request, back, library):
    answer = {"error": "", "hint": ""}
    home = request["home"]
    arm = (request["under"] or home, request["at"], request["torn"], request["errno"], request["trace"] or "")
    library.killat_arm(*(value.encode() if isinstance(value, str) else int(value) for value in arm))
    try:
        WORK[request["work"]](home, **request["arguments"])
    except Exception as error:  # noqa: BLE001 - the test judges it
        answer = {"error": type(error).__name__, "hint": getattr(error, "hint", ""), "message": str(error)}
        answer["traceback"] = traceback.format_exc()
    answer["calls"] = library.killat_count()
    library.killat_arm(b"", 0, 0, 0, b"")
    os.write(back, json.dumps(answer).encode())


def serve():
    """Answer requests, one JSON line each, until there are no more."""
    with tempfile.TemporaryDirectory() as nowhere:
        WORK["train"](nowhere, nowhere)  # imports and reads whatever is imported and read late
    library = ctypes.CDLL(None)
    library.killat_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    library.killat_count.restype = ctypes.c_long
    for line in sys.stdin:
        out, back = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(out)
                _child(json.loads(line), back, library)
            finally:
                os._exit(0)
        os.close(back)
        with os.fdopen(out, "rb") as stream:
            raw = stream.read()
        _, status = os.waitpid(pid, 0)
        answer = json.loads(raw) if raw else {}
        answer["killed"] = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


# The tests' side


class Crashes:
    """A server, and its library built by the system's C compiler.

    Args:
        folder: Where the library and temporary files go.
    """

    def __init__(self, folder):
        self.shim = folder / "killat.so"
        source = Path(__file__).with_name("killat.c")
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", self.shim, source, "-ldl"], check=True)
        (folder / "temporary").mkdir()
        environment = {"LD_PRELOAD": str(self.shim), "TMPDIR": str(folder / "temporary")}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __call__(self, home, work, *, at=0, torn=False, errno=0, trace=None, under=None, **arguments):
        """Do a piece of work; see `killat.c` for `at`, `torn`, `errno`, `trace` and `under`, which is `home`.

        Returns:
            Whether it was `killed`; else how many `calls` it made, and the class of its `error`, if any.
        """
        request = {"home": str(home), "work": work, "at": at, "torn": torn, "errno": errno, "arguments": arguments}
        request |= {"trace": str(trace) if trace else None, "under": str(under) if under else None}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self):
        """End the server."""
        self._server.communicate()


def calls(trace):
    """A trace as rows of number, name, path, second path, detail."""
    rows = [line.split("\t") for line in trace.read_text().splitlines()]
    return [(int(number), *rest) for number, *rest in rows]


if __name__ == "__main__":
    serve()
