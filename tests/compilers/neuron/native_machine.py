"""A user on a host with TorchNeuron, stood in for: `Machine` of `neuron_machine.py` with other packages and worker.

native_machine.py ARGUMENTS…      the real command line, with `native_worker.py` for a worker
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.compilers.neuron.neuron_machine import RECIPE, Machine
from tests.support.neuron_sdk import neuron_host

HERE = Path(__file__).resolve().parent
OLD, NEW = "2.25.3371.0+aaaaaaaa", "2.27.5334.0+bbbbbbbb"
NATIVE = f"{RECIPE}compiler: {{name: neuron-native}}\n"


class NativeMachine(Machine):
    """A user of TorchNeuron, in an empty folder."""

    def __init__(
        self, folder: Path, *, compiler: str = NEW, framework: str = "2.11.3.0.1278", instance: str = "trn2.48xlarge"
    ) -> None:
        super().__init__(folder, host=neuron_host(folder / "host", xla=False, instance_type=instance))
        self.packages = folder / "packages"
        for name, version in (("neuronx-cc", compiler), ("torch-neuronx", framework), ("torch", "2.11.0")):
            self.install(name, version)
        self.install("libneuronxla", "3.0.10135.0")  # JAX's: XLA's own, which the host has, is another stack's
        module = self.packages / "torch_neuronx"
        module.mkdir()
        (module / "__init__.py").write_text("")
        self.command = [str(HERE / "native_machine.py")]
        self.environment["PYTHONPATH"] = os.pathsep.join([str(self.packages), self.environment["PYTHONPATH"]])
        self.environment["NATIVE_WORKER"] = str(self.plan)
        self.environment["NATIVE_KERNELS"] = str(folder / "kernels")
        self.recipe(NATIVE)

    def run(self, *words: str, code: int = 0, options: tuple[str, ...] = ()) -> dict:
        """As `Machine.run`, whose program is the real one: it takes the folder of kernels from a variable."""
        self.environment["NKI_COMPILE_CACHE_URL"] = self.environment["NATIVE_KERNELS"]
        return super().run(*words, code=code, options=options)

    def install(self, name: str, version: str) -> None:
        """Have a package's metadata say a version."""
        for old in self.packages.glob(f"{name.replace('-', '_')}-*.dist-info"):
            (old / "METADATA").unlink()
            old.rmdir()
        folder = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


if __name__ == "__main__":
    from cachekit import training
    from cachekit.cli import app
    from cachekit.compilers.neuron import facts

    launcher = training.ProcessLauncher
    facts.NKI_DEFAULT_FOLDER = os.environ["NATIVE_KERNELS"]  # the machine's own is nobody's here
    training.ProcessLauncher = lambda: launcher([sys.executable, str(HERE / "native_worker.py")])
    sys.exit(app.run(sys.argv[1:]))
