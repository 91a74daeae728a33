"""Checkpoints, made as `torch.save` and safetensors make them."""

from __future__ import annotations

import io
import json
import zipfile

FILES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


def safetensors(size=400):
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def saved():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(400))
    return stream.getvalue()


def contents(name):
    if name.endswith(".safetensors"):
        return safetensors()
    return json.dumps({"global_step": 4, "log_history": []}).encode() if name.endswith(".json") else saved()


def make(folder, files=FILES):
    """A checkpoint with these files; a whole one."""
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(contents(name))
    return folder
