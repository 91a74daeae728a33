"""Well-formed NEFFs for tests, laid out as the compiler's real ones are; and the parts to make hostile ones of.

    make_neff(folder / "model.neff", version="2.26.6360.0+6f180f47", target="sunda", seed=3)
    content = make_neff(inputs={"x": ("float32", (4, 8))})

What is inside the members stands in for device code: no device would run it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import random
import struct
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron.neff import NeffError, read

RELAXED = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
PLAIN = st.sampled_from(["sunda", "cayman", "mariana"])
F32 = "float32"

HEADER = "<5Q128sI32s16s256sI64sQI468x"
RECORD = 10_240  # real payloads are padded with zeros to a multiple of it
BUILT = 1_767_225_600  # 2026-01-01T00:00:00Z
WIDTHS = {"float32": 4, "int32": 4, "uint32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "uint8": 1}
FEATURES = {"sunda": 0x0, "cayman": 0x209C00, "mariana": 0x1209C00}  # as real files of these chips have them

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


@pytest.fixture
def write(tmp_path):
    """Puts bytes into a file."""

    def _write(content: bytes) -> Path:
        path = tmp_path / "model.neff"
        path.write_bytes(content)
        return path

    return _write


def make_neff(
    path: Path | None = None,
    *,
    version: str = "2.23.6484.0+3b612583",
    target: str = "cayman",
    name: str = "file.neff",
    inputs: Tensors | None = None,
    outputs: Tensors | None = None,
    lnc: int | None = None,
    byte_order: str | None = None,
    seed: int = 0,
    size: int = 0,
    package: int = 2,
    compressed: bool = True,
    extra: Mapping[str, bytes] | None = None,
    without: Iterable[str] = (),
) -> bytes:
    """A NEFF whose digest is right; written to `path`, if one is given.

    Inputs and outputs are data types and shapes by name. There are `lnc` physical cores in a logical one, each a
    subgraph: 1 on sunda and 2 elsewhere by default. `byte_order` of the digest's words is "plain", or "reversed" as
    compilers from 2.18 on write it. Another `seed` makes another UUID and "device code"; `size` is the least that code
    takes, which does not compress. `extra` members come in place of those that are made, or beside them.
    """
    inputs = {"x": ("float32", (4, 8))} if inputs is None else inputs
    outputs = {"output0": ("float32", (4, 4))} if outputs is None else outputs
    lnc = lnc or (1 if target == "sunda" else 2)
    noise = random.Random(seed)
    members = _members(version, target, name, (inputs, outputs), lnc, noise)
    members |= extra or {}
    members = {member: body for member, body in members.items() if member not in set(without)}
    if size:
        # In pieces: one call makes no more than 256 MB.
        members["sg00/weights.bin"] = b"".join(noise.randbytes(1 << 20) for _ in range(-(-size >> 20)))
    payload = tar_of(members)
    if compressed:
        payload = gzip.compress(payload, 6, mtime=BUILT)
    payload += bytes(-len(payload) % RECORD)
    content = pack_neff(
        payload,
        name=name,
        package=package,
        major=1 if target == "sunda" else 2,
        features=FEATURES.get(target, 0),
        lnc=lnc,
        uuid=UUID(int=noise.getrandbits(128), version=4).bytes,
        byte_order=byte_order or ("plain" if _number(version) < (2, 18) else "reversed"),
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return content


def pack_neff(
    payload: bytes,
    *,
    name: str | bytes = "file.neff",
    package: int = 2,
    header_size: int = 1024,
    data_size: int | None = None,
    major: int = 2,
    minor: int = 0,
    cores: int = 1,
    features: int = 0,
    lnc: int = 1,
    uuid: bytes = bytes(16),
    byte_order: str = "plain",
    digest: bytes | None = None,
    build: bytes = b"",
) -> bytes:
    """Any payload behind a header that is right for it, but for what the caller says otherwise."""
    if digest is None:
        digest = hashlib.sha256(payload).digest() if package == 1 else hashlib.md5(payload).digest()
        if byte_order == "reversed":
            digest = b"".join(digest[at : at + 4][::-1] for at in range(0, len(digest), 4))
    text = name.encode() if isinstance(name, str) else name
    return (
        struct.pack(
            HEADER,
            package,
            header_size,
            len(payload) if data_size is None else data_size,
            major,
            minor,
            build,
            1,
            digest,
            uuid,
            text[:255],
            cores,
            b"\x01",
            features,
            lnc,
        )
        + payload
    )


def _members(  # noqa: PLR0917
    version: str, target: str, name: str, tensors: tuple[Tensors, Tensors], lnc: int, noise: random.Random
) -> dict[str, bytes]:
    """The members of a real NEFF's tar in their order, by name."""
    inputs, outputs = tensors
    subgraphs = [f"sg{core:02d}" for core in range(lnc)]
    kelf = {
        "graphs": [{"definition": f"{subgraph}/def.json", "name": subgraph} for subgraph in subgraphs],
        "version": "0.5",
        "target": target,
    }
    info = {"tool_version": version, "kelp_version": "Dynamic", "name": name, "num_tpb": 1, "num_tpb_requested": 1}
    members = {
        "debug_info/debug_info_hlo.dbg_sg000000": b"\n\x05model\x12\x03add",
        "info.json": _json(info),
        "kelf-0.json": _json(kelf),
    }
    for subgraph in subgraphs:
        for engine in ("PE", "Activation", "Pool", "SP", "DVE"):
            members[f"{subgraph}/{engine}.bin"] = noise.randbytes(192)
            members[f"{subgraph}/{engine}.json"] = _json({"dma": [], "instr": f"{engine}.bin"})
        members[f"{subgraph}/def.json"] = _json(_definition(inputs, outputs, lnc))
    members["neff.json"] = _json(_graph(inputs, outputs, lnc))
    return members


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar as the compiler writes it: owner nobody, no times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, body in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(body)
            entry.uname = entry.gname = "nobody"
            tar.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def _definition(inputs: Tensors, outputs: Tensors, lnc: int) -> dict[str, object]:
    variables: dict[str, object] = {"SB": {"type": "state-buffer", "var_id": 0}}
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor, (dtype, shape) in tensors.items():
            size = WIDTHS.get(dtype, 1) * math.prod(shape)
            variables[tensor] = {"ops": [], "size": size, "type": kind, "var_id": len(variables)}
    features = ["neff_feature_vnc"] if lnc > 1 else []
    return {"#rank_world_size": 0, "name": "definition", "neff_features": features, "var": variables, "version": "0.6"}


