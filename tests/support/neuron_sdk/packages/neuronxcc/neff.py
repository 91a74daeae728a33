"""A file in the NEFF container, with nothing in it that a device could run.

Follows: the 1024-byte header as AWS documents it and as 58 real files have it, the payload (gzipped ustar, padded to
10,240 bytes), the MD5 of the payload with each word's bytes reversed (builds from 2.18 on), `info.json`, `kelf-0.json`,
`neff.json`. Invented: `STAND-IN.json`, which says which graph it was made from, so that loading it for another one is
found out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import time
import uuid
from typing import Any

HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468x")
MARK = "STAND-IN.json"
TARGETS = {"trn1": "sunda", "trn1n": "sunda", "inf2": "sunda", "trn2": "cayman", "trn3": "mariana"}


class InvalidNeffError(Exception):
    """The runtime would refuse this file."""


def write(graph: bytes, *, output: str, target: str, version: str, lnc: int | None = None) -> bytes:
    """Make the file for a graph."""
    lnc = lnc or (1 if TARGETS[target] == "sunda" else 2)
    members: dict[str, Any] = {
        "info.json": {"name": output, "num_tpb": 1, "tool_version": version, "stand_in": True},
        "kelf-0.json": {"target": TARGETS[target], "graphs": [{"name": f"sg{n:02}"} for n in range(lnc)]},
        "neff.json": _signature(),
        MARK: {"graph_sha256": hashlib.sha256(graph).hexdigest(), "made_by": "a stand-in for neuronx-cc, in a test"},
    }
    for number in range(lnc):
        members[f"sg{number:02}/def.json"] = {"var": {"input0": {"type": "input"}, "output0": {"type": "output"}}}
    payload = _payload(members, len(graph))
    digest = hashlib.md5(payload).digest()
    reversed_words = b"".join(digest[at : at + 4][::-1] for at in range(0, 16, 4))
    modern = TARGETS[target] != "sunda"
    header = HEADER.pack(
        2, 1024, len(payload), 2 if modern else 1, 0, b"", 1, reversed_words, uuid.uuid4().bytes,
        output.encode()[:255], 1, bytes([1]), 0xC00 if modern else 0, lnc,
    )  # fmt: skip
    return header + payload


def check(neff: bytes, graph: bytes) -> None:
    """Do what the runtime does on load: refuse a damaged file; and what it cannot: refuse another graph's.

    Raises:
        InvalidNeffError: Either is so.
    """
    refused = "NEFF is invalid; could be broken or hacked"
    try:
        _, size, length, *_ = fields = HEADER.unpack_from(neff)
        payload = neff[size : size + length]
        digest = hashlib.md5(payload).digest()
        stored = fields[7][:16]
        if len(payload) != length or stored != b"".join(digest[at : at + 4][::-1] for at in range(0, 16, 4)):
            raise InvalidNeffError(refused)
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(payload.rstrip(b"\0") + b"\0" * 8))) as archive:
            member = archive.extractfile(MARK)
            assert member is not None
            mark = json.load(member)
    except (struct.error, OSError, EOFError, tarfile.TarError, KeyError, ValueError) as error:
        raise InvalidNeffError(f"{refused}: {error}") from error
    if mark["graph_sha256"] != hashlib.sha256(graph).hexdigest():
        raise InvalidNeffError("this NEFF was compiled from another graph")


def members(neff: bytes) -> dict[str, bytes]:
    """The files in a NEFF, by name."""
    _, size, length, *_ = HEADER.unpack_from(neff)
    payload = neff[size : size + length].rstrip(b"\0") + b"\0" * 8
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(payload))) as archive:
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: body.read() for name, body in found.items() if body is not None}


def _signature() -> dict[str, Any]:
    entry = {"id": "0", "dtype": "float32", "shape": [1]}
    return {"metadata": {"signatures": {"default": {"inputs": {"input0": entry}}}}, "nodes": [], "heads": []}


def _payload(members: dict[str, Any], code: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        texts = {name: json.dumps(value, indent=2).encode() for name, value in members.items()}
        for name, text in {**texts, "sg00/PE0.bin": bytes(code)}.items():
            info = tarfile.TarInfo(name)
            info.size, info.uname, info.gname = len(text), "nobody", "nobody"
            archive.addfile(info, io.BytesIO(text))
    packed = gzip.compress(raw.getvalue(), 6, mtime=int(time.time()))
    return packed + bytes(-len(packed) % 10240)
