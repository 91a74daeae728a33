"""A user's own script on TorchNeuron: `native_command.py GRAPH...` has graphs compiled, or finds them."""

import sys
from importlib import metadata

from tests.compilers.neuron.native_worker import compiled, load

for graph in sys.argv[1:]:
    version = metadata.version("neuronx-cc")
    load(compiled(graph, version), graph, version)
