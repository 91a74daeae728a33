"""Stands in for `cachekit.training.worker`: the same border (a job in, events, a result out), without torch.

It behaves as a worker whose compiler has a cache on disk: a graph that lies finished in that dir is found, every
other one is compiled, which here means slowly writing bytes that depend on nothing but the job. Half-written modules
look half-written, as Neuron's do: a module is finished when its folder holds `model.done`.

    standin_worker.py JOB.json

Its environment says how it behaves:

    STANDIN_ROOT     the compiler cache dir (set by the stand-in compiler)
    STANDIN_LOG      each run appends one line: {"pid": ..., "child": ..., "mode": ..., "found": n, "compiled": n}
    STANDIN_DELAY    seconds that a compile takes, spread over its writes
    STANDIN_TRAINS   seconds that a training takes after its graphs are there
    STANDIN_TOGETHER  its trial run needs all machines of a training (read by the stand-in compiler)
    STANDIN_CARRIES  1 tells what compiling took of the graphs that were found, as Inductor's carry it
    STANDIN_CHILD    1 starts a child process that goes on without it, as a compiler's pool of workers does
    STANDIN_FAIL     `compile` fails by its own word, `die` kills the worker in the middle, `nothing` writes no module
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import msgspec

CHUNKS = 8
CHUNK = 2500  # bytes
SECONDS = 10.0  # what each compile is said to have taken


def graph_names(job):
    """The modules that the job needs, by the names that "the compiler" gives them, with the seed of their bytes."""
    training, settings = job["recipe"]["training"], job["settings"]
    count = settings["graphs"] + (settings["extra"] if job["mode"] == "train" else 0)
    shapes = [settings["salt"], training["per_device_train_batch_size"], training["max_seq_length"], job["precision"]]
    names = {}
    for number in range(count):
        digest = hashlib.sha256(repr([*shapes, number]).encode()).hexdigest()
        names[f"MODULE_{digest[:16]}"] = digest
    return names


def module_bytes(seed):
    """The code of a module: always the same for a seed."""
    return random.Random(seed).randbytes(CHUNKS * CHUNK)


def module_notes(name):
    """The other files of a module; the last one is the mark that it is finished."""
    return {"model.json": f'{{"module": "{name}"}}\n', "model.done": f"{name}\n"}


def compile_module(folder, seed, delay):
    """Write a module slowly, the mark that it is finished last."""
    folder.mkdir(parents=True, exist_ok=True)
    code = module_bytes(seed)
    with (folder / "model.code").open("wb", buffering=0) as stream:
        size = len(code) // CHUNKS  # a test may make its modules larger
        for start in range(0, len(code), size):
            time.sleep(delay / CHUNKS)
            stream.write(code[start : start + size])
    for name, text in module_notes(folder.name).items():
        (folder / name).write_text(text)


def run(job, environ):
    """Do a job; returns the result document."""
    root = Path(environ["STANDIN_ROOT"])
    fail = environ.get("STANDIN_FAIL", "")
    names = graph_names(job)
    found = [name for name in names if (root / name / "model.done").exists()]
    missing = [name for name in names if name not in found]
    with Path(job["events"]).open("ab", buffering=0) as events:

        def emit(event, **fields):
            events.write(msgspec.json.encode({"event": event, **fields}) + b"\n")

        emit("phase", name="train")
        if log := environ.get("STANDIN_LOG"):
            entry = {"pid": os.getpid(), "child": _child(environ), "mode": job["mode"]}
            entry |= {"found": len(found), "compiled": len(missing)}
            with Path(log).open("ab", buffering=0) as stream:
                stream.write(msgspec.json.encode(entry) + b"\n")
        if fail == "compile":
            failure = {"code": "compile-failed", "message": "the compiler failed in: train", "cause": "bad graph"}
            return {"failure": failure}
        if fail == "nothing":
            missing = []
        for count, name in enumerate(missing):
            if fail == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            compile_module(root / name, names[name], float(environ.get("STANDIN_DELAY", "0")))
            emit("graphs", found=len(found), compiled=count + 1, phase="train")
        if job["mode"] == "train":
            output = Path(job["output_dir"])
            output.mkdir(parents=True, exist_ok=True)
            time.sleep(float(environ.get("STANDIN_TRAINS", "0")))
            (output / "model.bin").write_bytes(b"weights")
            emit("step", step=1, of=1)
    carried = {"found_ms": int(1000 * SECONDS * len(found))} if environ.get("STANDIN_CARRIES") else {}
    return {
        "metrics": {"validation": {"accuracy": 0.5, "f1": 0.5, "loss": 1.0, "rows": 2.0}},
        "counters": {"found": len(found), "compiled": len(missing), **carried},
        "seconds": {"graphs": SECONDS * len(missing), "train": 0.0},
        "steps": 1,
        "steps_taken": 0 if job["resume"] else 1,  # its one step is its last
        "rows": {"train": 4, "validation": 2},
        "surprises": ["train"] if missing and not job["compiles_expected"] else [],
        "output_dir": job["output_dir"] if job["mode"] == "train" else "",
        "resumed_from": job["resume"],
    }


def _child(environ):
    if not environ.get("STANDIN_CHILD"):
        return None
    pid = os.fork()
    if pid == 0:
        time.sleep(120)
        os._exit(0)
    return pid


def main():
    """Run the job that the command line names, and leave its result in the job's result file, whole."""
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes())
    result = run(job, os.environ)
    target = Path(job["result"])
    fresh = target.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(result))
    fresh.replace(target)
    return 1 if result.get("failure") else 0


if __name__ == "__main__":
    sys.exit(main())
