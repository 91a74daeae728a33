"""Neuron inside the training worker. torch-xla traces and sends graphs to the compiler by itself.

What was found and what compiled is read from the log, outside of the worker (`watch.py`): the wrapper around the
compiler tells nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachekit.compilers import port
from cachekit.errors import CompilerUnavailableError
from cachekit.text import first_line


class Runtime(port.Runtime):
    """Neuron in the worker. Nothing is arranged for a model: whatever runs on the device is compiled."""

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Load torch-xla, which finds Neuron's runtime by itself.

        Raises:
            CompilerUnavailableError: A package of Neuron does not import.
        """
        try:
            import torch_neuronx  # noqa: F401
            import torch_xla  # noqa: F401
        except ImportError as error:
            from cachekit.compilers.neuron import chip, install

            cause, hint = first_line(error), install.way(chip.here(), (), "neuron").run
            raise CompilerUnavailableError("Neuron's packages do not import", cause=cause, hint=hint) from error

    def arguments(self) -> dict[str, Any]:
        """Else predictions are joined on the device, and each further batch is another graph (torch-xla 2.9)."""
        return {"eval_accumulation_steps": 1}

    def model_options(self) -> dict[str, Any]:
        """Plain attention: PyTorch's own asks whether a mask is all ones, and a padded batch is another graph then.

        Measured with transformers 4.57 and torch-xla 2.9. In a trial run, where the device returns zeros, the answer is
        wrong as well.
        """
        return {"attn_implementation": "eager"}

    def adapt(self, trainer: Any) -> None:
        """Gather and pad without sending sizes and pickles through the device (transformers 4.57, torch-xla 2.9).

        In a trial run the device returns zeros [SDK: neuron_parallel_compile], of which no size and no pickle can be
        read; and the graph of a pickle depends on its length. Our shapes are fixed, so there is nothing to agree on.
        """
        accelerator = trainer.accelerator

        def gather(tensors: Any, name: str | None = None) -> Any:
            return None if tensors is None else accelerator.gather(tensors)

        trainer._nested_gather = gather  # noqa: SLF001
        accelerator.pad_across_processes = lambda tensor, *arguments, **options: tensor  # noqa: ARG005

    def counters(self) -> dict[str, int]:
        """How many graphs torch-xla asked a compiler for; which of them were found, it does not know."""
        from torch_xla.debug import metrics

        return {"found": 0, "compiled": 0, "requested": int(metrics.counter_value("UncachedCompile") or 0)}

    def finish(self) -> None:
        """Meet the other workers: one that leaves early can make the others hang at exit [SDK: bert.rst]."""
        from torch_xla.core import xla_model

        xla_model.rendezvous("cachekit-finish")
