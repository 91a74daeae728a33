"""The PJRT plugin's part: every graph that XLA compiles goes through the Neuron cache first.

Stands in for `libneuronpjrt.so`, which torch_xla calls to compile a graph. Here XLA's CPU client compiles and runs
the graphs, and writes each of them down as it does (XLA_FLAGS --xla_dump_to): that catches every compile, of a marked
step or of a value that was asked for, and no other. As soon as Python has the word again, the graph is looked up,
compiled or extracted as on Neuron; so the lines, files, waits and failures are those of a Neuron run, an instant
later. Invented: the graph's hash (the real algorithm is not public): SHA-256 of the HLO text without names and
metadata. Zeros as results of a run that only extracts graphs are documented; they are a knob here (`trial_zeros`).

XLA's CPU client knows of one worker only, so workers exchange nothing here; but they meet where torch_xla says that
they do (`rendezvous`), by torchrun's own store. Each takes itself for the first, and deletes older checkpoints: one
that were an epoch ahead of another would lose its newest to that one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuronxcc import knobs

from libneuronxla import neuron_cc_wrapper

# Graphs are dumped before anything is done to them, so what the CPU's compiler makes of them does not matter: the last
# two make it four times as fast.
DUMP_FLAGS = (
    "--xla_dump_hlo_as_proto --xla_dump_hlo_as_text "
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)
EXECUTING = ("_xla_step_marker", "_xla_sync_multi", "_xla_sync_live_tensors", "_xla_warm_up_cache", "_run_cached_graph")
READING = ("item", "cpu", "to", "numpy", "tolist", "__bool__", "__int__", "__float__", "__index__", "__repr__")


class Plugin:
    """The graphs of this process."""

    def __init__(self, folder: Path, compiled: Callable[[], int]) -> None:
        self._folder = folder
        self._compiled = compiled  # how many graphs XLA says to have compiled: cheaper to ask than a folder to list
        self._seen = 0
        self._done: set[str] = set()
        self._lock = threading.RLock()

    def catch_up(self) -> None:
        """Take every graph that XLA compiled since the last call to the cache."""
        count = self._compiled()
        if count == self._seen:
            return
        with self._lock:
            self._seen = count
            for path in sorted(self._folder.glob("*.before_optimizations.txt")):
                if path.name not in self._done:
                    self._done.add(path.name)
                    self._take(path)

    def _take(self, text: Path) -> None:
        stem = text.name.removesuffix(".before_optimizations.txt")
        graph = module(text.with_name(f"{stem}.before_optimizations.hlo.pb").read_bytes())
        digest = graph_hash(text.read_text())
        for other in self._folder.glob(f"{stem}.*"):
            other.unlink()
        copy = neuron_cc_wrapper.neuron_xla_compile(graph, digest)
        if copy is not None:
            neuron_cc_wrapper.load(copy, graph)


def graph_hash(text: str) -> str:
    """The graph's part of an entry's name: a decimal of 64 bits, the same in every process."""
    plain = re.sub(r", metadata=\{[^}]*\}", "", text)
    plain = re.sub(r"SyncTensorsGraph\.\d+|IrToHlo\.\d+", "graph", plain)
    return str(int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big"))


def module(dump: bytes) -> bytes:
    """The HloModuleProto in a dumped HloProto (its field 1), without the number that differs in each process."""
    found = next(value for number, _, value in _fields(dump) if number == 1)
    # Field 5 of a module is its id.
    return b"".join(raw for number, raw, _ in _fields(found) if number != 5)


def _fields(message: bytes) -> Any:
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(message, at)
            value = b""
        elif kind == 2:
            length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        else:
            value = b""
            at += {1: 8, 5: 4}[kind]
        yield tag >> 3, message[start:at], value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


class Meeting:
    """Where the workers of one torchrun wait for each other."""

    def __init__(self) -> None:
        self._store: Any = None
        self._count, self._met = 1, 0

    def make_them_meet(self) -> None:
        """Make torch_xla's rendezvous wait; called once it is imported."""
        if self._store is not None or "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
            return
        module = sys.modules.get("torch_xla.core.xla_model")
        if module is None:
            return
        from torch.distributed import TCPStore

        self._count = int(os.environ["WORLD_SIZE"])
        self._store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, is_master=False)
        alone: Callable[..., Any] = module.rendezvous

        def rendezvous(tag: str, *args: Any, **kwargs: Any) -> Any:
            self._met += 1
            name = f"neuron-sdk/{self._met}/{tag}"
            self._store.add(name, 1)
            while self._store.add(name, 0) < self._count:
                time.sleep(0.01)
            return alone(tag, *args, **kwargs)

        module.rendezvous = rendezvous


def install() -> None:
    """Put the plugin between torch_xla and XLA; called by `torch_neuronx.xla.init()` as torch_xla is imported."""
    import _XLAC
    import torch

    if os.environ.get("PJRT_DEVICE", "NEURON") == "NEURON":
        os.environ["PJRT_DEVICE"] = "CPU"
    folder = Path(tempfile.mkdtemp(prefix="neuron-sdk-graphs-"))
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder} {DUMP_FLAGS}".strip()
    owner = os.getpid()

    plugin = Plugin(folder, lambda: _XLAC._xla_counter_value("UncachedCompile") or 0)
    zeros = os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1" and knobs.read().get("trial_zeros", False)

    meeting = Meeting()

    def caught_up(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            meeting.make_them_meet()
            try:
                return function(*args, **kwargs)
            finally:
                plugin.catch_up()

        return call

    def read(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            device = tensor.device.type
            result = function(tensor, *args, **kwargs)
            if device == "xla":
                plugin.catch_up()
                if zeros:
                    return _zero(result)
            return result

        return call

    def _zero(result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return torch.zeros_like(result) if result.device.type == "cpu" else result
        return type(result)(0) if isinstance(result, int | float) else result

    for name in EXECUTING:
        setattr(_XLAC, name, caught_up(getattr(_XLAC, name)))
    for name in READING:
        setattr(torch.Tensor, name, read(getattr(torch.Tensor, name)))

    @atexit.register
    def leave() -> None:
        if os.getpid() == owner:
            try:
                plugin.catch_up()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1" and knobs.read().get("trial_hangs"):
            while True:
                time.sleep(3600)
