"""One small training step under each way to keep what Inductor compiles: what compiles again, and what goes wrong.

python bench_compare.py [--json FILE] [--repeats N] [--only REGEX ...]   measurements are added to those of FILE
python bench_compare.py --json FILE --render                           the table of docs/compare.md

Graphs are counted by Inductor's own counters, kernels by a `g++` first on PATH that notes how it was called. Each
machine is a folder: a home, a temporary folder and a local cache of its own. Seconds are those of the processor, of all
processes of a run, starting Python and loading torch included: a shared machine changes them least. `torch's remote
cache` needs redis-server and PyPI's redis, and is left out where they are not installed.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import pickle
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("compare_step.py")
GXX = '#!/bin/sh\necho "$*" >> "$COMPARE_CXX"\nexec {gxx} "$@"\n'
FOLDER, COPY, ARTIFACTS, REDIS, CACHEKIT = "plain folder", "copied folder", "artifacts", "redis", "cachekit"
WAYS = (FOLDER, COPY, ARTIFACTS, REDIS, CACHEKIT)
HEADINGS = {
    FOLDER: "one folder for all",
    COPY: "a copy of the folder",
    ARTIFACTS: "torch's artifacts",
    REDIS: "torch's remote cache",
    CACHEKIT: "`cachekit run`",
}
# How the run differs from the one that filled the cache: on the same machine, its Python, and its environment.
ROWS: dict[str, dict[str, Any]] = {
    "nothing is cached yet": {},
    "again on the same machine": {"same": True},
    "another machine of the same kind": {},
    "another path of the virtual environment": {"python": True},
    "another number of threads": {"environment": {"OMP_NUM_THREADS": "1"}},
    "another processor": {"environment": {"ATEN_CPU_CAPABILITY": "default"}},
    "two writers at once": {},
    "after a writer that was killed": {},
    "half of a graph's file is missing": {"same": True},
    "nine tenths of a kernel's file are missing": {"same": True},
    "a stranger can write to the cache": {},
}
COLD, AGAIN, MACHINE, VENV, THREADS, TYPE, WRITERS, KILLED, GRAPH, KERNEL, STRANGER = ROWS
# Not measured: one run fills all of torch's own, and leaves them the same folder on its machine; a copy is made of a
# folder at rest, and is a folder from then on; artifacts are a file that one run writes; redis and artifacts hold no
# kernels, and cachekit's record is one file with all of them.
NOTHING = {(row, COPY) for row in (COLD, AGAIN, TYPE, WRITERS, KILLED, GRAPH, KERNEL, STRANGER)}
NOTHING |= {(row, ARTIFACTS) for row in (COLD, AGAIN, WRITERS, KILLED, KERNEL)}
NOTHING |= {(COLD, REDIS), (AGAIN, REDIS), (KERNEL, REDIS), (KERNEL, CACHEKIT)}
GRAPHS = 2  # forward and backward
NUMBER_OF_KERNEL = 3  # the writer is killed as it is built


class Bench:
    """One way, and where it keeps things.

    Attributes:
        shared: What all machines see: the folder, the artifacts, the folder that is cachekit's remote.
    """

    def __init__(self, way: str, root: Path, other: Path, port: int, filled: Bench | None = None) -> None:
        self.way, self.root, self.other, self.port = way, root, other, port
        self.shared, self.kept, self.machines = root / "shared", root / "kept", 0
        self.filled = filled
        self.kept.parent.mkdir(parents=True)
        self.cold: dict[str, Any] = {}
        self.values: dict[bytes, bytes] = {}
        self.first = self.machine()

    def machine(self) -> Path:
        """A new one."""
        self.machines += 1
        folder = self.root / f"machine{self.machines}"
        for name in ("home", "tmp"):
            (folder / name).mkdir(parents=True)
        return folder

    def redis(self) -> Any:
        """A client of the server."""
        import redis

        return redis.Redis(port=self.port)

    def start(self, machine: Path, row: dict[str, Any], *, fills: bool = False) -> subprocess.Popen[str]:
        """The script on a machine: fetched from what is shared, and put there where the way does so by itself."""
        cache = self.shared / "cache" if self.way == FOLDER else machine / "cache"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "CACHEKIT_"))},
            "PATH": f"{self.root.parent / 'bin'}:{os.environ['PATH']}",
            "HOME": str(machine / "home"),
            "TMPDIR": str(machine / "tmp"),
            "COMPARE_CXX": str(machine / "cxx"),
            "COMPARE_PID": str(machine / "pid"),
            "OMP_NUM_THREADS": "2",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes; the number is in no key
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            **row.get("environment", {}),
        }
        (machine / "cxx").write_text("")
        python = str(self.other if row.get("python") else sys.executable)
        command = [python, str(SCRIPT)]
        if self.way == COPY and (self.shared / "cache").exists() and not cache.exists():
            shutil.copytree(self.shared / "cache", cache)
        if self.way == ARTIFACTS:
            command += ["--load", str(self.shared / "artifacts")]
        if fills and self.way == FOLDER:
            command += ["--save", str(self.shared / "artifacts")]
        if self.way == REDIS or (fills and self.way == FOLDER and self.port):
            for name in ("FX_GRAPH", "AUTOGRAD"):
                environment[f"TORCHINDUCTOR_{name}_REMOTE_CACHE"] = "1"
            environment["TORCHINDUCTOR_REDIS_URL"] = f"redis://127.0.0.1:{self.port}"
        if self.way == CACHEKIT:
            del environment["TORCHINDUCTOR_CACHE_DIR"]
            environment["CACHEKIT_HOME"] = str(machine / "store")
            command = [
                python,
                "-m",
                "cachekit",
                "run",
                "--cache",
                f"local:rw,{self.shared / 'remote'}:rw",
                "--",
                *command,
            ]
        return subprocess.Popen(
            command, env=environment, cwd=SCRIPT.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def fill(self) -> None:
        """The first run, and what it leaves: the state that each row begins with. One run fills all of torch's own."""
        if self.filled:
            self.filled.fill()
            self.kept, self.values = self.filled.kept, self.filled.values
        if self.kept.exists():
            return
        self.empty()
        self.cold = self.measure(self.first, {}, fills=True)
        assert self.cold["compiled"] == GRAPHS and self.cold["right"], self.cold  # noqa: PT018
        self.kept.mkdir()
        for name, source in (("shared", self.shared), ("first", self.first)):
            shutil.copytree(source, self.kept / name, symlinks=True)
        if self.port:
            self.values = {key: self.redis().get(key) for key in self.redis().scan_iter()}

    def empty(self) -> None:
        """Nothing is cached; cachekit's remote is a folder that somebody has made."""
        shutil.rmtree(self.shared, ignore_errors=True)
        (self.shared / "remote").mkdir(parents=True)
        if self.way == REDIS:
            self.redis().flushall()

    def refill(self, *, same: bool) -> None:
        """All as the first run left it; on its machine as well, if that is used."""
        self.empty()
        for name, target in (("shared", self.shared), ("first", self.first))[: 1 + same]:
            shutil.rmtree(target)
            shutil.copytree(self.kept / name, target, symlinks=True)
        for key, value in self.values.items():
            self.redis().set(key, value)

    def measure(
        self, machine: Path, row: dict[str, Any], *, twice: bool = False, fills: bool = False
    ) -> dict[str, Any]:
        """Run, and count: on one machine, or on two at once."""
        before, start = _processor(), time.perf_counter()
        machines = [machine, self.machine()] if twice else [machine]
        runs = [self.start(one, row, fills=fills) for one in machines]
        told: dict[str, Any] = {"compiled": 0, "kernels": 0, "right": True, "exit": 0}
        for one, run in zip(machines, runs, strict=True):
            out, err = run.communicate()
            said = json.loads(out.splitlines()[-1]) if run.returncode == 0 else {"compiled": 0, "right": True}
            told["compiled"] += said["compiled"]
            told["kernels"] += (one / "cxx").read_text().count(".main.cpp ")
            told["right"] &= said["right"]
            told["exit"] = told["exit"] or run.returncode
            told["said"] = [line for line in err.splitlines() if line.strip()][-6:]
        return {**told, "cpu": round(_processor() - before, 1), "wall": round(time.perf_counter() - start, 1)}

    def kill(self, row: dict[str, Any]) -> None:
        """A first run whose process is killed while it compiles, as the kernel does where memory ends."""
        machine = self.machine()
        run = self.start(machine, row)
        while (machine / "cxx").read_text().count(".main.cpp ") < NUMBER_OF_KERNEL:
            assert run.poll() is None, run.communicate()
            time.sleep(0.05)
        os.kill(int((machine / "pid").read_text()), signal.SIGKILL)
        run.communicate()

    def damage(self, what: str) -> None:
        """The end of a file is gone, as after a full disk. The second half of a kernel is only what debuggers read."""
        if self.way == REDIS:
            for key in self.redis().keys("*fx-graph*")[:1] + self.redis().keys("*autograd*"):
                self.redis().set(key, self.values[key][: len(self.values[key]) // 2])
            return
        place = {FOLDER: self.shared, ARTIFACTS: self.shared, CACHEKIT: self.first / "store"}.get(self.way, self.first)
        pattern = {ARTIFACTS: "artifacts", CACHEKIT: "**/blobs/**/*"}.get(self.way, _FILES[what])
        file = max((one for one in place.glob(pattern) if one.is_file()), key=lambda one: one.stat().st_size)
        raw = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(raw[: len(raw) // (10 if what == KERNEL else 2)])

    def poison(self, marker: Path) -> None:
        """Put in place of each graph what a stranger would: a pickle whose loading calls a function of their choice.

        This one makes an empty file. cachekit's stranger is another record maker in a folder that anybody can write to.
        """
        evil = pickle.dumps(_Touch(marker))
        if self.way == REDIS:
            document = json.dumps({"data": base64.b64encode(evil).decode(), "time_taken_ms": 1}).encode()
            for key in self.values:
                self.redis().set(key, document)
        elif self.way == ARTIFACTS:
            from torch.compiler._cache import CacheArtifactManager

            raw = (self.shared / "artifacts").read_bytes()
            found = CacheArtifactManager.deserialize(raw)
            assert found is not None
            for artifact in (one for kind in found.values() for one in kind):
                raw = raw.replace(artifact.content, evil.ljust(len(artifact.content), b"\0"))
            # Its checksum is no secret: torch/utils/_appending_byte_serializer.py.
            (self.shared / "artifacts").write_bytes(zlib.crc32(raw[4:]).to_bytes(4, "big") + raw[4:])
        elif self.way == CACHEKIT:
            subprocess.run(["chmod", "-R", "a+w", self.shared], check=True)
        else:
            for name in ("fxgraph", "aotautograd"):
                for file in (self.shared / "cache" / name).rglob("*"):
                    if file.is_file():
                        file.write_bytes(evil)


# AOTAutograd's entry has both graphs, and is asked first.
_FILES = {GRAPH: "**/aotautograd/*/*", KERNEL: "**/*.main.so"}


class _Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cell(bench: Bench, row: str) -> dict[str, Any]:
    """One measurement."""
    spec = ROWS[row]
    bench.fill()
    if row == COLD:
        if bench.cold:
            cold, bench.cold = bench.cold, {}
            return cold
        bench.empty()
        return bench.measure(bench.machine(), spec)
    if row in {WRITERS, KILLED}:
        bench.empty()
        if row == KILLED:
            bench.kill(spec)
        return bench.measure(bench.machine(), spec, twice=row == WRITERS)
    # With redis and artifacts, a machine that has run before has a cache of its own, which is not damaged.
    same = spec.get("same", False) and (row, bench.way) not in {(GRAPH, REDIS), (GRAPH, ARTIFACTS)}
    bench.refill(same=same)
    marker = bench.root / "marker"
    if row in _FILES:
        bench.damage(row)
    if row == STRANGER:
        bench.poison(marker)
    told = bench.measure(bench.first if same else bench.machine(), spec)
    told["stranger"] = marker.exists()
    marker.unlink(missing_ok=True)
    return told


def _cell(bench: Bench, row: str) -> dict[str, Any] | None:
    try:
        return cell(bench, row)
    except Exception:  # noqa: BLE001 - the other cells are hours of work
        traceback.print_exc()
        return None


@contextmanager
def places() -> Iterator[tuple[Path, Path, int]]:
    """A folder with the noting `g++`, the Python of a virtual environment at another path, a redis' port (or 0)."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-compare-", dir=os.environ.get("BENCH_DIR")) as folder,
        socket.socket() as one,
    ):
        root = Path(folder)
        (root / "bin").mkdir()
        (root / "bin" / "g++").write_text(GXX.format(gxx=shutil.which("g++")))
        (root / "bin" / "g++").chmod(0o755)
        # With links: nothing is written there, and torch has 750 MB.
        subprocess.run(["cp", "-al", sys.prefix, root / "another-venv"], check=True)
        server = shutil.which("redis-server") if importlib.util.find_spec("redis") else None
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1] if server else 0
        one.close()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL) if server else None
        try:
            yield root, root / "another-venv" / "bin" / "python", port
        finally:
            if process:
                process.terminate()
                process.wait()


def outcome(told: Sequence[dict[str, Any]]) -> str:
    """A cell of the table: graphs + kernels that were compiled, seconds, and what went wrong."""
    said = [f"{statistics.median(one['cpu'] for one in told):.0f} s"]
    if ended := {(one["compiled"], one["kernels"]) for one in told if not one["exit"]}:
        said.insert(0, " or ".join(f"{graphs} + {kernels}" for graphs, kernels in sorted(ended)))
    codes = sorted({one["exit"] for one in told} - {0})
    said += ["**died: " + (f"exit {code}" if code > 0 else signal.Signals(-code).name) + "**" for code in codes]
    if any(one.get("stranger") for one in told):
        said.append("**the stranger's code ran**")
    if not all(one["right"] for one in told):
        said.append("**wrong result**")
    return ", ".join(said)


def render(found: dict[str, Any]) -> str:
    """The table of docs/compare.md, of the JSON that a run wrote."""
    ways = [way for way in WAYS if any(way in cells for cells in found["cells"].values())]
    lines = ["| | " + " | ".join(HEADINGS[way] for way in ways) + " |", "|---|" + "---|" * len(ways)]
    for row, cells in ((row, cells) for row, cells in found["cells"].items() if cells):
        lines.append(f"| {row} | " + " | ".join(outcome(cells[way]) if way in cells else "-" for way in ways) + " |")
    times = [len(told) for cells in found["cells"].values() for told in cells.values()]
    on, loads = found["host"], found["loads"]
    several = f"{min(times)} to {max(times)} runs per cell, and their medians"
    how_often = "one run per cell" if max(times) == 1 else several
    lines.append("")
    lines.append(
        f"Measured on {on['date']} with torch {on['torch']} on {on['cores']} cores ({on['processor']}), at a load of "
        f"{min(loads):.0f} to {max(loads):.0f}: {how_often}."
    )
    return "\n".join(lines)


def host() -> dict[str, Any]:
    import torch

    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = f"{names[0].split(': ')[1] if names else os.uname().machine}, {torch.backends.cpu.get_cpu_capability()}"
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {"date": today, "torch": torch.__version__, "processor": processor, "cores": os.cpu_count()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="regular expressions for `ROW: WAY`, in this order")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"cells": {row: {} for row in ROWS}}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())
    if options.render:
        print(render(found))
        return 0
    with places() as (root, other, port):
        ways = [way for way in WAYS if way != REDIS or port]
        folder = Bench(FOLDER, root / "folder", other, port)
        benches = {FOLDER: folder, CACHEKIT: Bench(CACHEKIT, root / CACHEKIT, other, 0)}
        for way in set(ways) - set(benches):
            place = root / way.replace(" ", "-")  # Inductor's compiler reads a path with a space as two
            benches[way] = Bench(way, place, other, port, folder)
        every = [(row, way) for row in ROWS for way in ways if (row, way) not in NOTHING]
        for pattern in options.only * options.repeats:
            for row, way in (one for one in every if re.search(pattern, ": ".join(one))):
                if (told := _cell(benches[way], row)) is None:
                    continue
                said = told.pop("said")
                found.setdefault("loads", []).append(round(os.getloadavg()[0], 1))
                found["cells"][row].setdefault(way, []).append(told)
                print(f"{row}: {way}: {outcome([told])} ({told['wall']} s on the clock)", flush=True)
                print(*(f"    {line}" for line in said), sep="\n", flush=True)
                if options.json:
                    found["host"] = host()
                    options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    mine = [cells.get(CACHEKIT, []) for row, cells in found["cells"].items() if row in {AGAIN, MACHINE, VENV}]
    holds = not any(one["compiled"] or one["kernels"] for told in mine for one in told)
    print(f"cachekit compiles nothing again, on another machine, at another path: {'ok' if holds else 'MISSED'}")
    return 0 if holds else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
