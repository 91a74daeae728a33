"""What a test wants of the stand-in, read from the JSON file that NEURON_SDK_KNOBS names; and a log of what it did.

All of this is invented: the real SDK has neither. Without the variable everything succeeds at once and nothing is
written down.

Knobs:
    compile_seconds: How long each compile takes.
    sticks: How many compiles end; the others never do.
    held: A file as long as which exists no compile ends.
    failures: Rules `{"match": glob, "class": …, "times": n}`; the first that applies to a compile fails
        it. The glob (default: all) is matched against the input's path, the graph's name and the digest of its bytes;
        without "times" the rule always applies. Classes: see
        `neuronxcc.driver.FAILURES`.
    lock_minute: Seconds that a "minute" of waiting on a lock lasts.
    trial_zeros: Whether values from the device are zeros while graphs are only extracted.
    trial_hangs: Whether a script never ends after graph extraction, as AWS documents for several workers.
    parallel_compile_hangs: Whether `neuron_parallel_compile` never ends after its summary.
    cores, devices, instance_type: What neuron-ls shows; `neuron_ls` replaces its whole answer.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any


def read() -> dict[str, Any]:
    """All knobs that are set."""
    path = os.environ.get("NEURON_SDK_KNOBS")
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text()) if path else {}
    except FileNotFoundError:
        found = {}
    return found


def note(event: str, **fields: Any) -> None:
    """Append a line to the log of the stand-in's doings (`events.jsonl` beside the knobs)."""
    path = os.environ.get("NEURON_SDK_KNOBS")
    if path:
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), **fields}) + "\n"
        fd = os.open(Path(path).with_name("events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(fd, line.encode())  # one write, so that lines of several processes do not mix
        finally:
            os.close(fd)


def take_turn(rule: int | str, times: int) -> bool:
    """Whether a rule that applies a number of times applies once more; counted over all processes."""
    path = Path(os.environ["NEURON_SDK_KNOBS"]).with_name(f"rule-{rule}")
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        used = len(file.read())
        if used >= times:
            return False
        file.write("x")
        return True
