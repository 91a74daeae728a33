"""`neuron_parallel_compile`: a trial run that only extracts graphs, then their compiles, several at once.

Follows AWS's documentation and a real log: options; the trial's own log is scraped for `Extracting graphs (…)`; a
script error ends it before any compile unless NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE is set; the summary's
lines; the exit code is the number of failures of this run, so remembered failures are only seen in `failed are N`;
NEURON_PARALLEL_COMPILE_MAX_RETRIES. Invented: how work is shared out (each worker takes the next graph whose lock is
free). Its other commands are not there.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from libneuronxla import logger
from libneuronxla.neuron_cc_cache import DONE, LOG, CacheUrl, CompileCacheFs, create_compile_cache
from libneuronxla.neuron_cc_wrapper import CompilationError, Options, compile_cache_entry, options
from neuronxcc import knobs

EXTRACTED = re.compile(rb"Extracting graphs \((?P<path>[^)]+)\)")


def main() -> int:
    """Run the command line; returns the number of failures."""
    arguments = _arguments()
    wanted = options()
    if arguments.log_level:
        logger.level = arguments.log_level
    cache = create_compile_cache(CacheUrl.get_cache_url(cache_dir=wanted.cache_dir))
    assert isinstance(cache, CompileCacheFs)
    graphs, code = _trial(arguments.run)
    if code and os.environ.get("NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE") != "1":
        logger.error(f"There was an error in the training script: exit code {code}")
        return code
    report = _compile_all(cache, graphs, arguments.num_parallel, wanted)
    failed = _summary(cache, report)
    if knobs.read().get("parallel_compile_hangs"):
        while True:
            time.sleep(3600)
    return failed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("neuron_parallel_compile", allow_abbrev=False)
    parser.add_argument("--num_parallel", type=int, default=math.ceil(_memory() / (64 << 30)))
    parser.add_argument("--log_level")
    parser.add_argument("run", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _trial(command: list[str]) -> tuple[list[str], int]:
    """Run the script in extraction mode; what it says is shown, and scraped for graphs: each line one, ranks repeat."""
    logger.info(
        "Running trial run (add option to terminate trial run early; also ignore trial run's generated outputs, i.e. "
        "loss, checkpoints)"
    )
    logger.info(f"run_train_script: executing trial run cmd: {command}")
    environment = {**os.environ, "NEURON_EXTRACT_GRAPHS_ONLY": "1", "NEURON_PARALLEL_COMPILE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    graphs = []
    assert process.stdout is not None
    for line in process.stdout:
        os.write(1, line)
        graphs += [match["path"].decode() for match in EXTRACTED.finditer(line)]
    code = process.wait()
    if graphs:
        logger.info("New graph list from script: " + graphs[0])
        os.write(1, "".join(f"\t{graph}\n" for graph in graphs[1:]).encode())
    else:
        logger.info("New graph list from script: ")
    return graphs, code


def _compile_all(cache: CompileCacheFs, graphs: list[str], processes: int, wanted: Options) -> dict[str, Any]:
    """Compile what is to do, in worker processes; returns each graph's outcome."""
    if not graphs:
        return {}
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(number, graphs, cache, wanted.retry, results))
        for number in range(max(1, processes))
    ]
    report: dict[str, Any] = {}
    for worker in workers:
        worker.start()
    try:
        running = len(workers)
        while running:
            found = results.get()
            if found is None:
                running -= 1
            else:
                report.update(found)
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.join()
        raise
    return report


def _work(number: int, graphs: list[str], cache: CompileCacheFs, retry: bool, results: Any) -> None:
    retries = int(os.environ.get("NEURON_PARALLEL_COMPILE_MAX_RETRIES", "0"))
    logger.info(f"Worker {number}/None starting dynamic scheduling for {len(graphs)} HLOs")
    left, compiled = list(dict.fromkeys(graphs)), 0
    minute = float(knobs.read().get("lock_minute", 60))
    told, mine = time.monotonic(), {}
    try:
        while left:
            for graph in list(left):
                entry = Path(graph).parent
                remembered = (entry / LOG).exists() and not (entry / DONE).exists()
                if (entry / DONE).exists() or (remembered and (not retry or graph in mine)):
                    left.remove(graph)
                    continue
                with cache.try_lookup_for_compile(graph) as found:
                    if found is None:
                        continue
                    left.remove(graph)
                    if not found.exists:
                        mine[graph] = _attempt(str(entry), retries)
                        results.put({graph: mine[graph]})
                        compiled += mine[graph]["status"]
            if left:
                time.sleep(min(0.05, minute / 4))
                if time.monotonic() - told >= minute:
                    told = time.monotonic()
                    logger.info(_remaining(cache))
        logger.info(f"Worker {number} completed: {compiled} tasks compiled")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        results.put(None)


def _attempt(entry: str, retries: int) -> dict[str, Any]:
    for attempt in range(retries + 1):
        try:
            Path(entry, LOG).unlink(missing_ok=True)
            seconds = compile_cache_entry(entry)
        except CompilationError:
            continue
        logger.info(f"Compilation Successfully Completed for model.{Path(entry).name}.hlo_module.pb")
        return {"status": True, "retry": attempt, "compile_time": seconds}
    return {"status": False, "retry": retries, "compile_time": 0.0}


def _remaining(cache: CompileCacheFs) -> str:
    todo, locked, done, failed = cache.get_hlos()
    total = len(todo) + len(locked) + len(done) + len(failed)
    return (
        f"Current remaining items are {len(todo)}, locked are {len(locked)}, failed are {len(failed)}, "
        f"done are {len(done)}, total is {total}"
    )


def _summary(cache: CompileCacheFs, report: dict[str, Any]) -> int:
    logger.info(_remaining(cache))
    succeeded = sum(outcome["status"] for outcome in report.values())
    failed = len(report) - succeeded
    logger.info(f"Compilation summary - Total graphs: {len(report)}, Success: {succeeded}, Failed: {failed}")
    logger.info(f"Total successful compilations: {succeeded}")
    logger.info(f"Compilation summary: {failed}/{len(report)} failed, {succeeded} succeeded")
    return failed