def _graph(inputs: Tensors, outputs: Tensors, lnc: int) -> dict[str, object]:
    # An output is listed once for each core of a logical one, as in real files.
    produced = [(tensor, described) for tensor, described in outputs.items() for _ in range(lnc)]
    node = len(inputs)
    return {
        "nodes": [
            *({"op": "null", "name": tensor, "inputs": [], "output_names": [tensor]} for tensor in inputs),
            {
                "op": "tvm_op",
                "name": "sg_coreV10",
                "attrs": {"func_name": "__kelf", "kelf": "kelf-0.json", "num_outputs": str(len(produced))},
                "inputs": [[index, 0, 0] for index in range(node)],
                "output_names": [tensor for tensor, _ in produced],
            },
        ],
        "arg_nodes": list(range(node)),
        "heads": [[node, index, 0] for index in range(len(produced))],
        "attrs": {
            "shape": ["list_shape", [list(shape) for _, shape in [*inputs.values(), *(d for _, d in produced)]]],
            "dltype": ["list_str", [dtype for dtype, _ in [*inputs.values(), *(d for _, d in produced)]]],
        },
        "node_row_ptr": [*range(node + 1), node + len(produced)],
    }


def _json(document: object) -> bytes:
    return json.dumps(document, indent=4).encode()


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


# Parts of hostile files


def entry(name: str, body: bytes = b"", **fields) -> bytes:
    """One member of a tar, whatever its header says."""
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)


def with_tar(*parts: bytes, compressed: bool = True, **header) -> bytes:
    """A NEFF of these parts of a tar, with the right digest."""
    tar = b"".join(parts) + bytes(1024)
    return pack_neff(gzip.compress(tar, 1, mtime=1) if compressed else tar, **header)


INFO = entry("info.json", b'{"tool_version": "2.26.1.0+abc", "name": "file.neff"}')
KELF = entry("kelf-0.json", b'{"graphs": [{"name": "sg00"}], "target": "sunda"}')


def reason_of(path: Path, **options) -> str:
    """Why a file is refused; it is, by the whole reader."""
    with pytest.raises(NeffError) as refused:
        read(path, **options)
    assert refused.value.reason.isprintable()
    assert str(refused.value) == refused.value.reason
    return refused.value.reason


def tensors(found) -> dict:
    return {tensor.name: (tensor.dtype, tensor.shape, tensor.bytes) for tensor in found}
