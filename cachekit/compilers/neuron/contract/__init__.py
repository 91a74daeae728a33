"""What cachekit assumes of Neuron, compared with the Neuron of this host: the first ten minutes on a real instance.

    installed    packages, tools, devices, the cache's place: no compile
    cached       what a compile leaves and says, and what is a hit
    compiling    extraction, neuron_parallel_compile, the compiler called directly
    troubles     locks, remembered failures
    native       TorchNeuron, which has none of the last three

`lab.py` and `native_lab.py` make the experiments, in a temporary folder; the checks read them. An assumption that does
not hold is corrected where its check says, in most cases by one edit of `facts.py`.
"""

from cachekit.compilers.neuron.contract import cached, compiling, installed, native, troubles
from cachekit.compilers.neuron.contract.check import STATES, Check, Outcome, Seen, State, UnknownError, examine
from cachekit.compilers.neuron.contract.lab import Lab

CHECKS = (*installed.CHECKS, *cached.CHECKS, *compiling.CHECKS, *troubles.CHECKS)
NATIVE_CHECKS = native.CHECKS


def checks_of(lab: Lab) -> tuple[Check, ...]:
    """The checks for what is installed here: TorchNeuron's, or those of the cache on XLA."""
    return NATIVE_CHECKS if lab.is_native else CHECKS


__all__ = [
    "CHECKS",
    "NATIVE_CHECKS",
    "STATES",
    "Check",
    "Lab",
    "Outcome",
    "Seen",
    "State",
    "UnknownError",
    "checks_of",
    "examine",
]
