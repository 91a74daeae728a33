"""Stands in for AWS's `libneuronxla` (closed): the persistent cache, the wrapper around the compiler, the PJRT plugin.

Follows: the names that public callers import (optimum-neuron, NxD, `neuron_parallel_compile`), the cache's layout on
disk, its lookups, locks and remembered failures, the lines it logs. What torch_xla calls to find Neuron is real:
`torch_xla/__init__.py` imports `libneuronxla.libneuronpjrt_path`, then calls `torch_neuronx.xla.init()`. Invented:
everything inside.
"""

from libneuronxla.neuron_cc_cache import CacheUrl, create_compile_cache

__version__ = "2.2.17544.0+fb9962bf"
__all__ = ["CacheUrl", "configure_environment", "create_compile_cache"]


def configure_environment() -> None:
    """Set the variables that the plugin wants: none here."""
