"""Stands in for the training worker of Inductor: "compiles" in a moment what its compiler cache dir does not have.

For tests of screens, which need a compiler that recipes can name. `standin_worker` is that of a compiler of its own,
whose graphs depend on the job. FAKE_WORKER says how it behaves: `works`, `fails`, `dies`, `hangs`, `stubborn`,
`surprised`, `waits`; FAKE_PIDS names the file that gets its process ids, FAKE_SIZE the bytes of what it compiles.

    inductor_worker.py JOB.json
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
mode = os.environ.get("FAKE_WORKER", "works")
events = Path(job["events"]).open("a", buffering=1)  # noqa: SIM115 - open until it ends


def tell(event, **fields):
    events.write(json.dumps({"event": event, **fields}) + "\n")


def finish(**result):
    Path(job["result"]).write_text(json.dumps(result))
    sys.exit(1 if "failure" in result else 0)


def pids(*numbers):
    fresh = Path(os.environ["FAKE_PIDS"] + ".new")
    fresh.write_text(" ".join(map(str, numbers)))
    fresh.replace(os.environ["FAKE_PIDS"])


sys.stdout.write("the worker's own words\n")
tell("phase", name="import")
if mode == "fails":
    finish(failure={"code": "compile-failed", "message": "the compiler failed in: first training step", "cause": "no"})
if mode == "dies":
    sys.stdout.write("the last words\n")
    os._exit(3)
if mode in {"hangs", "stubborn"}:
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"])
    pids(os.getpid(), child.pid)
    time.sleep(120)

root = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
cold = not any(root.iterdir())
surprised = mode == "surprised" and not cold
found, compiled = (0, 3) if cold else (3, int(surprised))
if cold:
    (root / "kernel.so").write_bytes(b"x" * int(os.environ.get("FAKE_SIZE", "12")))
if surprised:
    (root / "surprise.so").write_bytes(b"more of it")
tell("graphs", found=found, compiled=compiled, phase="first training step")
if mode == "waits":
    pids(os.getpid())
    end = time.monotonic() + 120
    while time.monotonic() < end and not Path(os.environ["FAKE_PIDS"]).with_name("go on").exists():
        time.sleep(0.02)
metrics = {"accuracy": 0.916667, "f1": 0.916084, "loss": 0.251247, "rows": 24.0}
if job["mode"] == "train":
    Path(job["output_dir"]).mkdir(parents=True, exist_ok=True)
    tell("step", step=1, of=3)
    tell("log", step=3, loss=0.5)
    tell("log", step=3, eval_accuracy=0.916667, eval_f1=0.916084, eval_loss=0.251247)
    tell("evaluating", split="test")
    tell("log", step=3, eval_accuracy=0.901, eval_f1=0.899, eval_loss=0.25)
finish(
    metrics={"validation": metrics, "test": metrics} if job["mode"] == "train" else {},
    counters={"found": found, "compiled": compiled},
    seconds={"graphs": 29.7 if cold else 2.7},
    steps=3,
    steps_taken=3,
    speed={
        "steps_per_second": 9.2394,
        "rows_per_second": 295.663,
        "evaluation_seconds": {"validation": 7.41, "test": 7.4} if job["mode"] == "train" else {},
    },
    surprises=["evaluation or saving"] if surprised else [],
    output_dir=job["output_dir"],
)
