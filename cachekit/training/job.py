"""What crosses the border between cachekit and its training worker: a job in, events on the way, a result out.

An event is one JSON line in the file of events, flushed at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from msgspec import Struct, field

from cachekit.errors import ErrorDocument
from cachekit.private import opened
from cachekit.recipe import Recipe


class Job(Struct, frozen=True):
    """One run of the worker.

    Attributes:
        mode: `trial` takes a few steps that reach every graph and leaves nothing behind; `train` is the fine-tune.
        recipe: Checked values; the worker does not read YAML. Its variables are in the worker's environment, and not
            here: a job is a file, and a variable may be a secret.
        labels: Names of the classes, in the order of their numbers.
        precision: `bf16` or `fp32`.
        config: The architecture's config with the recipe's overrides.
        weights: Folder or Hub id of the weights.
        tokenizer: Folder or Hub id of the tokenizer.
        output_dir: Where the model goes.
        checkpoint_dir: Where checkpoints go; empty for the same folder.
        runtime: The module that has the compiler's `port.Runtime`.
        settings: What that runtime is told.
        resume: A checkpoint's path; empty starts anew.
        compiles_expected: False where everything was restored: the worker reports each compile as a surprise.
        figures: What only cachekit's own process knows of the run, for trackers.
    """

    mode: Literal["trial", "train"]
    recipe: Recipe
    labels: tuple[str, ...]
    precision: str
    config: dict[str, Any]
    weights: str
    tokenizer: str
    output_dir: str
    runtime: str
    settings: dict[str, Any]
    events: str
    result: str
    resume: str = ""
    compiles_expected: bool = True
    figures: dict[str, float] = {}
    checkpoint_dir: str = ""

    @property
    def checkpoints(self) -> str:
        """The folder of the checkpoints."""
        return self.checkpoint_dir or self.output_dir


class Speed(Struct, frozen=True):
    """How fast a training was, without what compiles, or is loaded, in its first step.

    Attributes:
        steps_per_second: By the median of the optimizer steps, without the first one and without those before an
            evaluation or a checkpoint; None where no step is left.
        rows_per_second: Likewise, of all workers together; where rows are packed into blocks, blocks.
        evaluation_seconds: Wall time of the evaluation that the figures of a split are of.
    """

    steps_per_second: float | None = None
    rows_per_second: float | None = None
    evaluation_seconds: dict[str, float] = field(default_factory=dict)


class Result(Struct, frozen=True):
    """What the worker did.

    Attributes:
        failure: Why the worker gave up.
        metrics: By split: `{"validation": {"accuracy": ..., "f1": ..., "loss": ..., "rows": ...}}`.
        counters: The runtime's counters at the end.
        seconds: Wall time by phase: import, data, model, train, evaluate, save; `graphs` is what the first training
            and the first evaluation step took beyond the later ones: compiling, or loading what is compiled.
        steps: Optimizer steps that the model has behind it.
        steps_taken: Of those, steps of this run: the others lie before the checkpoint that it started from.
        speed: How fast it was.
        rows: Rows by split.
        surprises: Phases in which something compiled although everything had been restored.
        output_dir: Where the model was saved; empty after a trial.
        resumed_from: The checkpoint that the run started from.
    """

    failure: ErrorDocument | None = None
    metrics: dict[str, dict[str, float | int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    steps_taken: int = 0
    speed: Speed = Speed()
    rows: dict[str, int] = field(default_factory=dict)
    surprises: tuple[str, ...] = ()
    output_dir: str = ""
    resumed_from: str = ""


POLL = 0.5  # seconds between two looks at the counters


class Events:
    """Writes events, and keeps the time of phases."""

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "a", encoding="utf-8", buffering=1, opener=opened)  # noqa: SIM115
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._failed_in = ""

    @property
    def phase(self) -> str:
        """What is going on: what a compile is booked to."""
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        if name != self._phase:
            self._phase = name
            self.emit("at", phase=name)

    @property
    def failed_in(self) -> str:
        """What was going on when the innermost phase was left by an exception; what is going on, without one."""
        return self._failed_in or self._phase or "start"

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event; a full disk loses it, and is somebody else's failure."""
        with self._lock, suppress(OSError):
            self._stream.write(json.dumps({"event": event, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._stream.close()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Announce a phase and add its wall time up."""
        outer, self.phase = self.phase, phase
        self.emit("phase", name=phase)
        start = time.perf_counter()
        try:
            yield
        except BaseException:
            self._failed_in = self._failed_in or self._phase
            raise
        finally:
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + time.perf_counter() - start, 3)
            self.phase = outer


class CounterWatch:
    """Reports the compiler's counters while they change: compiling blocks the main thread for minutes."""

    def __init__(self, events: Events, read: Callable[[], dict[str, int]]) -> None:
        self._events = events
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._last: tuple[int, int] = (0, 0)
        self.compiled_in: list[str] = []

    def __enter__(self) -> CounterWatch:  # noqa: PYI034 - Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """Read the counters now; called at the end of each phase as well, so that a compile is booked where it was."""
        counters = self._read()
        now = (counters["found"], counters["compiled"])
        if now == self._last:
            return
        if now[1] > self._last[1]:
            self.compiled_in.append(self._events.phase)
        self._last = now
        self._events.emit("graphs", found=now[0], compiled=now[1], phase=self._events.phase)

    def _watch(self) -> None:
        while not self._stop.wait(POLL):
            self.look()
