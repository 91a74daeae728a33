"""Graphs that call kernels of NKI, as XLA writes them (compared with jaxlib 0.10.2's own bytes)."""

from __future__ import annotations

import base64
import json


def field(number: int, value: bytes) -> bytes:
    """A field of a protobuf."""

    def varint(count: int) -> bytes:
        return bytes([count]) if count < 128 else bytes([count % 128 + 128]) + varint(count // 128)

    return varint(number * 8 + 2) + varint(len(value)) + value


def graph(*paths: str, target: bytes = b"AwsNeuronCustomNativeKernel") -> bytes:
    """A graph that calls kernels, as HloModuleProto has them: computations, instructions, their target and config."""
    calls = b""
    for path in paths:
        said = {"func_name": "attention", "kernel_format": "colz", "klir_binary": {"binary": path}, "grid": 1}
        config = base64.b64encode(json.dumps(said).encode())
        calls += field(2, field(1, b"call") + field(2, b"custom-call") + field(28, target) + field(43, config))
    return field(1, b"a graph") + field(3, field(1, b"main") + calls)
