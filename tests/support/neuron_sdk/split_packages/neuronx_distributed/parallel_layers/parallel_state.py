"""Who shares what: here one worker shares everything with itself."""

import torch

_STATE = {}


def initialize_model_parallel(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, **_):
    """Refuses what a world of one cannot be."""
    if (tensor_model_parallel_size, pipeline_model_parallel_size) != (1, 1):
        raise RuntimeError("the stand-in of neuronx-distributed splits nothing")
    _STATE["made"] = True


def model_parallel_is_initialized():
    return bool(_STATE)


def _size():
    return 1


def _rank():
    return 0


def _groups():
    return [[0]]


def _group(as_list=False, **_):
    return [[0]] if as_list else torch.distributed.group.WORLD


get_tensor_model_parallel_size = get_pipeline_model_parallel_size = _size
get_data_parallel_size = get_context_model_parallel_size = _size
get_tensor_model_parallel_rank = get_pipeline_model_parallel_rank = get_data_parallel_rank = _rank
get_tensor_model_parallel_replica_groups = get_pipeline_model_parallel_replica_groups = _groups
get_data_parallel_replica_groups = _groups
get_tensor_model_parallel_group = get_pipeline_model_parallel_group = get_data_parallel_group = _group
