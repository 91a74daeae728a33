"""A store that has seen something, for tests and looks at its figures: journals of months.

python tests/verbs/report_store.py DIR
"""

from __future__ import annotations

import calendar
import hashlib
import json
import random
import sys
import time
from pathlib import Path

from cachekit.store.layout import Layout

HOSTILE = '<script>alert("1")</script>\'&amp;\u202e\x1b[31m'
NOW = calendar.timegm((2026, 11, 20, 15, 0, 0))


class Written:
    """One run's journal, written as if it had happened at that time."""

    def __init__(self, home: Path, verb: str, start: float, host: str = "trn-1", pid: int = 4711) -> None:
        salt = hashlib.sha256(f"{verb} {start} {host} {pid}".encode()).hexdigest()[:8]
        self.run = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(start)) + "-" + salt
        self.path = Layout(home).journal / self.run[:6] / f"{self.run}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.start = start
        self.lines: list[str] = []
        self.tell(0, "run", verb=verb, pid=pid, host=host)

    def tell(self, after: float, event: str, **fields: object) -> None:
        self.lines.append(json.dumps({"event": event, "time": self.start + after, "run": self.run, **fields}))

    def end(self, after: float | None = None) -> str:
        if after is not None:
            self.tell(after, "run.end")
        self.path.write_text("\n".join(self.lines) + "\n")
        return self.run


def warm(home, name, start, *, graphs=7, jobs=3, host="trn-1", pid=4711, waits="", remote="hf://team/cache", seed=0):
    """A warm that compiled: a trial run, and its modules side by side; returns when it ended."""
    rnd, key = random.Random(seed), hashlib.sha256(name.encode()).hexdigest()
    run = Written(home, "warm", start, host, pid)
    run.tell(0.1, "plan", recipe=name, key=key, status="miss", remote="")
    at = 0.5
    if waits:
        run.tell(at, "lock.wait", key=key, holder=waits)
        at += 40
    run.tell(at, "compile.start", key=key, expected_seconds=None)
    run.tell(at, "worker.start", mode="trial", log="", output_dir="")
    for number, phase in enumerate(["import", "data", "model", "features"]):
        run.tell(at + 1 + number * 5, "worker.phase", name=phase)
    at += 24
    run.tell(at, "worker.phase", name="train")
    free = [at + 3] * jobs
    told = []
    for number in range(graphs):
        took = rnd.uniform(20, 160) if number else 210.0
        lane = free.index(min(free))
        free[lane] += took
        module = f"MODULE_{rnd.randrange(10**19):020d}+{rnd.randrange(16**8):08x}"
        told.append((free[lane], {"module": module, "seconds": took, "failure": "", "done": 1, "of": graphs}))
    for done, fields in sorted(told, key=lambda one: one[0]):
        run.tell(done, "worker.compiled", **fields)
    at = max(free)
    run.tell(at + 2, "worker.end", mode="trial", counters={}, seconds={}, steps=2)
    total = sum(fields["seconds"] for _, fields in told)
    run.tell(at + 4, "push.start", remote=remote, keys=[key])
    run.tell(
        at + 19, "push.end", remote=remote, keys=[key], recipe=name, records=1, files=9, bytes=48_000_000, seconds=15
    )
    run.tell(
        at + 19, "warm.end", recipe=name, key=key, remote="", graphs=graphs, compiled=graphs, seconds=at + 19,
        waited_seconds=40 if waits else 0, compile_seconds=total, bytes=48_000_000,
    )  # fmt: skip
    run.end(at + 19)
    return start + at + 19


def train(home, name, start, *, remote="local", graphs=7, recorded=640.0, pid=1, host="trn-1"):
    """A training that hit."""
    key = hashlib.sha256(name.encode()).hexdigest()
    run = Written(home, "train", start, host, pid)
    run.tell(0, "plan", recipe=name, key=key, status="hit", remote=remote)
    if remote != "local":
        run.tell(0, "pull.start", key=key, remote=remote, files=9, bytes=48_000_000)
        run.tell(6, "pull.end", key=key, recipe=name, remote=remote, files=9, bytes=48_000_000, seconds=6)
    run.tell(7, "restore", key=key, bytes=48_000_000, seconds=1)
    run.tell(
        600, "train.end", recipe=name, key=key, status="hit", found=graphs, compiled=0, saved_seconds=recorded - 9,
        overhead_seconds=7, phases={"graphs": 9.0},
    )  # fmt: skip
    run.end(600)


def fill(home: Path, *, days: int = 30, hostile: bool = False) -> None:
    """The whole store."""
    rnd = random.Random(7)
    names = ["bert", "vit", "gpt2-clm", "llama3.2-1b-sft", "t5-summarization"]
    for day in range(days, 0, -1):
        start = NOW - day * 86_400
        for number in range(rnd.randrange(1, 7) if day % 7 > 1 else 0):
            name = rnd.choice(names)
            if rnd.random() < 0.25 + day / days / 3:
                warm(home, name, start + number * 3000, seed=day * 10 + number)
            else:
                storage = rnd.choice(["local", "local", "hf://team/cache"])
                train(home, name, start + number * 3000, remote=storage, pid=number)
    warm(home, "llama3.2-1b-sft", NOW, jobs=4, graphs=11, host="trn-1", seed=1)
    warm(home, "vit", NOW + 20, jobs=2, graphs=5, host="trn-2", pid=812, seed=2)
    name = HOSTILE if hostile else "bert-mnli"
    warm(home, name, NOW + 45, jobs=1, graphs=3, host="trn-2", pid=977, waits="ann@trn-3", seed=3)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
