"""vLLM-Neuron's own cache, which is only looked at: which of its entries are finished, by their mark.

An entry is not carried: it names kernels of NKI by their paths, and its key leaves their source out (`facts`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from cachekit import disk
from cachekit.compilers.neuron import facts
from cachekit.errors import UsageError


class VllmEntry(Struct, frozen=True):
    """A compiled graph, or what a compile left of one."""

    path: Path
    marked: bool  # vLLM takes it for a hit
    damage: str = ""  # why it should not


def folders() -> list[Path]:
    """The folders of entries on this host, of vLLM's own and of its library's alone."""
    found = []
    for name, usual in facts.VLLM_ROOTS.items():
        with suppress(UsageError):  # the machine knows no such home directory: vLLM has nothing there either
            folder = disk.named(os.environ.get(name) or usual) / facts.VLLM_FOLDER
            found += [folder] if folder.is_dir() else []
    return found


def entries(folder: Path) -> Iterator[VllmEntry]:
    """The entries of a folder; what is called otherwise is none."""
    for path in sorted(folder.iterdir()):
        if facts.VLLM_ENTRY.fullmatch(path.name) and path.is_dir():
            mark = path / facts.VLLM_MARK
            yield VllmEntry(path, mark.exists(), _damage(path, mark))


def _damage(entry: Path, mark: Path) -> str:
    """The mark says how large the graph must be."""
    with suppress(OSError):
        said = facts.VLLM_SIZE.search(mark.read_text("utf-8", "replace"))
        sizes = [path.stat().st_size for path in entry.glob(facts.VLLM_GRAPH)]
        if said and sizes != [int(said["size"])]:
            return f"its graph has {sum(sizes)} bytes, and its mark says {said['size']}"
    return ""
