"""How good a fleet's order is, and what an engine adds to a command; of this machine, or with --on of another engine.

The other engines are those of the tests: a Slurm and a Ray cluster of three nodes each on this machine, and the
stand-in for SageMaker. Their own time is that of the same commands without cachekit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cachekit.executors import fleet as fleets
from cachekit.executors import registry
from cachekit.executors.port import FleetUnit
from cachekit.store.layout import Layout
from cachekit.verbs.fleet import longest_first, makespan, wait

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' engines

COMMANDS = 40
WORKERS = (1, 2, 4, 8, 16, 32)
SCHEDULE = 1.1  # times the best possible, at most
OVERHEAD = 1.0  # seconds a command, at most
ROUNDS = 200
SHORT = 20  # commands that do nothing
NOTHING = (sys.executable, "-S", "-c", "pass")
Engine = tuple[dict[str, Any], Callable[[], object]]  # fields of the fleet; the same commands without cachekit


def schedule(workers: int, chance: random.Random) -> float:
    """How much longer a fleet's order takes than any schedule must: all shared out evenly, or the longest one."""
    seconds = [chance.lognormvariate(5, 1) for _ in range(COMMANDS)]
    least = max(sum(seconds) / workers, *seconds)
    return makespan([seconds[number] for number in longest_first(seconds)], workers) / least


@contextmanager
def local(_folder: Path, _asked: Counter[str]) -> Iterator[Engine]:
    """This machine, a command at a time."""
    yield {"jobs": 1}, lambda: [subprocess.run(NOTHING, check=True) for _ in range(SHORT)]


@contextmanager
def slurm(folder: Path, asked: Counter[str]) -> Iterator[Engine]:
    """Three nodes, and an array job of the same commands."""
    from cachekit.executors import slurm as adapter
    from tests.executors.slurm_cluster import Cluster

    ask = adapter._asked  # noqa: SLF001 - each call is a program of Slurm's

    def counted(*command: str, script: str = "") -> str:
        asked[command[0]] += 1
        return ask(*command, script=script)

    adapter._asked = counted  # noqa: SLF001
    array = ("sbatch", f"--array=0-{SHORT - 1}%3", "--exclusive", "--output=/dev/null", f"--wrap={' '.join(NOTHING)}")
    with Cluster(folder / "slurm") as cluster:
        os.environ["SLURM_CONF"] = str(cluster.configuration)

        def plain() -> None:
            cluster.asked(*array)
            while cluster.asked("squeue", "--noheader"):
                time.sleep(0.2)

        yield {"jobs": 3}, plain


@contextmanager
def ray(_folder: Path, _asked: Counter[str]) -> Iterator[Engine]:
    """Three nodes, whose own tasks start the same commands."""
    import ray as core

    from tests.executors.ray_cluster import three_nodes

    with three_nodes() as cluster:
        core.init(cluster.address, namespace="cachekit", log_to_driver=False, logging_level="ERROR")
        task = core.remote(subprocess.run)
        yield (
            {"jobs": 3, "options": {"address": cluster.address}},
            lambda: core.get([task.remote(NOTHING, check=True) for _ in range(SHORT)]),
        )
        core.shutdown()


@contextmanager
def sagemaker(folder: Path, asked: Counter[str]) -> Iterator[Engine]:
    """The stand-in; how long AWS takes for a job is not known, so nothing is compared."""
    from tests.executors.sagemaker_local import ACCOUNT, REGION
    from tests.executors.sagemaker_local import sagemaker as serve
    from tests.remotes.s3_server import s3_server

    with s3_server() as s3, serve(folder / "sagemaker", s3, {"PATH": os.environ["PATH"]}) as (service, variables):
        os.environ |= {**s3.environment(), **variables, "AWS_REGION": REGION}
        answer = service.answer

        def counted(operation: str, said: Any) -> Any:
            asked[operation] += 1
            return answer(operation, said)

        service.answer = counted
        table = {
            "role": f"arn:aws:iam::{ACCOUNT}:role/training",
            "image": "image",
            "output": f"s3://{s3.bucket}/jobs",
        }
        options = {"region": REGION, "verb": "warm", "table": table}
        files = {"cachekit.toml": "", "0-bert.yaml": ""}
        yield {"queue": "ml.c6i.8xlarge", "jobs": SHORT, "options": options, "files": files}, lambda: None


def overhead(engine: str, fields: dict[str, Any], folder: Path) -> float:
    """Seconds from a fleet's submission until `cachekit fleet wait` tells of its end."""
    units = tuple(FleetUnit("none", ("true",) if engine == "sagemaker" else NOTHING) for _ in range(SHORT))
    made = fleets.create(Layout(folder / "store"), engine=engine, cwd="/", units=units, **fields)
    began = time.monotonic()
    registry.engine(engine).submit(made)
    told = wait(made, lambda *_, **__: None)
    assert told.counts == {"done": SHORT}, told
    return time.monotonic() - began


def main() -> None:
    """Print each figure against its limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", default="local", choices=["local", "slurm", "ray", "sagemaker"])
    name = parser.parse_args().on
    chance = random.Random(0)
    for workers in WORKERS if name == "local" else ():
        ratios = [schedule(workers, chance) for _ in range(ROUNDS)]
        told = f"median {statistics.median(ratios):.3f}, worst {max(ratios):.3f} times the best possible"
        print(f"{workers:3} workers: {told} (limit {SCHEDULE})")
    asked: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, globals()[name](Path(folder), asked) as (fields, plain):
        rounds = []
        for _ in range(3):
            began = time.monotonic()
            plain()
            own = time.monotonic() - began
            rounds.append((overhead(name, fields, Path(folder)) - own) / SHORT)
            print(
                f"{name}: {SHORT} commands, of the engine's own {own / SHORT:.2f} s each, and {rounds[-1]:.2f} s more"
            )
    print(f"{name}: {statistics.median(rounds):.2f} s a command more (limit on local {OVERHEAD})")
    for what, times in asked.items():
        print(f"{name}: {what}: {times / 3 / SHORT:.2f} times a command")


if __name__ == "__main__":
    main()
