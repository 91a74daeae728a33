"""TorchNeuron inside the training worker: a device, and a backend of torch.compile.

The Trainer of Transformers 5 finds the device by itself, and torch's launcher the way workers talk to each other.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cachekit.compilers import port
from cachekit.compilers.neuron import cores, facts, native_guest
from cachekit.errors import CompilerUnavailableError
from cachekit.text import first_line


class Runtime(port.Runtime):
    """TorchNeuron in the worker."""

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Load TorchNeuron, on one core of those that the run may have, and have it count.

        Raises:
            CompilerUnavailableError: It does not import, or this Transformers does not know its device.
        """
        # Before anything is loaded: torch itself loads TorchNeuron.
        if core := cores.of_worker(os.environ):
            os.environ[facts.VISIBLE_CORES] = core
        import transformers

        try:
            importlib.import_module(facts.FRAMEWORK_MODULE)
        except ImportError as error:
            raise CompilerUnavailableError(
                "TorchNeuron does not import", cause=first_line(error), hint="`cachekit doctor` looks at its packages"
            ) from error
        if not hasattr(transformers.utils, "is_torch_neuron_available"):
            raise CompilerUnavailableError(
                f"transformers {transformers.__version__} does not know TorchNeuron's device",
                hint="pip install --upgrade transformers accelerate",
            )
        with suppress(ImportError):  # then new files tell what compiled
            importlib.import_module(facts.NATIVE_METRICS_MODULE)
        native_guest.join(found=False)

    def compile_model(self, model: Any, settings: Mapping[str, Any]) -> None:
        import torch

        if settings.get("execution", "compile") == "compile":
            model.forward = torch.compile(model.forward, **facts.NATIVE_COMPILE)

    def counters(self) -> dict[str, int]:
        """Zeros where it does not count: then the new files tell."""
        return native_guest.counters() or dict.fromkeys(facts.NATIVE_COUNTERS, 0)
