"""Why a module was not among the recorded ones, told by its name: `neuronxcc-<version>/MODULE_<graph>+<flags>`.

Neuron looks for exactly this name. Which of its parts is not the recorded one says where to look: at the compiler's
version, at the flags, or at the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cachekit.compilers.neuron import facts, flags

Relation = Literal["recorded", "compiler", "flags", "graph", "both", "first", "unknown"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a module that compiled differs from the recorded ones.

    Attributes:
        relation: What of its name is new; `recorded` is nothing at all, `first` means that nothing was recorded.
        near: Recorded modules that share the rest of its name.
        words: Sentences.
    """

    relation: Relation
    near: tuple[str, ...]
    words: tuple[str, ...]


def explain(name: str, recorded: Iterable[str], words: Mapping[str, Sequence[str]] | None = None) -> Difference:
    """Compare a module's name with those of a record.

    Args:
        name: The module.
        recorded: The record's modules, without those that this run added.
        words: Flags by module, where they are known.
    """
    known = sorted(set(recorded))
    folder, _, module = name.partition("/")
    match = facts.MODULE_DIRECTORY.fullmatch(module)
    if match is None:
        return Difference("unknown", (), ("its name is none that Neuron is known to give",))
    if not known:
        return Difference("first", (), ("nothing was recorded before it",))
    if name in known:
        return Difference("recorded", (name,), ("the record has it: it was not where Neuron looked, or not taken",))
    if same := tuple(other for other in known if other.partition("/")[2] == module):
        there = ", ".join(dict.fromkeys(other.partition("/")[0] for other in same))
        return Difference("compiler", same, (f"recorded for {there}, and this is {folder}",))
    parts = {other: facts.MODULE_DIRECTORY.fullmatch(other.partition("/")[2]) for other in known}
    graph = tuple(other for other, part in parts.items() if part and part["graph"] == match["graph"])
    alike = tuple(other for other, part in parts.items() if part and part["flags"] == match["flags"])
    if graph:
        hashes = ", ".join(dict.fromkeys((part["flags"] or "none") for o in graph if (part := parts[o])))
        said = [f"the graph is recorded; the flags differ: {hashes} in the record, {match['flags'] or 'none'} now"]
        before, now = (words or {}).get(graph[0]), (words or {}).get(name)
        if before is not None and now is not None:
            said += flags.explain(before, now, ("the record", "this run"))
        return Difference("flags", graph, tuple(said))
    if alike:
        said = ["the flags are the recorded ones; the graph is new: a shape, a constant, or what traces it"]
        return Difference("graph", alike, tuple(said))
    return Difference("both", (), ("neither its graph nor its flags are recorded",))
