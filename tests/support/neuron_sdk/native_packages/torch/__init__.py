"""Stands in for torch where a test needs a few lines of it alone: three functions, on TorchNeuron's stand-in.

Invented: all of it. What is compiled is a text that names the operation and the shape.
"""

from __future__ import annotations

import os
from pathlib import Path

# torch.distributed.run, which starts workers.
__path__.append(str(Path(__file__).resolve().parents[2] / "launcher" / "torch"))
__version__ = "2.14.0"


class Tensor:
    """A number that stands for all of a tensor's."""

    def __init__(self, value: float, shape: tuple[int, ...]) -> None:
        self.value, self.shape = value, shape

    def to(self, device: str) -> Tensor:
        """On a device: copying compiles too, as every operation there does."""
        assert device == "neuron"
        return _run("copy", self)

    def item(self) -> float:
        """The number."""
        return self.value


def ones(*shape: int) -> Tensor:
    """Ones."""
    return Tensor(1.0, shape)


def compile(function, *, backend: str, dynamic: bool):  # noqa: A001 - its name
    """Compile a function."""
    assert (backend, dynamic) == ("neuron", False)
    return lambda tensor: _run("function", tensor)


def _run(name: str, tensor: Tensor) -> Tensor:
    from torch_neuronx import cache

    cache.load(f"{name} {tensor.shape}")
    return tensor


class accelerator:  # noqa: N801 - its name
    """PyTorch's generic interface to devices."""

    @staticmethod
    def device_count() -> int:
        """Cores that this process may use."""
        if said := os.environ.get("NEURON_RT_VISIBLE_CORES"):
            first, _, last = said.partition("-")
            return int(last or first) - int(first) + 1
        if (said := os.environ.get("NEURON_RT_NUM_CORES", "0")) != "0":
            return int(said)
        return 4
