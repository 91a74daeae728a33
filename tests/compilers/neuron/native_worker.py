"""Stands in for `cachekit.training.worker` on TorchNeuron: it asks the cache for graphs, and trains nothing.

    native_worker.py JOB.json

Follows what is known of TorchNeuron's cache (`facts`): `<root>/ab/cd/<32 hex>.neff` under a name that lacks the
compiler's version, written as `.tmp.XXXXXX` and renamed; a lock of the kernel's in the local folder; counters once they
are switched on; where only compiling is asked for, nothing is loaded. Invented: a NEFF of another
compiler is refused as it is loaded, so that mixing is found out.

NATIVE_WORKER names a JSON file: `graphs` of every rank, those of one rank by its number, `train` for those that a
training needs beyond its trial; `many` is how many more there are; `silent` has no counters; `linger` is how long a
training goes on after its last graph; `fails` are graphs that do not compile: the run goes on without them, op by op,
where that is not forbidden.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from neuronxcc import knobs, neff

from cachekit.process import die_with

COUNTERS = {"found": 0, "compiled": 0}


def name_of(graph):
    """A graph's file, relative to the root."""
    text = [graph, os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2"), os.environ.get("NEURON_CC_FLAGS", "")]
    key = hashlib.md5(repr(text).encode()).hexdigest()
    return f"{key[:2]}/{key[2:4]}/{key}.neff"


def write(path, data):
    """As the cache does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=".tmp.", dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(fresh).rename(path)


def load(raw, graph, version):
    """As the runtime does, and more strictly than it."""
    if os.environ.get("TORCH_NEURONX_COMPILE_ONLY") == "1":
        return
    if knobs.read().get("devices", 1) == 0:
        sys.exit("no Neuron device found")
    neff.check(raw, graph.encode())
    if f'"tool_version": "{version}"'.encode() not in neff.members(raw)["info.json"]:
        raise neff.InvalidNeffError("this NEFF is another compiler's")
    knobs.note("loaded", graph=graph)


def compiled(graph, version):
    """A graph's NEFF, from the cache or made now."""
    root = Path(os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or "/nonexistent/neff_cache")
    local = Path(os.environ.get("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR") or "/nonexistent/local_cache")
    path = root / name_of(graph)
    if path.exists():
        COUNTERS["found"] += 1
        return path.read_bytes()
    locks = local / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            COUNTERS["found"] += 1
            return path.read_bytes()
        if "--cachekit" in os.environ.get("NEURON_CC_FLAGS", ""):
            sys.exit("[ERROR] [NCC_EARG001] Illegal argument(s) found")
        knobs.note("compile", graph=graph)
        if knobs.read().get("compile_seconds"):  # somebody looks for the compiler's process
            with tempfile.NamedTemporaryFile() as source:
                command = ["neuronx-cc", "compile", source.name, "--framework=XLA", "--target=trn2", "--output"]
                subprocess.run([*command, os.devnull], check=True)
        raw = neff.write(graph.encode(), output="/tmp/neuron_backend/x.neff", target="trn2", version=version)
        COUNTERS["compiled"] += 1
        write(path, raw)
    return raw


def main():
    """Do the job; returns the exit code."""
    die_with(os.getppid())
    job = json.loads(Path(sys.argv[1]).read_bytes())
    rank = os.environ["LOCAL_RANK"]
    suffix = f".rank{rank}" if rank != "0" else ""
    plan = json.loads(Path(os.environ["NATIVE_WORKER"]).read_bytes())
    wanted = [*plan["graphs"], *plan.get(rank, []), *(f"operation {n}" for n in range(plan.get("many", 0)))]
    wanted = [(graph, "training step") for graph in wanted]
    if job["mode"] == "train":
        wanted += [tuple(pair) for pair in plan.get("train", [])]
    version = metadata.version("neuronx-cc")
    tells = os.environ.get("TORCH_NEURONX_METRICS_ENABLED") == "1" and not plan.get("silent")
    result = {"steps": 1, "metrics": {}, "rows": {}, "output_dir": job["output_dir"], "seconds": {"graphs": 7.5}}
    with Path(job["events"] + suffix).open("a", buffering=1) as events:
        for graph, phase in wanted:
            events.write(json.dumps({"event": "at", "phase": phase}) + "\n")
            before = dict(COUNTERS)
            if graph in plan.get("fails", []):
                if os.environ.get("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION") == "1":
                    sys.exit("[ERROR] [NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB")
                continue
            if os.environ.get("NKI_ENABLE_TRACE_CACHE") == "1":
                sys.exit("a kernel of another session was taken out of NKI's trace cache")
            load(compiled(graph, version), graph, version)
            if tells and before != COUNTERS:
                events.write(json.dumps({"event": "graphs", "phase": phase, **COUNTERS}) + "\n")
        if job["mode"] == "train":
            time.sleep(plan.get("linger", 0))
        result["counters"] = COUNTERS if tells else {"found": 0, "compiled": 0}
        target = Path(job["result"] + suffix)
        target.with_name(target.name + ".new").write_text(json.dumps(result))
        target.with_name(target.name + ".new").replace(target)
        events.write(json.dumps({"event": "done"}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
