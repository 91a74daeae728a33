"""How a run is started on Neuron: its variables, and what stands before the worker's command line.

A trial runs under `neuron_parallel_compile`, which lets the worker write down its graphs and compiles them; a training
runs under torchrun alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from cachekit import start
from cachekit.compilers.neuron import cores, facts, nki, options
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.port import Node, Run
from cachekit.process import SUBREAPER
from cachekit.recipe import Recipe


class RunCommand(Struct, frozen=True):
    """One run of the workers of a recipe on this host."""

    run: Run  # the run, in Neuron's cache root on this host
    machine: NeuronHost  # this host
    node: Node  # this host's place among several
    npc: str | None = None  # `neuron_parallel_compile`, where it is installed and the run is on XLA

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.run.recipe

    @property
    def trial(self) -> bool:
        """Graphs are only written down, for a compile after the run."""
        return self.run.kind == "trial"

    def environment(self, flags: Sequence[str]) -> dict[str, str | None]:
        """Changes to the workers' variables; `flags` are the compiler's and the wrapper's own."""
        # The flag wins with AWS's wrapper, the variable is what others read: both name the same folder.
        words = [*flags, f"{facts.CACHE_DIR_FLAG}={self.run.cache_dir}"]
        changes: dict[str, str | None] = {
            facts.CC_FLAGS: shlex.join(words),
            facts.CACHE_URL: str(self.run.cache_dir),
            facts.EXTRACT_ONLY: "1" if self.trial and not self.npc else None,
            **facts.NKI_NO_TRACE_CACHE,
            "PATH": _path(),
            **cores.named(self.workers, self.recipe),
        }
        if facts.NKI_COMPILE_CACHE in os.environ and nki.folder().is_absolute():
            changes[facts.NKI_COMPILE_CACHE] = str(nki.folder())  # graphs have it as the key has it
        if self.trial and options.jobs_for_memory() == 1:
            changes[facts.NPC_RETRIES] = "1"  # AWS's advice for trn1.2xlarge: the first try may run out of memory
        if self.recipe.parallel.nodes > 1:
            changes |= {name: os.environ.get(name, value) for name, value in facts.EFA_VARIABLES.items()}
        return changes

    @property
    def workers(self) -> int:
        """How many of them, one a core."""
        layout = self.recipe.parallel
        groups = layout.tensor_parallel_size * layout.pipeline_parallel_size
        copies = layout.data_parallel_size
        return max(cores.of_run(self.machine, self.recipe), 1) if copies == "auto" else copies * groups

    def prefix(self) -> list[str]:
        """The launchers' command line."""
        # Also for one worker: without torchrun Transformers hangs from 4.44 on [SDK: BERT tutorial].
        command = [
            *start.COMMAND,
            "torch.distributed.run",
            f"--nproc_per_node={self.workers}",
            *self._rendezvous(),
            "--no_python",
        ]
        if self.trial and (npc := self.npc):
            jobs = options.read(self.recipe, options.XlaOptions).jobs
            command = [npc, facts.NPC_PARALLEL_OPTION, str(jobs), *command]
        # Neither of them passes a kill on to all that it started.
        return [*SUBREAPER, *command]

    def _rendezvous(self) -> list[str]:
        nodes = self.recipe.parallel.nodes
        if nodes == 1:  # a free port: two runs on one host must not meet
            return ["--nnodes=1", "--master_addr=127.0.0.1", f"--master_port={_free_port()}"]
        node = self.node
        return [
            f"--nnodes={nodes}",
            f"--node_rank={node.rank}",
            f"--master_addr={node.address}",
            f"--master_port={node.port}",
        ]


def _path() -> str:
    """PATH with this environment's tools, whose compiler is the one of the key, and goes before another SDK's.

    The wrapper looks the compiler up there, also where cachekit was started by its full path.
    """
    path, tools = os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
    before = f"{tools}{os.pathsep}{path}"
    own = shutil.which(facts.COMPILER, path=before) == shutil.which(facts.COMPILER, path=path)
    return path if own and tools in path.split(os.pathsep) else before


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
