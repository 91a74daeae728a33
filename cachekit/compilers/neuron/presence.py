"""Whether Neuron may be here at all: asked at every start, and so before anything else of Neuron is loaded."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

# Part of `facts.py`, which takes 10 ms to load. Its __version__ carries "+<commit>", which the package's metadata may
# lack [ON].
COMPILER_MODULE = "neuronxcc"
# Names a tool that lists the devices; the second is where AWS's package puts it, which is not always on PATH.
NEURON_LS = ("neuron-ls", "/opt/aws/neuron/bin/neuron-ls")
DEVICE_FOLDER = "/dev"
_DEVICE = re.compile(r"neuron\d+")  # the driver makes one node for each device


def possible() -> bool:
    """False where the compiler's module is not installed, which most machines tell at once."""
    return find_spec(COMPILER_MODULE) is not None


def device_nodes() -> list[str]:
    """The paths of the device nodes that Neuron's driver made; empty where the driver is not loaded."""
    try:
        names = os.listdir(DEVICE_FOLDER)  # noqa: PTH208 - names only, at every start
    except OSError:
        return []
    return sorted(f"{DEVICE_FOLDER}/{name}" for name in names if _DEVICE.fullmatch(name))


def may_have_devices() -> bool:
    """Whether this machine has device nodes of Neuron, or a tool that can list devices. Starts no process."""
    if device_nodes():
        return True
    name, path = NEURON_LS
    return Path(path).exists() or shutil.which(name) is not None
