"""Neuron caches to test on: modules in every state, with NEFFs whose header and digest are right."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path

import pytest

from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.flags import flags_hash
from cachekit.compilers.neuron.modules import collect
from cachekit.compilers.neuron.neff import read

COMPILER = "neuronxcc-2.26.6360.0+6f180f47"
OTHER = "neuronxcc-2.21.33363.0+82129205"
FLAGS = ["--target=trn1", "--model-type", "transformer"]
FILES = {
    "success": ("model.neff", "model.done", "model.hlo_module.pb", "compile_flags.json"),
    "failed": ("model.log", "model.hlo_module.pb", "compile_flags.json"),
    "locked": ("model.hlo_module.pb.lock", "model.hlo_module.pb", "compile_flags.json"),
    "empty": ("model.hlo_module.pb", "compile_flags.json"),
    "done-without-neff": ("model.done",),
    "neff-without-done": ("model.neff", "model.hlo_module.pb", "compile_flags.json"),
}


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def neff(seed: int = 0, size: int = 3000) -> bytes:
    """A NEFF as far as its container goes: header, digest, payload."""
    data = random.Random(seed).randbytes(size)
    data += b"\0" * (-len(data) % 10240)
    head = bytearray(1024)
    head[:40] = struct.pack("<5Q", 2, 1024, len(data), 2, 0)
    head[172:188] = hashlib.md5(data).digest()
    return bytes(head) + data


def check(path: Path, _: object = None) -> str | None:
    """The judge of the NEFFs made here."""
    raw = path.read_bytes()
    if len(raw) < 1024 or raw[172:188] != hashlib.md5(raw[1024:]).digest():
        return "its digest does not match"
    return None


def contents(name: str, seed: int) -> bytes:
    """What a file of a module holds."""
    if name == "model.neff":
        return neff(seed)
    if name == "compile_flags.json":
        return json.dumps(FLAGS).encode()
    if name == "model.log":
        return b"Failed compilation with ['neuronx-cc']:\n2026 [ERROR] [NCC_EOOM002] too big\n[libneuronxla 2]\n"
    return b"" if name.endswith((".done", ".lock")) else f"graph {seed}".encode()


def module_name(seed: int) -> str:
    """The name of a module that was compiled with FLAGS."""
    return f"MODULE_{10**18 + seed}+{flags_hash(FLAGS)}"


def make(root: Path, state: str = "success", seed: int = 0, compiler: str = COMPILER, name: str = "") -> Path:
    """A module in some state."""
    folder = root / compiler / (name or module_name(seed))
    folder.mkdir(parents=True)
    for file in FILES[state]:
        (folder / file).write_bytes(contents(file, seed))
    return folder


def make_real(root: Path, path: Path, seed: int = 0) -> Path:
    """A finished module around a real NEFF: of its compiler, its target, and its own name where it tells one."""
    found = read(path)
    folder = make(root, seed=seed, compiler=f"neuronxcc-{found.compiler}", name=found.module if seed < 90 else "")
    (folder / "model.neff").write_bytes(path.read_bytes())
    (folder / "compile_flags.json").write_text(json.dumps([f"--target={found.chip}"]))
    return folder


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a cache, by path; what `store.staying` notes beside them is none."""
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".notes-of-cachekit-")}


def entry_of(folder: Path):
    """A module as the scan sees it."""
    return next(entry for entry in scan(folder.parent.parent).entries if entry.path == folder)


def taken(root: Path, workspace: Path, judge=check):
    """What is taken of all that lies in a root."""
    return collect(scan(root).entries, workspace, judge)


def files_of(module, harvest) -> list[Path]:
    """A module's files, in its order."""
    return [harvest.files[file.sha256] for file in module.files]


def one(folder: Path, workspace: Path, seed: int = 0):
    """A module as a record has it, and its files."""
    source = folder / f"source-{seed}"
    make(source, seed=seed)
    harvest = taken(source, workspace).harvest
    return harvest.modules[0], files_of(harvest.modules[0], harvest)


def clean(root: Path) -> bool:
    """Nothing unfinished of ours lies in a root."""
    return not [path for path in root.rglob("*") if path.name.startswith(".cachekit-")]
