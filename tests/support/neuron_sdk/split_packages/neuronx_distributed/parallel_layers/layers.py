"""Linear layers and embeddings of which each worker has its part: here all of it."""

import torch
from torch import nn


def _filled(weight, init_method):
    if init_method is None:
        nn.init.kaiming_uniform_(weight, a=5**0.5)
    else:
        init_method(weight)


class BaseParallelLinear(nn.Module):
    """What both kinds have."""

    def __init__(  # noqa: PLR0917 - AWS's
        self,
        input_size,
        output_size,
        bias=True,
        dtype=torch.float32,
        device=None,
        init_method=None,
        sequence_parallel_enabled=False,
        sequence_dimension=None,
        **options,
    ):
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.arg_init_method, self.dtype, self.options = init_method, dtype, options
        self.sequence_parallel_enabled, self.sequence_dimension = sequence_parallel_enabled, sequence_dimension
        self.stride, self.tensor_parallel_group = options.get("stride", 1), options.get("tensor_model_parallel_group")
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=dtype or torch.float32, device=device))
        self.bias = nn.Parameter(torch.zeros(output_size, dtype=dtype, device=device)) if bias else None
        self.initialize_weight_and_bias()

    def initialize_weight_and_bias(self):
        if self.weight.device.type != "meta":
            with torch.no_grad():
                _filled(self.weight, self.arg_init_method)

    def forward(self, inputs, *_):
        return nn.functional.linear(inputs, self.weight, self.bias)


class ColumnParallelLinear(BaseParallelLinear):
    """Split by outputs."""

    def __init__(self, input_size, output_size, bias=True, gather_output=True, **options):
        super().__init__(input_size, output_size, bias, **options)
        self.gather_output = gather_output


class RowParallelLinear(BaseParallelLinear):
    """Split by inputs."""

    def __init__(self, input_size, output_size, bias=True, input_is_parallel=False, **options):
        super().__init__(input_size, output_size, bias, **options)
        self.input_is_parallel = input_is_parallel


class ParallelEmbedding(nn.Module):
    """Split by words."""

    def __init__(  # noqa: PLR0917 - AWS's
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        init_method=nn.init.normal_,
        dtype=torch.float32,
        device=None,
        **options,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.options, self.init_method = options, init_method
        self.sequence_parallel_enabled = options.get("sequence_parallel_enabled", False)
        self.weight = nn.Parameter(
            torch.empty(num_embeddings, embedding_dim, dtype=dtype or torch.float32, device=device)
        )
        self.initialize_weight_and_bias()

    def initialize_weight_and_bias(self):
        if self.weight.device.type != "meta":
            with torch.no_grad():
                _filled(self.weight, self.init_method)

    def forward(self, words):
        return nn.functional.embedding(words, self.weight)


def create_local_weight(full_weight, partition_dim, per_partition_size, stride, out_weight=None):
    assert full_weight.shape[partition_dim] == per_partition_size
    if out_weight is None:
        return full_weight.clone()
    out_weight.copy_(full_weight)
    return out_weight
