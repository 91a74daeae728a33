"""A user of `cachekit run`, with a script that stands in for one that compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import forked
from tests.support.processes import begin_python

LIMIT = 120.0
COMPILES = '''
"""Stands in for a script that uses torch.compile: a graph is an entry in Inductor's folder, and a kernel beside it."""
import os, signal, sys, time
from pathlib import Path
from parts import GRAPHS

root = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
for graph in GRAPHS:
    entry = root / "fxgraph" / "ab" / graph
    print(graph, "found" if entry.exists() else "compiled", flush=True)
    if not entry.exists():
        (root / f"{graph}.cpp").write_text("int main;")
        time.sleep(float(os.environ.get("SLOW", "0")))
        (root / f"{graph}.so").write_bytes(Path(os.environ["A_LIBRARY"]).read_bytes())
        entry.mkdir(parents=True)
        (entry / "entry").write_bytes(b"graph " + graph.encode())
if "--half" in sys.argv:
    (root / "half.so").write_bytes(bytes(4096))  # as a linker leaves it that was killed
if "--ask" in sys.argv:
    print("read", sys.stdin.readline().strip(), flush=True)
if "--wait" in sys.argv:
    def asked(number, _):
        print("asked by", signal.Signals(number).name, flush=True)
        sys.exit(5)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, asked)
    print("waiting", flush=True)
    time.sleep(60)
if "--fail" in sys.argv:
    sys.exit(7)
'''


class User:
    """Somebody with a script, a store and a shell."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.work, self.home = folder / "work", home or folder / "store"
        self.work.mkdir(parents=True)
        (self.work / "train.py").write_text(COMPILES)
        self.graphs("forward", "backward")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OMP_")},
            "CACHEKIT_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "A_LIBRARY": sys.modules["_ctypes"].__file__ if "_ctypes" in sys.modules else a_library(),
        }

    def graphs(self, *names: str) -> None:
        (self.work / "parts.py").write_text(f"GRAPHS = {list(names)!r}\n")

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen:
        environment = {**self.environment, **variables}
        how = {"stdin": subprocess.PIPE, "start_new_session": False}
        return begin_python("-m", "cachekit", *arguments, folder=self.work, environment=environment, **how)

    def __call__(self, *arguments: str, code: int = 0, feed: str = "", **variables: str) -> subprocess.CompletedProcess:
        how = {"environment": {**self.environment, **variables}, "stdin": feed, "timeout": LIMIT}
        return forked.run_python("-m", "cachekit", *arguments, folder=self.work, code=code, **how)

    def run(self, *words: str, code: int = 0, options: tuple[str, ...] = (), **variables: str) -> dict:
        """What became of a command; what it printed is left in `said`."""
        report = self.work.parent / "report.json"
        report.unlink(missing_ok=True)
        done = self("run", "--report", str(report), "-q", *options, "--", *words, code=code, **variables)
        self.said = done.stdout.splitlines()
        return json.loads(report.read_text())


def a_library() -> str:
    import _ctypes

    return _ctypes.__file__


SECRETS = ("hf_abcdefghijklmnopqrstuvwxyzABCDEF", "sk-proj-abcdefghijklmnopqrstu", "plain-but-named", "s3cret")
