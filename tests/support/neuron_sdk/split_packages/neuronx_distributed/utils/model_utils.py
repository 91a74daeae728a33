"""Models, and what they run on."""

from enum import Enum

from neuronx_distributed.parallel_layers.utils import move_model_to_device

__all__ = ["LogicalNCConfig", "get_platform_lnc", "move_model_to_device"]


class LogicalNCConfig(Enum):
    """Physical cores in a logical one."""

    LNC_1 = 1
    LNC_2 = 2


def get_platform_lnc():
    return LogicalNCConfig.LNC_1
