"""What Neuron's packages are asked, in processes of their own: importing them takes seconds, and may claim a device."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.contract.bench import QUICK, Bench, Run
from cachekit.compilers.neuron.contract.check import UnknownError

FRONT = "cachekit:"  # before an answer: others print as well

# What they say of themselves. It is told before each import what is known by then: an import may end the process.
PACKAGES = """\
import importlib, json, sys
from importlib import metadata
names, modules = json.loads(sys.argv[1])
found = {"metadata": {}, "modules": {}, "failed": {}, "at": ""}
def tell():
    print("\\ncachekit:" + json.dumps(found), flush=True)
for name in names:
    try:
        found["metadata"][name] = metadata.version(name) or ""
    except metadata.PackageNotFoundError:
        pass
    except (KeyError, OSError, ValueError):
        found["metadata"][name] = ""
for name in modules:
    found["at"] = name
    tell()
    try:
        found["modules"][name] = str(getattr(importlib.import_module(name), "__version__", ""))
    except BaseException as error:
        found["failed"][name] = f"{type(error).__name__}: {error}"
found["at"] = ""
tell()
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


def packages(bench: Bench, *, limit: float = QUICK) -> Packages:
    """Ask them; where an import ends its process, or never ends, the others are made in another one.

    Args:
        bench: Where.
        limit: Seconds for the imports of one process.

    Raises:
        UnknownError: Python does not run, or a package of the toolchain is installed by half.
    """
    names = [*facts.TOOLCHAIN_PACKAGES, *facts.TRAINING_PACKAGES]
    modules = [facts.COMPILER_MODULE, facts.XLA_MODULE, facts.FRAMEWORK_MODULE]
    imported: dict[str, str] = {}
    failed: dict[str, str] = {}
    while True:
        with bench.start((sys.executable, "-c", PACKAGES, json.dumps([names, modules]))) as running:
            ended = running.until(lambda: running.process.poll() is not None, limit)
            run = running.so_far()
        if (said := run.said(FRONT)) is None:
            raise UnknownError(f"Neuron's packages cannot be asked: {run.end}")
        told = json.loads(said)
        imported |= told["modules"]
        failed |= told["failed"]
        if not (last := told["at"]):
            break
        failed[last] = Run(run.code, "", run.err).end if ended else f"did not end within {limit:.0f} s"
        modules = modules[modules.index(last) + 1 :]
    metadata = told["metadata"]
    if half := [name for name in facts.TOOLCHAIN_PACKAGES if metadata.get(name) == ""]:
        raise UnknownError(f"{', '.join(half)}: half-installed, its metadata tells no version")
    return Packages({name: version for name, version in metadata.items() if version}, imported, failed)
