"""This machine's place among several that train together, as the engine that started them tells each of them.

So one command, the same on each machine, is enough: `srun -N2 --ntasks-per-node=1 cachekit train bert --nnodes 2`, or a
training job of SageMaker on two instances.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from cachekit.compilers.port import Node
from cachekit.errors import UsageError
from cachekit.process import answer
from cachekit.text import cut

SAGEMAKER = Path("/opt/ml/input/config/resourceconfig.json")  # [AWS: your-algorithms-training-algo-running-container]


def place(nodes: int, port: int) -> Node | None:
    """Which of so many machines this one is, and where they meet; None where no engine tells.

    Raises:
        UsageError: The engine started another number of machines, several commands on each, or does not say who is the
            first.
    """
    said = os.environ
    if step := said.get("SLURM_STEP_NODELIST"):  # a step of srun's; a batch script alone runs on the first machine only
        tasks = said.get("SLURM_STEP_NUM_TASKS", "")
        _check("Slurm", nodes, said.get("SLURM_STEP_NUM_NODES", ""), f"srun -N{nodes} --ntasks-per-node=1")
        if tasks != str(nodes):
            raise UsageError(
                f"Slurm started {tasks} commands on {nodes} machines, and one per machine is needed",
                cause="cachekit starts the workers of a machine itself",
                hint=f"srun -N{nodes} --ntasks-per-node=1",
            )
        return Node(int(said["SLURM_NODEID"]), _first(step), port)
    if "TRAINING_JOB_NAME" in said and SAGEMAKER.is_file():
        told = json.loads(SAGEMAKER.read_text(encoding="utf-8"))
        hosts = sorted(told["hosts"])
        _check("SageMaker", nodes, str(len(hosts)), "--nnodes as many as the job's InstanceCount")
        return Node(hosts.index(told["current_host"]), hosts[0], port)
    return None


def _check(engine: str, nodes: int, started: str, hint: str) -> None:
    if started != str(nodes):
        raise UsageError(f"{engine} started this on {started} machines, but the training is for {nodes}", hint=hint)


def _first(step: str) -> str:
    """The first machine of a step; Slurm writes their list in short: `n[1-3]`."""
    try:
        return answer(["scontrol", "show", "hostnames", step]).split()[0]
    except (OSError, IndexError) as error:
        raise UsageError(
            f"cannot tell which machine of {step} is the first",
            cause=f"scontrol show hostnames: {cut(str(error), 200)}",
            hint="pass --node-rank and --master-addr on every machine, as for torchrun",
        ) from error
