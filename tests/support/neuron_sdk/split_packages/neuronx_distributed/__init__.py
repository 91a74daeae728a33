"""Stands in for AWS's neuronx-distributed where a model is not split: one worker, one stage, one part.

The names and arguments are those that optimum-neuron 0.4.5 calls, as its sources show them; what they do follows from
a world of one: a part is the whole, and what is exchanged between workers stays as it is. Everything else is absent.
"""

import sys
from types import ModuleType

from . import parallel_layers, pipeline, trainer

# optimum-neuron looks its models for inference up together with those for training. They need far more of AWS's
# packages than training does, and are left out here.
sys.modules.setdefault("optimum.neuron.models.inference.auto_models", ModuleType("auto_models"))

__all__ = ["parallel_layers", "pipeline", "trainer"]
