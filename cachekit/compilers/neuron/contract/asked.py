"""What Neuron's packages are asked, in processes of their own: importing them takes seconds, and may claim a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cachekit.compilers.neuron import facts

FRONT = "cachekit:"  # before an answer: others print as well

# What they say of themselves.
PACKAGES = """\
import importlib, json, sys
from importlib import metadata
names, modules = json.loads(sys.argv[1])
found = {"metadata": {}, "modules": {}, "failed": {}}
for name in names:
    try:
        found["metadata"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
for name in modules:
    try:
        found["modules"][name] = str(getattr(importlib.import_module(name), "__version__", ""))
    except BaseException as error:
        found["failed"][name] = f"{type(error).__name__}: {error}"
print("cachekit:" + json.dumps(found))
"""
_MODULE, _CLASS, _ASK = facts.CACHE_URL_ASKED
ROOT = f"from {_MODULE} import {_CLASS}; print('{FRONT}' + {_CLASS}.{_ASK}().url)"

# How many cores a process of TorchNeuron's has, by PyTorch's own interface.
CORES = """\
import importlib, sys, torch
importlib.import_module(sys.argv[1])
print(f"cachekit:{torch.accelerator.device_count()}")
"""
# Where a package lies; nothing of it is run.
FOLDER = """\
import sys
from importlib.util import find_spec
print("cachekit:" + find_spec(sys.argv[1]).submodule_search_locations[0])
"""


@dataclass(frozen=True, slots=True)
class Packages:
    """What Neuron's packages say of themselves: versions of the metadata, of the modules, and failed imports."""

    metadata: Mapping[str, str]
    modules: Mapping[str, str]
    failed: Mapping[str, str]
