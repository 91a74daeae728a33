"""How good a fleet's order is, against the best possible schedule of 40 commands of log-normal length."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cachekit.executors import fleet as fleets
from cachekit.executors import local
from cachekit.executors.port import ENDED, FleetUnit
from cachekit.store.layout import Layout
from cachekit.verbs.fleet import longest_first, makespan

COMMANDS = 40
WORKERS = (1, 2, 4, 8, 16, 32)
SCHEDULE = 1.1  # times the best possible, at most
OVERHEAD = 1.0  # seconds a command, at most
ROUNDS = 200
SHORT = 20  # commands that do nothing


def schedule(workers: int, chance: random.Random) -> float:
    """How much longer a fleet's order takes than any schedule must: all shared out evenly, or the longest one."""
    seconds = [chance.lognormvariate(5, 1) for _ in range(COMMANDS)]
    least = max(sum(seconds) / workers, *seconds)
    return makespan([seconds[number] for number in longest_first(seconds)], workers) / least


def overhead() -> float:
    """Seconds that this machine as an engine adds to a command, beside the same commands in a shell's row."""
    argv = (sys.executable, "-S", "-c", "pass")
    began = time.monotonic()
    for _ in range(SHORT):
        subprocess.run(argv, check=True)
    plain = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        made = fleets.create(
            Layout(Path(folder)),
            engine="local",
            cwd="/",
            jobs=1,
            units=tuple(FleetUnit("none", argv) for _ in range(SHORT)),
        )
        began = time.monotonic()
        local.ENGINE.submit(made)
        while not all(one.state in ENDED for one in fleets.states(made, local.ENGINE)):
            time.sleep(0.05)
        return (time.monotonic() - began - plain) / SHORT


def main() -> None:
    """Print each figure against its limit."""
    chance = random.Random(0)
    for workers in WORKERS:
        ratios = [schedule(workers, chance) for _ in range(ROUNDS)]
        told = f"median {statistics.median(ratios):.3f}, worst {max(ratios):.3f} times the best possible"
        print(f"{workers:3} workers: {told} (limit {SCHEDULE})")
    rounds = [overhead() for _ in range(3)]
    print(f"local: {statistics.median(rounds):.2f} s a command over a shell's (limit {OVERHEAD})")


if __name__ == "__main__":
    main()
