"""Stands in for TorchNeuron, which is torch-neuronx without XLA (closed where it was seen).

Follows: its cache on disk (`cache`) and its counters (`metrics`), from an unofficial copy of its source; its variables,
from AWS's page. Invented: the graph is a text, and the compiler is the stand-in's `neuronx-cc`.
"""
