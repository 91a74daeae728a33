"""What the members of a NEFF's tar say: compiler, target chip, cores, features, inputs and outputs.

Every field may be missing. A document of another form than in the files seen so far is left out, and a note says so.
Only contradictions are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from cachekit.compilers.graphs import Tensor
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff.container import NeffError, printable
from cachekit.compilers.neuron.neff.members import DEFAULT, NeffLimits, TarMember

MOST_NAMES = 1_000  # subgraphs or features that are told apart; real files have two and a dozen
MOST_NOTES = 20

Count = Annotated[int, Meta(ge=0)]
Shape = tuple[Count, ...]
Item = TypeVar("Item")


class Info(Struct, frozen=True):
    """The document `facts.NEFF_INFO`."""

    tool_version: str = ""
    name: str = ""


class Subgraph(Struct, frozen=True):
    """A subgraph in a kelf."""

    name: str = ""


class Kelf(Struct, frozen=True):
    """The document that says the chip; of a name that stands twice in it, the last one counts."""

    target: str | None = None
    revision: str = ""
    graphs: list[Subgraph] = []


class Variable(Struct, frozen=True):
    """A tensor in a subgraph's memory; `type` is `input` or `output`, or one that is no business of ours."""

    type: str = ""
    size: Count | None = None


class Definition(
    Struct, frozen=True, rename={"features": "neff_features", "ranks": facts.NEFF_RANKS, "variables": "var"}
):
    """The document of a subgraph."""

    features: list[str] = []
    ranks: Count = 0
    variables: dict[str, Variable] = {}


class Operation(Struct, frozen=True):
    """An operation of the graph: an input, or what runs on the device."""

    name: str = ""
    output_names: list[str] = []


class Attributes(Struct, frozen=True):
    """Of all outputs of all nodes, one after another; each list comes after a word that says what it holds."""

    shape: tuple[str, list[Shape]] = ("", [])
    dltype: tuple[str, list[str]] = ("", [])


class GraphFile(Struct, frozen=True):
    """The document `facts.NEFF_GRAPH`: a graph as TVM writes it. `node_row_ptr` has each node's first output."""

    nodes: list[Operation] = []
    arg_nodes: list[Count] = []
    heads: list[list[Count]] = []
    node_row_ptr: list[Count] = []
    attrs: Attributes = Attributes()

    def inputs(self) -> list[Tensor]:
        """What the arguments are."""
        return _distinct([self._tensor(node, 0) for node in self.arg_nodes])

    def outputs(self) -> list[Tensor]:
        """What comes out. There is one head for each core where several make one logical core: the same output."""
        return _distinct([self._tensor(head[0], head[1]) for head in self.heads if len(head) > 1])

    def _tensor(self, node: int, output: int) -> Tensor | None:
        described = _at(self.nodes, node)
        if described is None:
            return None
        name = _at(described.output_names, output) or described.name
        first = _at(self.node_row_ptr, node)
        if first is None:
            return Tensor(printable(name))
        dtype, shape = _at(self.attrs.dltype[1], first + output), _at(self.attrs.shape[1], first + output)
        return Tensor(printable(name), printable(dtype or ""), shape)


def _at(values: Sequence[Item], index: int) -> Item | None:
    return values[index] if index < len(values) else None


