"""Whether Neuron may be here at all: asked at every start, and so before anything else of Neuron is loaded."""

from __future__ import annotations

from importlib.util import find_spec

# Part of `facts.py`, which takes 10 ms to load. Its __version__ carries "+<commit>", which the package's metadata may
# lack [ON].
COMPILER_MODULE = "neuronxcc"


def possible() -> bool:
    """False where the compiler's module is not installed, which most machines tell at once."""
    return find_spec(COMPILER_MODULE) is not None
