"""A Neuron host for tests: AWS's closed packages and tools stood in for, over graphs that XLA really makes.

`packages/` goes on PYTHONPATH; it has `libneuronxla` (the cache and the wrapper), `torch_neuronx` (what torch_xla
calls, and `neuron_parallel_compile`), `neuronxcc` (the compiler and the system tools), each of which says in its
docstring what is AWS's contract and what is invented here. Nothing needs to be installed or activated: torch_xla
itself looks for `libneuronxla` as it is imported, which is how a real installation works as well.

The graphs need torch_xla (`make test-xla`); the tools and the cache work without it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).resolve().parent / "packages"
# Metadata alone: the torch and the torch-xla that torch-neuronx 2.9 loads beside, whatever is really there.
XLA_PACKAGES = PACKAGES.parent / "xla_packages"
# TorchNeuron, which goes before those on PYTHONPATH, and a torch of a few lines.
NATIVE_PACKAGES = PACKAGES.parent / "native_packages"
VERSION = "2.26.6360.0+6f180f47"
COMPILER_DIRECTORY = f"neuronxcc-{VERSION}"
SCRIPTS = PACKAGES.parent / "scripts"
TOOLS = {
    "neuronx-cc": ("neuronxcc.driver", "main"),
    "neuron_parallel_compile": ("torch_neuronx.parallel_compile.neuron_parallel_compile", "main"),
    "neuron-ls": ("neuronxcc.tools", "neuron_ls"),
}


@dataclass(frozen=True)
class Entry:
    """A folder of the cache."""

    path: Path

    @property
    def name(self) -> str:
        """`MODULE_<graph>+<flags>`."""
        return self.path.name

    @property
    def files(self) -> set[str]:
        """Names of its files."""
        return {file.name for file in self.path.iterdir()}

    @property
    def finished(self) -> bool:
        """Whether a process would take it as it is."""
        return (self.path / "model.done").exists()


@dataclass(frozen=True)
class NeuronHost:
    """A host with the stand-in installed.

    Attributes:
        folder: Everything of it: `bin`, `root` (the cache), `tmp`, the knobs, what happened.
        environment: What its processes are started with; change a copy.
    """

    folder: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def root(self) -> Path:
        """The cache's root, as NEURON_COMPILE_CACHE_URL names it."""
        return self.folder / "root"

    @property
    def bin(self) -> Path:
        """Where the tools are."""
        return self.folder / "bin"

    def knobs(self, **values: Any) -> None:
        """Set knobs (see `neuronxcc.knobs`) beside those that are set; None takes one away."""
        path = self.folder / "knobs.json"
        found = json.loads(path.read_text()) | values
        path.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """What the stand-in did, in order: "compile" (started), "compiled", "failed", "loaded"."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [event for event in found if not kinds or event["event"] in kinds]

    @property
    def compiles(self) -> int:
        """How many times the compiler was started."""
        return len(self.events("compile"))

    def forget(self) -> None:
        """Begin to count anew."""
        (self.folder / "events.jsonl").unlink(missing_ok=True)

    def entries(self, root: Path | None = None) -> list[Entry]:
        """The folders of the cache, by name."""
        return [Entry(path) for path in sorted(((root or self.root) / COMPILER_DIRECTORY).glob("MODULE_*"))]


def neuron_host(folder: Path, *, cores: int = 2, xla: bool = True, **knobs: Any) -> NeuronHost:
    """Make a host in an empty folder.

    Args:
        folder: Where; made if need be.
        cores: What neuron-ls shows.
        xla: Its packages are those of torch-neuronx on XLA; without, others go before these on PYTHONPATH.
        knobs: See `neuronxcc.knobs`.
    """
    for name in ("bin", "root", "tmp", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, (module, function) in TOOLS.items():
        script = folder / "bin" / name
        # As pip writes a console script: the interpreter by its path, so that PATH does not matter.
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
    (folder / "knobs.json").write_text(json.dumps({"cores": cores, **knobs}))
    code = ""
    if xla and find_spec("torch_xla") is None:  # something to be found by the name that the metadata has
        code = str(folder / "code")
        (folder / "code" / "torch_xla").mkdir(parents=True, exist_ok=True)
        (folder / "code" / "torch_xla" / "__init__.py").touch()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "XLA_", "PJRT_"))},
        "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(PACKAGES), str(XLA_PACKAGES) if xla else "", os.environ.get("PYTHONPATH", ""), code])
        ),
        "PJRT_DEVICE": "CPU",
        "NEURON_COMPILE_CACHE_URL": str(folder / "root"),
        "NEURON_SDK_DEFAULT_ROOT": str(folder / "default-root"),
        "NEURON_SDK_KNOBS": str(folder / "knobs.json"),
        "TMPDIR": str(folder / "tmp"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return NeuronHost(folder, environment)
