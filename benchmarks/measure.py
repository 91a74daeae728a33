"""What the benchmarks share: medians of several runs, and one line a figure."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence


def seconds(action: Callable[[], object], repeats: int) -> list[float]:
    """Wall times of an action, one after the other."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; its standard output."""
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: exit {run.returncode}\n{run.stderr}")
    return run.stdout


def ratio(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    unit: str = "s",
) -> bool:
    """Print the medians, their ratio ours / theirs (or theirs / ours, for `at_least`), and whether the limit holds."""
    a, b = statistics.median(ours), statistics.median(theirs)
    if at_most is not None:
        value, asked, holds = a / b, f"at most {at_most:g}", a / b <= at_most
    else:
        assert at_least is not None, name
        value, asked, holds = b / a, f"at least {at_least:g}", b / a >= at_least
    verdict = "ok" if holds else "MISSED"
    print(f"{name}: {a:.3g} {unit} against {b:.3g} {unit}, ratio {value:.2f}, {asked}: {verdict}")
    return holds


def limit(name: str, ours: Sequence[float], at_most: float, unit: str = "s") -> bool:
    """Print the median against a fixed limit."""
    value = statistics.median(ours)
    holds = value <= at_most
    print(f"{name}: {value:.3g} {unit}, at most {at_most:g} {unit}: {'ok' if holds else 'MISSED'}")
    return holds
