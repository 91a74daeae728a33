"""`cachekit run` over real compiles: a script that is run again, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.verbs.run_user import LIMIT, User

REAL = """
import json, sys
import torch
from net import make

torch.manual_seed(0)
model = make()
optimizer = torch.optim.SGD(model.parameters(), float(sys.argv[1]))
step = torch.compile(lambda x, y: torch.nn.functional.mse_loss(model(x), y), dynamic=False)
x = torch.randn(32, 8)
y = x.sum(1, keepdim=True)
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = step(x, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
from torch._dynamo.utils import counters
print(json.dumps({
    "losses": losses,
    "compiled": counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"],
    "found": counters["inductor"]["fxgraph_cache_hit"],
}))
sys.exit(3 if "fail" in sys.argv else 0)
"""
NET = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
"""


@pytest.mark.slow
@pytest.mark.feature("S1", "F2")
def test_a_real_script_compiles_once(tmp_path):
    user = User(tmp_path / "one")
    user.environment["TMPDIR"] = str(tmp_path)
    (user.work / "train.py").write_text(REAL)
    (user.work / "net.py").write_text(NET)
    (tmp_path / "shared").mkdir()
    shared = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    cold = user.run("python", "train.py", "0.1", options=shared)
    first = json.loads(user.said[-1])
    assert (first["compiled"] > 0, first["found"], cold["compiled"]) == (True, 0, 2)
    assert first["losses"][-1] < first["losses"][0]

    warm = user.run("python", "train.py", "0.1", options=("--require-warm",))
    second = json.loads(user.said[-1])
    assert (second["compiled"], second["found"], warm["compiled"], warm["built"]) == (0, 2, 0, 0)
    assert second["losses"] == first["losses"]

    # Another checkout with another store; another learning rate, under torchrun, and the command fails in the end.
    other = User(tmp_path / "another place")
    other.environment["TMPDIR"] = str(tmp_path)
    (other.work / "train.py").write_text(REAL)
    (other.work / "net.py").write_text(NET)
    pulled = other.run("python", "train.py", "0.1", options=shared)
    assert (json.loads(other.said[-1])["compiled"], pulled["remote"], pulled["built"]) == (
        0,
        str(tmp_path / "shared"),
        0,
    )
    words = ("torchrun", "--standalone", "--nproc_per_node=1", "train.py", "0.2", "fail")
    failed = other.run(*words, code=1, OMP_NUM_THREADS=str(os.cpu_count()))
    assert (json.loads(other.said[-1])["compiled"], failed["exit_code"]) == (0, 1)


@pytest.mark.slow
def test_a_real_script_that_is_killed_keeps_its_finished_graphs(tmp_path):
    user = User(tmp_path / "one")
    (user.work / "net.py").write_text(NET)
    (user.work / "train.py").write_text(
        REAL.replace("print(json", "print('ready', flush=True); __import__('time').sleep(100)\nprint(json")
    )
    process = user.start("run", "-q", "--", "python", "train.py", "0.1")
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.1)
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    (user.work / "train.py").write_text(REAL)
    again = user.run("python", "train.py", "0.1")
    assert (json.loads(user.said[-1])["compiled"], again["built"], bool(again["nearest"])) == (0, 0, True)


DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method="file://" + __file__ + ".met", rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
model = torch.compile(DistributedDataParallel(model))
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.feature("D1")
def test_a_script_of_which_torch_compile_made_no_graph_is_told_so_and_is_neither_hit_nor_miss(tmp_path):
    user = User(tmp_path)
    (user.work / "train.py").write_text(DDP)
    done = user.run("python", "train.py")
    assert (done["compiled"], done["found"]) == (0, 0)
    (note,) = done["notes"]
    assert "made no graph" in note
    assert "DistributedDataParallel(torch.compile(model))" in note
    total = json.loads(user("stats", "--format", "json").stdout)["total"]
    assert (total["runs"], total["hits"], total["misses"]) == (1, 0, 0)
