"""Kernels of NKI: compiled by it while a graph is traced, in a folder of its own, and named in the graph by their path.

    /var/tmp/nki-intermediate-cache/71adab98b5b4ec7f/attention.colz

A graph without them does not compile (NCC_EVRF059), so they travel with its module, as `kernel-<hash of the path>`: no
name in a record says where one goes, only the graph does. NKI lets every user of a host write to its folder; what a run
of ours uses lies in one that is this user's alone, and what lies there already is told by its bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mmap
import os
import stat
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cachekit import private
from cachekit.compilers.neuron import facts, native
from cachekit.errors import IntegrityError, UsageError
from cachekit.files import digest_of, noted, opened, pieces, replace, written
from cachekit.health import of_others
from cachekit.private import NotPrivateError, private_folder
from cachekit.store.record import File, Module
from cachekit.text import cause_of, cut


def folder() -> Path:
    """Where NKI keeps its kernels: as this shell says, or by default; `/a//b` is spelled `/a/b`."""
    said = os.environ.get(facts.NKI_COMPILE_CACHE) or facts.NKI_DEFAULT_FOLDER
    return Path(f"/{said.lstrip('/')}" if said.startswith("/") else said)  # `//a` is another path to pathlib


def named_in(variables: Mapping[str, str]) -> dict[str, str]:
    """These variables of this shell with the folder as graphs have it; without it where that is the default."""
    rest = {name: value for name, value in variables.items() if name != facts.NKI_COMPILE_CACHE}
    chosen = facts.NKI_COMPILE_CACHE in variables and folder() != Path(facts.NKI_DEFAULT_FOLDER)
    return rest | ({facts.NKI_COMPILE_CACHE: str(folder())} if chosen else {})


def check_folder() -> None:
    """See that nobody else can change the kernels that a run compiles into its graphs.

    Raises:
        UsageError: Somebody else can, and it is not this user's to close; or it is no folder of this host.
    """
    place, another = folder(), facts.NKI_OWN_FOLDER
    if not place.is_absolute():
        said = f"{facts.NKI_COMPILE_CACHE} is {place}, which is not the full path of a folder on this host"
        raise UsageError(said, hint=another)
    standing, theirs = private.obstacle(place), of_others(place)
    if standing or theirs:
        raise UsageError(
            f"NKI's folder of kernels {place} is not used: somebody else can change what is there",
            cause=standing.why if standing else f"{theirs} folders in it belong to another user",
            hint=(standing.mend if standing else "") or another,
        )


def named(graph: Path) -> list[str]:
    """The paths of the kernels in a graph, as it has them.

    Raises:
        OSError: It cannot be read.
    """
    found: dict[str, None] = {}
    with opened(graph) as source:
        if os.fstat(source.fileno()).st_size:
            with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                for config in _configs(raw):
                    kernel = config.get(facts.KERNEL)
                    path = kernel.get(facts.KERNEL_PATH) if isinstance(kernel, dict) else None
                    if isinstance(path, str):
                        found[path] = None
    return list(found)


def _configs(raw: mmap.mmap) -> Iterator[dict[str, Any]]:
    """What the calls of kernels in a graph say of themselves: JSON in base64, among the bytes of a protobuf."""
    if raw.find(facts.KERNEL_CALL) < 0:
        return
    for match in facts.KERNEL_CONFIG.finditer(raw):
        words = match[0][: len(match[0]) // 4 * 4]  # what follows may look like more of it
        with suppress(binascii.Error, ValueError, RecursionError):
            config, _ = json.JSONDecoder().raw_decode(base64.b64decode(words).decode("utf-8", "replace"))
            if isinstance(config, dict):
                yield config


def carried_as(path: str) -> str:
    """What a kernel is called among its module's files."""
    return f"kernel-{hashlib.sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def misplaced(path: str) -> str:
    """Why a kernel neither travels nor is put anywhere; empty where its path is one of NKI's folder."""
    place, said = f"{folder()}/", os.environ.get(facts.NKI_COMPILE_CACHE, "").rstrip("/")
    if said.startswith("/") and path.startswith(f"{said}/"):  # as a run without cachekit spelled it: `/a//b/`
        path = place + path.removeprefix(f"{said}/")
    below = path.removeprefix(place).split("/")
    plain = path.isprintable() and len(path) <= facts.KERNEL_LONGEST and not any(p[:1] in {"", "."} for p in below)
    plain = plain and not below[0].startswith(native.PREFIX)  # TorchNeuron's, whose graphs carry none
    if path.startswith(place) and plain and all(len(part.encode()) <= facts.KERNEL_PART for part in below):
        return ""
    return f"the graph names the kernel {cut(path, 200)!r}, which is not a file in {place} ({facts.NKI_COMPILE_CACHE})"


