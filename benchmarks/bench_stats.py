"""How long `cachekit stats` takes with the journals of 10,000 runs: the first time, later, and how that grows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from measure import limit, process, ratio, seconds

from cachekit.store.layout import Layout

RUNS = 10_000
REPEATS = 5
NOW = 1_790_000_000


def fill(home: Path, count: int) -> None:
    """Journals of warms and trainings over 60 days, two or three kB each."""
    for number in range(count):
        start = NOW - 60 * 86_400 * number / count
        run = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(start)) + f"-{number:08x}"
        key = hashlib.sha256(run.encode()).hexdigest()
        name, hit = ["bert", "vit", "gpt2-clm"][number % 3], number % 5 > 0
        events: list[dict[str, object]] = [
            {"event": "run", "verb": "train", "pid": number, "host": "trn-1"},
            {"event": "plan", "recipe": name, "key": key, "status": "hit" if hit else "miss", "remote": "local"},
        ]
        if not hit:
            events.append({"event": "compile.start", "key": key})
            done = {"key": key, "recipe": name, "compiled": 3, "graphs": 3, "seconds": 90, "compile_seconds": 60}
            events.append({"event": "warm.end", **done})
        events += [
            {"event": "worker.phase", "name": phase} for phase in ("import", "data", "model", "train", "evaluate")
        ]
        events += [{"event": "worker.log", "step": step, "loss": 0.5, "learning_rate": 1e-5} for step in range(10)]
        end = {"key": key, "recipe": name, "found": 3, "compiled": 0, "saved_seconds": 58, "overhead_seconds": 1}
        events += [
            {"event": "restore", "key": key, "bytes": 5_000_000},
            {"event": "train.end", **end, "phases": {"graphs": 2}},
        ]
        events.append({"event": "run.end"})
        path = Layout(home).journal / run[:6] / f"{run}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"time": start, "run": run, **event}) + "\n" for event in events))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        times = {}
        for count in (RUNS // 10, RUNS):
            home = Path(folder) / str(count)
            fill(home, count)
            environment = {**os.environ, "CACHEKIT_HOME": str(home)}
            command = [sys.executable, "-m", "cachekit", "stats", "--format", "json"]
            figures = home / "v1" / "state" / "stats"

            def first() -> None:
                shutil.rmtree(figures, ignore_errors=True)  # noqa: B023
                process(command, environment)  # noqa: B023

            times[count, "first"] = seconds(first, REPEATS)
            times[count, "again"] = seconds(lambda: process(command, environment), REPEATS)  # noqa: B023
            total = json.loads(process(command, environment))["total"]
            assert (total["runs"], total["misses"]) == (count, count // 5)
    results = [
        limit(f"cachekit stats, {RUNS:,} runs", times[RUNS, "again"], 1.0),
        limit(f"cachekit stats, {RUNS:,} runs that were never counted", times[RUNS, "first"], 3.0),
        ratio("ten times as many runs", times[RUNS, "again"], times[RUNS // 10, "again"], at_most=5),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
