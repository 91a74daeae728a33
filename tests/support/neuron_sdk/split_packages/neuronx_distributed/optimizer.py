"""ZeRO-1, which neuronx-distributed takes from torch-xla."""

from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer


class NeuronZero1Optimizer(ZeroRedundancyOptimizer):
    """torch-xla's own."""

    @property
    def grad_norm(self):
        return self._grad_norm
