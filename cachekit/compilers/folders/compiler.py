"""A declared cache on this machine: its fingerprint, variables and entries, and what a run did to its folder."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from msgspec import structs

from cachekit import host
from cachekit.compilers.folders.adapter import Declaration
from cachekit.compilers.port import UNTOLD, Observed, Run, Watch
from cachekit.compilers.tree import TreeCompiler, TreeWatch
from cachekit.errors import CompilerUnavailableError, UsageError
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint


class FolderCompiler(TreeCompiler):
    """A declared cache on this machine."""

    # Commands have no layers or batches that anybody knows of.
    growth = Growth(layers=0.0, tokens=0.0, width=0.0, source="the estimate is the command's own earlier time")

    def __init__(self, declared: Declaration) -> None:
        self.declared = declared
        self.name = declared.name

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        said = self.declared
        if recipe is not None and not bare:
            raise UsageError(
                f"{self.name} cannot train recipes",
                cause=f"cachekit manages the cache of {self.name} for your own commands only",
                hint="cachekit run -- python train.py, or use another --compiler",
            )
        version = host.optional_version(said.package)
        if not version:
            raise CompilerUnavailableError(f"{said.package} is not installed", hint=said.install)
        packages = {name: found for name in said.toolchain if (found := host.optional_version(name))}
        with_gpu = [packages[name] for name in said.gpu if name in packages]
        return Fingerprint(
            compiler=self.name,
            directory=f"{said.prefix}{version}",
            toolchain={said.package: version, **packages},
            target={**host.processor(), **(host.gpu(with_gpu[0]) if with_gpu else {})},
            soft={name: found for name in said.soft if (found := host.optional_version(name))},
            bf16=False,
        )

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        return {"environment": self.declared.environment(os.environ)}

    def watch(self, run: Run) -> Watch:
        return FolderWatch(self, run)

    def unit(self, path: str) -> str:
        return self.declared.unit(path)

    def units(self, cache_dir: Path) -> dict[str, list[str]]:
        """The entries; a file that only stands beside an entry that is gone is none."""
        return {unit: files for unit, files in super().units(cache_dir).items() if unit in files}

    def tells(self, path: str) -> bool:
        return path.endswith(self.declared.entry)

    def torn(self, path: Path) -> bool:
        """An entry that its process did not write to its end."""
        return self.declared.packed and self.tells(path.name) and not whole(path)


class FolderWatch(TreeWatch):
    """One run of a user's own command."""

    def __init__(self, compiler: FolderCompiler, run: Run) -> None:
        said = compiler.declared
        super().__init__(compiler, run, {**said.set, said.variable: str(run.cache_dir)})
        self._said = said
        self._kept = run.found and bool(run.restored)  # by earlier runs of the same command

    def observed(self, told: Observed = UNTOLD) -> Observed:
        seen = super().observed(told)
        new = self._new()
        took = sum(seconds(self._root / name, self._said.seconds) for name in new) if self._said.seconds else 0
        unfound = seen.exact and not seen.found
        inert = unfound and bool(new) and self._kept
        note = self._said.inert if inert else self._said.untouched if unfound and not new else ""
        return structs.replace(
            seen,
            compile_seconds=float(took),
            timed=bool(self._said.seconds),
            notes=(*seen.notes, note) if note else seen.notes,
            inert=inert,
        )


ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how a frame begins: RFC 8878, 3.1.1
PIECE = 1 << 16  # bytes read at once: zlib makes at most 64 MiB of them


class BrokenStreamError(ValueError):
    """The stream is damaged or ends too early, or nothing is installed that unpacks it."""


def unpack(source: IO[bytes], size: int) -> Iterator[bytes]:
    """The unpacked bytes of a stream of that size, in pieces.

    Raises:
        BrokenStreamError: The stream is not whole.
        OSError: The source cannot be read.
    """
    data = source.read(min(size, PIECE))
    unpacking, broken = _unpacker(data)
    left = size - len(data)
    try:
        while data:
            if piece := unpacking.decompress(data):
                yield piece
            if unpacking.eof:
                return
            data = source.read(min(left, PIECE))
            left -= len(data)
    except broken as error:
        raise BrokenStreamError(str(error)) from error
    raise BrokenStreamError("it ends in the middle")


def _unpacker(data: bytes) -> tuple[Any, type[Exception]]:
    """What unpacks a stream that begins so, and what it raises if the stream is damaged."""
    if not data.startswith(ZSTANDARD):
        return zlib.decompressobj(), zlib.error
    try:
        import zstandard  # whoever wrote the entry has it in this environment
    except ImportError as error:
        raise BrokenStreamError("Zstandard compressed it, and the package zstandard is not installed") from error
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def seconds(path: Path, width: int) -> int:
    """What compiling an entry took, as its first bytes say, which are so many; 0 if they cannot be read."""
    try:
        with path.open("rb") as source:
            head = next(unpack(source, path.stat().st_size), b"")[:width]
    except (BrokenStreamError, OSError):
        return 0
    return int.from_bytes(head, "big") if len(head) == width else 0


def whole(path: Path) -> bool:
    """Whether an entry comes to its end; False if it cannot be read."""
    try:
        with path.open("rb") as source:
            for _ in unpack(source, path.stat().st_size):
                pass
    except (BrokenStreamError, OSError):
        return False
    return True
