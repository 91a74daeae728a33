"""What `torch_xla/__init__.py` calls on a Neuron host, before XLA's runtime starts."""

import os


def init() -> None:
    """Set the environment up, and route graphs through the Neuron cache."""
    from libneuronxla import pjrt

    os.environ.setdefault("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", "50")
    pjrt.install()
