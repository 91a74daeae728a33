"""What compiled graphs say of themselves, for people: a file, the modules of a record, and two builds of a graph."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from cachekit.compilers.graphs import CompiledFile, GraphSummary
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff import NeffError, read, read_header
from cachekit.compilers.neuron.neff.container import module_in, payload_of
from cachekit.compilers.neuron.neff.members import Tally, Unpacked, members
from cachekit.files import digest_of
from cachekit.store.record import File, Module
from cachekit.text import cause_of, one_line

LOOKED_AT = 256 << 20  # bytes of NEFFs that `modules` reads
LOOKED_INTO = 1_000  # and NEFFs, each of which takes a millisecond


def modules(several: Sequence[Module], path: Callable[[File], Path]) -> dict[str, GraphSummary]:
    """What the NEFFs of modules are, by module, as far as `LOOKED_AT` and `LOOKED_INTO` go."""
    found: dict[str, GraphSummary] = {}
    left = LOOKED_AT
    for module in several:
        for one in module.files:
            if one.path != facts.NEFF or one.size > left or len(found) >= LOOKED_INTO:
                continue
            left -= one.size
            found[module.name] = _summary(file(path(one), leaks=False))
    return found


def _summary(said: CompiledFile) -> GraphSummary:
    graph = said.graph
    if graph is None:
        return GraphSummary(said.state, said.reason)
    return GraphSummary(
        said.state,
        inputs=len(graph.inputs),
        outputs=len(graph.outputs),
        compiler=graph.compiler,
        target=graph.target,
        chip=graph.chip,
        lnc=graph.lnc,
        built=graph.built,
    )


def file(path: Path, *, leaks: bool = True) -> CompiledFile:
    """A file's state and, where it is a NEFF, all that it says; see `Adapter.describe`."""
    name = one_line(str(path))
    try:
        if path.exists() and not path.is_file():
            return CompiledFile(name, "absent", "it is a folder" if path.is_dir() else "it is not a regular file")
        graph = read(path, leaks=leaks)
    except NeffError as error:
        return CompiledFile(name, "damaged" if error.damaged else "unknown", error.reason, _module(path))
    except OSError as error:
        return CompiledFile(name, "absent", cause_of(error).lower())
    return CompiledFile(name, "verified", module=graph.module, graph=graph)


def _module(path: Path) -> str:
    """Which module a damaged file belongs to, where its header can still be read or its folder says so."""
    try:
        header = read_header(path)
    except (NeffError, OSError):
        return module_in(str(path.absolute()))
    return module_in(header.name, cut=header.name_is_cut) or module_in(str(path.absolute()))


def contents(neff: Path) -> tuple[tuple[str, str], ...]:
    """The names and digests of what a NEFF has in it, to compare two builds of a graph; else the digest of its bytes.

    A NEFF's header has a random UUID and the path where it was made, so that no two are the same bytes. Of a real
    compiler nobody here has seen two builds: a difference is told, and a person judges.
    """
    try:
        with payload_of(neff) as payload:
            found = [(one.name, digest_of(one.pieces())[0]) for one in members(Unpacked(payload), Tally())]
    except (NeffError, OSError):
        return (("", hashlib.sha256(neff.read_bytes()).hexdigest()),)
    return tuple(sorted(found))
