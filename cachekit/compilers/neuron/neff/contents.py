"""What the members of a NEFF's tar say: compiler, target chip, cores, features, inputs and outputs.

Every field may be missing or of another type than in the files seen so far: it is then left empty, and a note says so
where it matters. Only contradictions are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff.container import NeffError, plain
from cachekit.compilers.neuron.neff.members import DEFAULT, Limits, Member
from cachekit.compilers.neuron.neff.watch_name import NameWatch

MOST_NAMES = 1_000  # subgraphs or features that are told apart; real files have two and a dozen
MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of the graph."""

    name: str
    dtype: str = ""  # as the compiler spells it: float32, bfloat16; empty where only the size is known
    shape: tuple[int, ...] | None = None  # None where only the size is known
    bytes: int | None = None  # None where the NEFF does not say

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
            "bytes": self.bytes,
        }


@dataclass(slots=True)
class _Variables:
    """Inputs and outputs from one source."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


class Contents:
    """Collects what the members say, in whatever order they come."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._left = limits.documents
        self._seen: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._from_map = _Variables()
        self._from_definition = _Variables()
        self._graph = _Variables()
        self.compiler = ""
        self.name = ""
        self.targets: list[str] = []
        self.untold = 0  # kelfs that do not say their target
        self.revision = ""
        self.subgraphs: dict[str, None] = {}
        self.features: set[str] = set()
        self.ranks = 0
        self.has_graph = False
        self.has_info = False
        self.notes: list[str] = []

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """From the best source that has any."""
        return self._with_sizes(self._best().inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """From the best source that has any."""
        return self._with_sizes(self._best().outputs)

    def wants(self, name: str) -> bool:
        """Whether a member's body is worth reading whole."""
        return (
            name in {facts.NEFF_INFO, facts.NEFF_GRAPH}
            or facts.NEFF_KELF.fullmatch(name) is not None
            or facts.NEFF_DEFINITION.fullmatch(name) is not None
            or (facts.NEFF_TENSOR_MAP.fullmatch(name) is not None and not self._from_map)
        )

    def kelf(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Look for the target of a kelf, however large it is, while its pieces pass.

        Raises:
            NeffError: It has another target than one before it.
        """
        watch = NameWatch(facts.NEFF_KELF_TARGET)
        self.untold += 1  # it stays so where the file is not followed to the kelf's end
        for piece in pieces:
            watch.feed(piece)
            yield piece
        told = [value for value in watch.values if value is not None]
        self.untold -= bool(watch.whole and told and len(told) == len(watch.values))
        for target in map(_word, told):
            if target not in self.targets:
                self.targets.append(target)
        if len(self.targets) > 1:
            words = " and ".join(target or "an empty one" for target in self.targets)
            raise NeffError(f"it has two targets: {words}", damaged=False)

    def take(self, member: Member, body: bytes | None) -> None:
        """Read a member that was wanted.

        Args:
            member: Which.
            body: All of it, or None where it is larger than we read.

        Raises:
            NeffError: It contradicts what was read before.
        """
        name = member.name
        if body is None or len(body) > self._left:
            self._note(f"{plain(name)} is too large to be read ({member.size} bytes)")
            return
        self._left -= len(body)
        # The runtime keeps one of two; which, we do not know.
        digest = hashlib.sha256(body).digest()
        if self._seen.setdefault(name, digest) != digest:
            raise NeffError(f"it has two different {plain(name)}", damaged=False)
        try:
            document = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # the first is no ValueError before 0.20
            self._note(f"{plain(name)} is no JSON: {plain(str(error), 80)}")
            self.untold += facts.NEFF_KELF.fullmatch(name) is not None
            return
        if not isinstance(document, dict):
            self._note(f"{plain(name)} is not an object")
        elif name == facts.NEFF_INFO:
            self._info(document)
        elif name == facts.NEFF_GRAPH:
            self._graph = _graph(document)
            self.has_graph = True
        elif facts.NEFF_KELF.fullmatch(name):
            self._graphs(document)
        elif (found := facts.NEFF_DEFINITION.fullmatch(name)) is not None:
            self._definition(found.group(1), document)
        else:
            self._from_map = self._from_map or _tensor_map(document)

    def _note(self, words: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(words)

    def _info(self, document: dict[str, Any]) -> None:
        self.has_info = True
        self.compiler = _word(document.get("tool_version"))
        self.name = _word(document.get("name"), longest=4096)

    def _graphs(self, document: dict[str, Any]) -> None:
        self.revision = self.revision or _word(document.get("revision"))
        for graph in _list(document.get("graphs")):
            self._subgraph(_word(graph.get("name")) if isinstance(graph, dict) else "")

    def _subgraph(self, name: str) -> None:
        if name and len(self.subgraphs) < MOST_NAMES:
            self.subgraphs[name] = None

    def _definition(self, subgraph: str, document: dict[str, Any]) -> None:
        self._subgraph(subgraph)
        for feature in _list(document.get("neff_features")):
            if len(self.features) < MOST_NAMES:
                self.features.add(_word(feature).removeprefix(facts.NEFF_FEATURE_PREFIX))
        self.features.discard("")
        self.ranks = max(self.ranks, _whole(document.get(facts.NEFF_RANKS)) or 0)
        found = _Variables()
        for name, variable in _dict(document.get("var")).items():
            kind = _word(_dict(variable).get("type"))
            if kind in {"input", "output"}:
                tensor = Tensor(plain(name), bytes=_whole(variable.get("size")))
                (found.inputs if kind == "input" else found.outputs).append(tensor)
        for tensor in found.inputs + found.outputs:
            if tensor.bytes is not None:
                self._sizes[tensor.name] = tensor.bytes
        self._from_definition = self._from_definition or found

    def _best(self) -> _Variables:
        return self._graph or self._from_map or self._from_definition

    def _with_sizes(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(tensor.name, tensor.dtype, tensor.shape, self._sizes.get(tensor.name, tensor.bytes))
            for tensor in tensors
        )


def _graph(document: dict[str, Any]) -> _Variables:
    """Inputs and outputs out of neff.json: a graph in TVM's JSON, with all shapes in one list, entry by entry."""
    attributes = _dict(document.get("attrs"))
    shapes, dtypes = _tagged(attributes.get("shape")), _tagged(attributes.get("dltype"))
    nodes = _list(document.get("nodes"))
    starts = _list(document.get("node_row_ptr"))
    signature = _dict(_dict(_dict(document.get("metadata")).get("signatures")).get("default"))

    def entry(reference: Any) -> Tensor | None:
        pair = _list(reference)
        node = _at(nodes, pair[0] if pair else None)
        output = pair[1] if len(pair) > 1 else 0
        name = _word(_at(_list(_dict(node).get("output_names")), output)) or _word(_dict(node).get("name"))
        first = _whole(_at(starts, pair[0] if pair else None))
        at = None if first is None or _whole(output) is None else first + output
        return Tensor(name, _word(_at(dtypes, at)), _shape(_at(shapes, at))) if name else None

    def signed(kind: str) -> list[Tensor]:
        return [
            Tensor(plain(name), _word(_dict(value).get("dtype")), _shape(_dict(value).get("shape")))
            for name, value in _dict(signature.get(kind)).items()
        ]

    found = _Variables(signed("inputs"), signed("outputs"))
    if not found.inputs:
        found.inputs = _distinct(entry([node, 0]) for node in _list(document.get("arg_nodes")))
    if not found.outputs:
        # One head for each core where several make one logical core: the same output again.
        found.outputs = _distinct(entry(head) for head in _list(document.get("heads")))
    return found


def _tensor_map(document: dict[str, Any]) -> _Variables:
    found = _Variables()
    for name, value in document.items():
        kind = _word(_dict(value).get("kind"))
        if kind in {"input", "output"}:
            tensor = Tensor(plain(name), _word(value.get("dtype")), _shape(value.get("tf_shape")))
            (found.inputs if kind == "input" else found.outputs).append(tensor)
    return found


def _distinct(tensors: Any) -> list[Tensor]:
    return list(dict.fromkeys(tensor for tensor in tensors if tensor is not None))


def _word(value: Any, longest: int = 256) -> str:
    return plain(value, longest) if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:  # noqa: PLR2004
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _shape(value: Any) -> tuple[int, ...] | None:
    sizes = [_whole(size) for size in value] if isinstance(value, list) and len(value) <= 64 else [None]  # noqa: PLR2004
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _at(values: list[Any], index: Any) -> Any:
    whole = _whole(index)
    return values[whole] if whole is not None and whole < len(values) else None


def _tagged(value: Any) -> list[Any]:
    """The list in TVM's ["list_shape", [...]]."""
    pair = _list(value)
    return _list(pair[1]) if len(pair) == 2 else pair  # noqa: PLR2004
