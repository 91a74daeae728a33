"""A whole NEFF as one value: verified and described in one pass over its bytes.

The members of its tar say compiler, target chip, cores, features, inputs and outputs. Every field may be missing. A
document of another form than in the files seen so far is left out, and a note says so. Only contradictions are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from cachekit.compilers.graphs import Graph, Tensor
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff.container import Header, NeffError, Payload, Slice, module_in, payload_of, printable
from cachekit.compilers.neuron.neff.members import (
    DEFAULT,
    NeffLimits,
    Tally,
    TarMember,
    TooMuchError,
    Unpacked,
    members,
)
from cachekit.decode import from_json
from cachekit.store.leaks import Leaks, Scanner


def read(path: Path, *, leaks: bool = True, limits: NeffLimits = DEFAULT, part: Slice | None = None) -> Graph:
    """Verify a NEFF, or the `part` of an archive that is one, and say what it is.

    With `leaks` everything is looked through for paths and names; `limits` say how far a hostile file is followed.

    Raises:
        NeffError: It is not a NEFF, damaged, of an unknown kind, or its contents contradict themselves.
        OSError: It cannot be read.
    """
    with payload_of(path, part) as payload:
        described: Graph | NeffError
        try:
            described = _describe(payload, leaks=leaks, limits=limits)
        except NeffError as error:
            described = error.with_traceback(None)  # which would hold what was unpacked, in a circle
        # First of all whether the bytes are right: a broken tar in a damaged file is no news.
        form = payload.finish()
        if isinstance(described, NeffError):
            raise described
        return replace(described, digest=payload.header.algorithm + ("" if form == "plain" else f", {form}"))


def _describe(payload: Payload, *, leaks: bool, limits: NeffLimits) -> Graph:
    header = payload.header
    stream = Unpacked(payload, limits)
    contents, scanner, tally = Contents(limits), Scanner(), Tally()
    scanner.words(header.name, "header")
    youngest = 0.0
    stopped = ""
    try:
        for member in members(stream, tally, limits):
            youngest = max(youngest, member.time)
            body = contents.take(member) if contents.wants(member) else None
            if leaks:
                scanner.owners(member.owner, member.group)
                scanner.body(member.name, member.size, member.pieces() if body is None else [body])
    except TooMuchError as error:
        if not contents.told:
            raise
        stopped = error.reason
        scanner.stopped()
    if not contents:
        raise NeffError("its tar has nothing of a NEFF: no info.json, neff.json or kelf", damaged=False)
    name = _name(header, contents)
    if name != header.name:
        scanner.words(name, facts.NEFF_INFO)
    target = contents.targets[0] if contents.targets else ""
    cut = name == header.name and header.name_is_cut
    return Graph(
        digest="",
        compressed=stream.compressed,
        compiler=contents.compiler,
        target=target,
        chip=facts.NEFF_TARGETS.get(target, target) if contents.targets and not contents.untold else "",
        revision=contents.revision,
        subgraphs=tuple(sorted(contents.subgraphs)),
        features=tuple(sorted(contents.features - {""})),
        ranks=contents.ranks,
        built=_time(stream.time or youngest),
        name=name,
        name_is_cut=cut,
        module=module_in(name, cut=cut),
        inputs=contents.inputs,
        outputs=contents.outputs,
        members=tally.members,
        leaks=scanner.leaks() if leaks else Leaks(complete=False),
        notes=tuple(_notes(header, contents, tally, stopped)),
        package_version=header.package_version,
        build=header.build,
        uuid=header.uuid,
        cores=header.cores,
        lnc=header.lnc,
        bytes=facts.NEFF_HEADER_SIZE + header.data_size,
        neff_version=header.version,
        feature_bits=f"{header.feature_bits:#x}",
    )


def _name(header: Header, contents: Contents) -> str:
    """The whole name: info.json has it without the header's limit."""
    if header.name_is_cut and contents.name.startswith(header.name):
        return contents.name
    return header.name or contents.name


def _notes(header: Header, contents: Contents, tally: Tally, stopped: str) -> list[str]:
    notes = list(contents.notes)
    if stopped:
        notes.append(f"not read to its end: {stopped}")
    if not contents.targets:
        notes.append("no kelf says which chip it is for")
    elif contents.untold:
        notes.append("not every kelf says which chip it is for")
    if contents.name and header.name and not contents.name.startswith(header.name):
        notes.append("its header and its info.json have different names: packed again, or its header is damaged")
    if tally.links:
        notes.append(f"{tally.links} links or devices among its members")
    if tally.unsound:
        notes.append(f"{tally.unsound} members whose names would leave the folder on unpacking")
    return notes


def _time(seconds: float) -> str:
    # Years beyond 9999 come from hostile tars only.
    return datetime.fromtimestamp(int(seconds), timezone.utc).isoformat() if 0 < seconds < 1 << 37 else ""


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
        assert form is not None, "only documents are wanted"
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
            document = from_json(body, form)
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
