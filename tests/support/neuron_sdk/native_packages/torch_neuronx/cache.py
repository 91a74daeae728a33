"""The cache of NEFFs: `<root>/ab/cd/<32 hex>.neff`, written as `.tmp.XXXXXX` and renamed.

The name is a digest of the graph, the target, the level of optimization and the flags; the compiler's version is not in
it. One process compiles a graph: the others wait for a lock of the kernel's, in a folder of their own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from torch_neuronx import metrics

DEFAULT_ROOT, DEFAULT_LOCAL = "/tmp/neff_cache", "/tmp/local_cache"
TARGET = "trn2"


def disabled() -> bool:
    """Whether nothing is to be kept."""
    return os.environ.get("TORCH_NEURONX_NEFF_DISABLE_CACHE", "").lower() in {"1", "true", "yes"}


def root() -> Path:
    """Where NEFFs are kept."""
    return Path(os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or DEFAULT_ROOT)


def key(graph: str) -> str:
    """A graph's name."""
    text = [graph, TARGET, os.environ.get("NEURON_COMPILER_OPT_LEVEL", ""), os.environ.get("NEURON_CC_FLAGS", "")]
    return hashlib.md5(repr(text).encode()).hexdigest()


def path_of(name: str) -> Path:
    """Where a graph's NEFF is."""
    return root() / name[:2] / name[2:4] / f"{name}.neff"


def write(path: Path, data: bytes) -> None:
    """Put a NEFF in its place, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=".tmp.", dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(fresh).rename(path)


def load(graph: str) -> bytes:
    """A graph's NEFF, from the cache or compiled now."""
    path = path_of(key(graph))
    if disabled():
        return compiled(graph)
    local = Path(os.environ.get("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR") or DEFAULT_LOCAL) / "locks"
    local.mkdir(parents=True, exist_ok=True)
    with (local / f"{path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            metrics.count("CompilationCache.PersistentHits")
            return path.read_bytes()
        data = compiled(graph)
        write(path, data)
        return data


def compiled(graph: str) -> bytes:
    """Have the compiler make a graph's NEFF."""
    metrics.count("CompilationCache.TotalCompilations")
    debug = Path(os.environ.get("TORCH_NEURONX_DEBUG_DIR") or Path(tempfile.gettempdir(), "neuron_backend"))
    debug.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=debug) as folder:
        source, made = Path(folder, "graph.mlir"), Path(folder, "graph.neff")
        source.write_text(graph)
        flags = shlex.split(os.environ.get("NEURON_CC_FLAGS", ""))
        if any(flag.startswith("--cachekit") for flag in flags):
            sys.exit("[ERROR] [NCC_EARG001] Illegal argument(s) found")
        command = ["neuronx-cc", "compile", str(source), "--framework=XLA", f"--target={TARGET}", "--output", str(made)]
        subprocess.run([*command, *flags], check=True)
        return made.read_bytes()
