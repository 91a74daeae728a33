"""TorchNeuron inside the training worker: a device, and a backend of torch.compile; see `port.Runtime`.

The Trainer of Transformers 5 finds the device by itself, and torch's launcher the way workers talk to each other.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cachekit.compilers.neuron import cores, facts, native_guest, options
from cachekit.errors import CompilerUnavailableError


def prepare(settings: Mapping[str, Any]) -> None:
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
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CompilerUnavailableError(
            "TorchNeuron does not import", cause=lines[0], hint="`cachekit doctor` looks at its packages"
        ) from error
    if not hasattr(transformers.utils, "is_torch_neuron_available"):
        raise CompilerUnavailableError(
            f"transformers {transformers.__version__} does not know TorchNeuron's device",
            hint="pip install --upgrade transformers accelerate",
        )
    with suppress(ImportError):  # then new files tell what compiled
        importlib.import_module(facts.NATIVE_METRICS_MODULE)
    native_guest.join(found=False)


def arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def model_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def compile_model(model: Any, settings: Mapping[str, Any]) -> None:
    """In place, so that checkpoints keep the model's own names."""
    import torch

    if settings.get(options.EXECUTION, options.COMPILE) == options.COMPILE:
        model.forward = torch.compile(model.forward, **facts.NATIVE_COMPILE)


def adapt(trainer: Any) -> None:
    pass


def counters() -> dict[str, int]:
    """Zeros where it does not count: then the new files tell."""
    return native_guest.counters() or dict.fromkeys(facts.NATIVE_COUNTERS, 0)


def finish() -> None:
    pass