def _distinct(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return list(dict.fromkeys(tensor for tensor in tensors if tensor is not None and tensor.name))


def _form(name: str) -> type[Info | Kelf | Definition | GraphFile] | None:
    """The form of a member that is a document; None for every other."""
    if name == facts.NEFF_INFO:
        return Info
    if name == facts.NEFF_GRAPH:
        return GraphFile
    if facts.NEFF_KELF.fullmatch(name):
        return Kelf
    return Definition if facts.NEFF_DEFINITION.fullmatch(name) else None


class Contents:
    """Collects what the members say, in whatever order they come."""

    def __init__(self, limits: NeffLimits = DEFAULT) -> None:
        self._limits = limits
        self._left = limits.documents
        self._seen: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._defined: dict[str, list[Tensor]] = {}
        self._graph: GraphFile | None = None
        self._info: Info | None = None
        self.targets: list[str] = []
        self.untold = 0  # kelfs that do not say their target, or could not be read
        self.revision = ""
        self.subgraphs: set[str] = set()
        self.features: set[str] = set()
        self.ranks = 0
        self.notes: list[str] = []

    def __bool__(self) -> bool:
        """Whether there was anything of a NEFF."""
        return bool(self.targets or self.untold or self._info or self._graph)

    @property
    def told(self) -> bool:
        """Whether there is enough to describe a file that is not followed to its end."""
        return bool(self.targets or self._info)

    @property
    def compiler(self) -> str:
        """The compiler's version; empty where it is not said."""
        return printable(self._info.tool_version, 256) if self._info else ""

    @property
    def name(self) -> str:
        """What the compiler was given as --output; empty where it is not said."""
        return printable(self._info.name, 4096) if self._info else ""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Of the graph; where that is missing, of the first subgraph that has any."""
        return self._with_sizes(self._graph.inputs() if self._graph else self._defined.get("input", []))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Of the graph; where that is missing, of the first subgraph that has any."""
        return self._with_sizes(self._graph.outputs() if self._graph else self._defined.get("output", []))

    def wants(self, member: TarMember) -> bool:
        """Whether a member's body is worth reading whole."""
        return member.sound and _form(member.name) is not None

    def take(self, member: TarMember) -> bytes | None:
        """Read a member that is wanted; None where it is larger than we read, and then nothing of it was read.

        Raises:
            NeffError: It contradicts what was read before, or the file ends within it.
        """
        form, name = _form(member.name), printable(member.name)
        self.untold += form is Kelf  # it stays so where the file is not followed to the kelf's end
        if member.size > min(self._left, self._limits.documents if form is Kelf else self._limits.document):
            self._note(f"{name} is too large to be read ({member.size} bytes)")
            return None
        self._left -= member.size
        body = b"".join(member.pieces())
        # The runtime keeps one of two; which, we do not know.
        digest = hashlib.sha256(body).digest()
        if self._seen.setdefault(member.name, digest) != digest:
            raise NeffError(f"it has two different {name}", damaged=False)
        try:
            document = msgspec.json.decode(body, type=form)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # the first is not a ValueError before 0.20
            self._note(f"{name} is not understood: {printable(str(error), 80)}")
            return body
        match document:
            case Info():
                self._info = document
            case GraphFile():
                self._graph = document
            case Kelf():
                self._kelf(document)
            case Definition():
                self._definition(member.name, document)
        return body

    def _note(self, words: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(words)

    def _kelf(self, kelf: Kelf) -> None:
        self.revision = self.revision or printable(kelf.revision, 256)
        for graph in kelf.graphs:
            self._subgraph(graph.name)
        if kelf.target is None:
            return
        self.untold -= 1
        target = printable(kelf.target, 256)
        if target not in self.targets:
            self.targets.append(target)
        if len(self.targets) > 1:
            words = " and ".join(target or "an empty one" for target in self.targets)
            raise NeffError(f"it has two targets: {words}", damaged=False)

    def _subgraph(self, name: str) -> None:
        if name and len(self.subgraphs) < MOST_NAMES:
            self.subgraphs.add(printable(name, 256))

    def _definition(self, path: str, definition: Definition) -> None:
        if named := facts.NEFF_DEFINITION.fullmatch(path):
            self._subgraph(named[1])
        for feature in definition.features[:MOST_NAMES]:
            self.features.add(printable(feature, 256).removeprefix(facts.NEFF_FEATURE_PREFIX))
        self.ranks = max(self.ranks, definition.ranks)
        found: dict[str, list[Tensor]] = {}
        for name, variable in definition.variables.items():
            if variable.type in {"input", "output"}:
                tensor = Tensor(printable(name), bytes=variable.size)
                found.setdefault(variable.type, []).append(tensor)
                if variable.size is not None:
                    self._sizes[tensor.name] = variable.size
        self._defined = self._defined or found

    def _with_sizes(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            msgspec.structs.replace(tensor, bytes=self._sizes.get(tensor.name, tensor.bytes)) for tensor in tensors
        )
