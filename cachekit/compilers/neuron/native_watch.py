"""One run on TorchNeuron: its compiler is a process of its own, which can be seen at work."""

from __future__ import annotations

from cachekit.compilers.neuron.processes import compiles_below
from cachekit.compilers.tree_watch import TreeWatch


class NativeWatch(TreeWatch):
    """A `TreeWatch` that also looks for compilers below the run."""

    def busy(self, pid: int) -> bool:
        """Whether a compiler that the run has started compiles now."""
        return bool(compiles_below(pid))
