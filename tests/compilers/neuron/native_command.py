"""A user's own script on TorchNeuron: `native_command.py GRAPH...` has graphs compiled, or finds them."""

import sys
from importlib import import_module, metadata

# Not by a statement: cachekit reads all that those lead to for the key of a command, here the whole of itself.
WORKER = "tests.compilers.neuron.native_worker"

worker = import_module(WORKER)
for graph in sys.argv[1:]:
    version = metadata.version("neuronx-cc")
    worker.load(worker.compiled(graph, version), graph, version)
