"""Stands in for `cachekit.training.worker` on Neuron: it asks the cache for graphs, and trains nothing.

    neuron_worker.py JOB.json

NEURON_WORKER names a JSON file: `graphs` of every rank, those of one rank by its number, `train` for those that a
training needs beyond its trial, each `[graph, phase]`; `kernels` is NKI's folder, in which each graph then has one;
`die` is a rank that kills itself at its end, `after` a file that a training makes and `until` one that it waits for.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from libneuronxla import neuron_cc_wrapper
from libneuronxla.neuron_cc_wrapper import CompilationError
from neuronxcc import knobs

from cachekit.process import die_with
from tests.compilers.neuron.neuron_kernels import graph as calling
from tests.support.neuron_sdk import SCRIPTS

sys.path.insert(0, str(SCRIPTS))
import graphs

DONE = json.dumps({"event": "done"})


def content(graph, folder):
    """What XLA hands to the wrapper; with a kernel, which NKI compiled while the graph was traced."""
    if not folder:
        return graphs.content(graph)
    kernel = Path(folder, graph, "attention.colz")
    kernel.parent.mkdir(parents=True, exist_ok=True)
    if not kernel.exists():
        kernel.write_bytes(f"the kernel of {graph}".encode())
        kernel.chmod(0o666)
    return graphs.content(graph) + calling(str(kernel))


def main():
    """Do the job; returns the exit code."""
    die_with(os.getppid())
    job = json.loads(Path(sys.argv[1]).read_bytes())
    rank = os.environ["LOCAL_RANK"]
    suffix = f".rank{rank}" if rank != "0" else ""
    first = Path(job["events"])  # rank 0's
    plan = json.loads(Path(os.environ["NEURON_WORKER"]).read_bytes())
    wanted = [[graph, "training step"] for graph in [*plan["graphs"], *plan.get(rank, [])]]
    if job["mode"] == "train":
        wanted += plan.get("train", [])
    result = {"counters": {}, "steps": 1, "metrics": {}, "rows": {}, "output_dir": job["output_dir"]}
    with Path(job["events"] + suffix).open("a", buffering=1) as events:
        try:
            for graph, phase in wanted:
                said = json.dumps({"event": "at", "phase": phase})
                events.write(said + "\n")
                while suffix and not any(line in first.read_text() for line in (said, DONE) if first.exists()):
                    time.sleep(0.01)  # workers that train together are never a phase apart
                made = content(graph, plan.get("kernels", ""))
                copy = neuron_cc_wrapper.neuron_xla_compile(made, graph)
                if copy is not None:
                    neuron_cc_wrapper.load(copy, made)
        except CompilationError as error:
            result["failure"] = {"code": "training-failed", "message": "training failed", "cause": str(error)[:200]}
        if job["mode"] == "train" and "until" in plan:
            Path(plan["after"]).touch()
            while not Path(plan["until"]).exists():
                time.sleep(0.02)
        if plan.get("die") == int(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        target = Path(job["result"] + suffix)
        target.with_name(target.name + ".new").write_text(json.dumps(result))
        target.with_name(target.name + ".new").replace(target)
        events.write(DONE + "\n")
    if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1" and knobs.read().get("trial_hangs"):
        time.sleep(3600)
    return 1 if "failure" in result else 0


if __name__ == "__main__":
    sys.exit(main())
