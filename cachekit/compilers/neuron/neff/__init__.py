"""Neuron's compiled graph, the NEFF: is it whole, what was it compiled for, and what would it tell the public.

Nothing is ever unpacked to disk, nothing from the file is run, and a file of any size is read in pieces.
"""

from cachekit.compilers.neuron.neff.container import Header, NeffError, Slice, read_header
from cachekit.compilers.neuron.neff.members import NeffLimits
from cachekit.compilers.neuron.neff.read import read

__all__ = ["Header", "NeffError", "NeffLimits", "Slice", "read", "read_header"]
