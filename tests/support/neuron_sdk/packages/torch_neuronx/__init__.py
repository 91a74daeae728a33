"""Stands in for AWS's `torch-neuronx` (closed): what torch_xla and Transformers look for.

Importing it changes nothing; torch_xla calls `torch_neuronx.xla.init()` itself when `libneuronxla` is there.
"""

__version__ = "2.9.0.2.15.32035+de43f57c"


class DataParallel:
    """optimum-neuron imports this name."""
