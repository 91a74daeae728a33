"""Small things."""

import os

import torch


class EmbeddingUtility:
    """Which words are whose."""

    @staticmethod
    def range_from_per_partition_vocab_size(per_partition_vocab_size, rank, world_size):
        return rank * per_partition_vocab_size, (rank + 1) * per_partition_vocab_size


def divide(numerator, denominator):
    assert numerator % denominator == 0, f"{numerator} is not divisible by {denominator}"
    return numerator // denominator


def get_local_world_size():
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def move_model_to_device(model, device):
    model.to(device)


def move_all_tensor_to_cpu(data, convert=True):
    if isinstance(data, torch.Tensor):
        return data.cpu() if convert else data
    if isinstance(data, dict):
        return {name: move_all_tensor_to_cpu(value, convert) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(move_all_tensor_to_cpu(value, convert) for value in data)
    return data
