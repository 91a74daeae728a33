"""The stand-in for the SDK, to be altered, and what the checks of the contract say of it."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from cachekit.compilers.neuron import contract
from cachekit.compilers.neuron.contract.lab import FLAGS, WRONG_FLAG, Lab
from cachekit.compilers.neuron.flags import flags_hash
from tests.support.neuron_sdk import SCRIPTS, NeuronHost, neuron_host

# What any process that uses the real cache has mapped; the stand-in is all Python.
MAPPED = """\
import mmap, pathlib, tempfile
library = pathlib.Path(tempfile.gettempdir(), "libneuronpjrt.so")
library.write_bytes(bytes(4096))
kept = library.open("rb")
mapped = mmap.mmap(kept.fileno(), 0, access=mmap.ACCESS_READ)
"""
GRAPHS = f"import runpy\nrunpy.run_path({str(SCRIPTS / 'graphs.py')!r}, run_name='__main__')\n"


def script(folder: Path, *parts: str) -> tuple[str, str]:
    """A script of these parts."""
    path = folder / "script.py"
    path.write_text("".join(parts))
    return sys.executable, str(path)


def make_host(folder: Path, **knobs: object) -> NeuronHost:
    """The stand-in, with torch-xla "installed", and a compiler that refuses the flag that it must not know."""
    refused = flags_hash([*FLAGS, WRONG_FLAG], "json+target", "trn1")
    host = neuron_host(
        folder / "host", compile_seconds=0.3, lock_minute=0.2,
        failures=[{"match": f"*+{refused}", "class": "user-error"}], **knobs,
    )  # fmt: skip
    if importlib.util.find_spec("torch_xla") is None:
        info = folder / "more" / "torch_xla-2.9.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-xla\nVersion: 2.9.0\n")
        host.environment["PYTHONPATH"] += f"{os.pathsep}{info.parent}"
    # Asked for only; nothing of a laboratory is ever written there.
    del host.environment["NEURON_SDK_DEFAULT_ROOT"]
    return host


def enter(host: NeuronHost, patch: pytest.MonkeyPatch, **variables: str) -> None:
    """Be a process of that host."""
    for name in list(os.environ):
        if name not in host.environment:
            patch.delenv(name)
    for name, value in {**host.environment, **variables}.items():
        patch.setenv(name, value)


def look(checks, lab: Lab) -> dict[str, contract.Outcome]:
    return {outcome.name: outcome for outcome in contract.examine(checks, lab)}


def differing(outcomes: dict[str, contract.Outcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.state == "differs"}
