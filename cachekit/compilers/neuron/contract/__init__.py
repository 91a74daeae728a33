"""What cachekit assumes of Neuron, compared with the Neuron of this host: the first ten minutes on a real instance.

    installed    packages, tools, devices, the cache's place: no compile
    cached       what a compile leaves and says, and what is a hit
    compiling    extraction, neuron_parallel_compile, the compiler called directly
    troubles     locks, remembered failures

`lab.py` makes the experiments, in a temporary folder; the checks read them. An assumption that does not hold is
corrected where its check says, in most cases by one edit of `facts.py`.
"""

from cachekit.compilers.neuron.contract import cached, compiling, installed, troubles
from cachekit.compilers.neuron.contract.check import STATES, Check, Outcome, Seen, State, UnknownError, examine
from cachekit.compilers.neuron.contract.lab import Lab

CHECKS = (*installed.CHECKS, *cached.CHECKS, *compiling.CHECKS, *troubles.CHECKS)

__all__ = ["CHECKS", "STATES", "Check", "Lab", "Outcome", "Seen", "State", "UnknownError", "examine"]
