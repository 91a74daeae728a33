"""A whole NEFF as one value: verified and described in one pass over its bytes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

from cachekit.compilers.graphs import Graph
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff.container import Header, NeffError, Payload, Slice, module_in, payload_of
from cachekit.compilers.neuron.neff.contents import Contents
from cachekit.compilers.neuron.neff.members import DEFAULT, NeffLimits, Tally, TooMuchError, Unpacked, members
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