class _Placed(Struct, frozen=True):
    """A kernel that was put into NKI's folder, the module that it is for, and the root where that belongs."""

    path: str
    module: str
    root: str


def put(module: Module, files: Sequence[Path], root: Path) -> str:
    """Put the kernels of a module's graph where it names them; why that is not possible, or empty.

    Args:
        module: The module, which is to be put into a root.
        files: Its files, in the order of `module.files`.
        root: That root. What was put where is noted in NKI's folder, which all roots share.

    Raises:
        IntegrityError: The bytes of one are not those of the module.
        OSError: The folder cannot be written.
    """
    held = {file.path: (file, path) for file, path in zip(module.files, files, strict=True)}
    graph = next((held[name][1] for name in facts.HLO_FILES if name in held), None)
    kernels = {path: carried_as(path) for path in named(graph)} if graph else {}
    for path, name in kernels.items():
        if reason := misplaced(path):
            return reason
        if name not in held:
            return f"the graph names the kernel {path}, which did not come with it"
        if held[name][0].size > facts.KERNEL_LARGEST:  # a graph into which it is compiled would not carry it
            return f"the kernel {path} has more than {facts.KERNEL_LARGEST:,} bytes"
    for path, name in kernels.items():
        try:
            private_folder(folder())
            placed = _Placed(path, module.name, os.path.realpath(root))
            replace(private_folder(_notes()) / name, msgspec.json.encode(placed))
            _put(*held[name], Path(path))
        except NotPrivateError as error:
            return f"the kernel {path} cannot be put where the graph looks: {error.standing.why}"
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            return f"the kernel {path} cannot be put where the graph looks: {cause_of(error)}"
    return ""


def sweep(root: Path, withdrawn: Collection[str] = ()) -> None:
    """Remove the kernels whose modules are gone from a root: they may be somebody's who is not trusted any more.

    So go those that came into another root: nothing in this one tells whose they are, and NKI makes them again.

    Args:
        root: The root.
        withdrawn: Modules that were taken out of it now; another one may only be on its way into it.

    Raises:
        OSError: One cannot be removed.
    """
    for path in _notes().glob("kernel-*"):
        placed = noted(path, _Placed)
        if placed is None or misplaced(placed.path):
            continue
        here = placed.root == os.path.realpath(root)
        if here and (root / placed.module / path.name).exists():
            continue
        with suppress(FileNotFoundError):  # another run was quicker
            gone = not here or placed.module in withdrawn
            if gone or time.time() - path.stat().st_mtime > facts.LOCK_SETTLED:
                with suppress(IsADirectoryError, NotADirectoryError):  # not what was put there
                    Path(placed.path).unlink(missing_ok=True)
                path.unlink()


def _notes() -> Path:
    """Where it is noted which kernels were put into NKI's folder: in that, under a name that no graph can say."""
    return folder() / facts.OUR_FOLDER


def _put(file: File, source: Path, target: Path) -> None:
    place = private_folder(folder())
    for part in target.parent.relative_to(place).parts:
        place = private_folder(place / part)
    if _is_there(file, target):
        return
    fresh = place / f".{uuid.uuid4().hex}"
    try:
        with opened(source) as raw, open(fresh, "xb", opener=private.opened) as out:
            found = digest_of(written(pieces(raw, file.size + 1), out))
        if found != (file.sha256, file.size):
            raise IntegrityError(f"the kernel {target} is not what its record says", cause="its digest differs")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _is_there(file: File, target: Path) -> bool:
    """Whether the bytes lie there already, in a file that nobody else ever could open to write."""
    with suppress(OSError), opened(target, opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as raw:
        state = os.fstat(raw.fileno())
        mine = (
            state.st_uid == os.geteuid() and state.st_nlink == 1 and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )
        return mine and state.st_size == file.size and digest_of(pieces(raw)) == (file.sha256, file.size)
    return False
