"""Gradients over workers."""

import torch


def bucket_allreduce_gradients(gradients, reduce_over_ep_group=False):
    """One worker's are everybody's."""


def clip_grad_norm(parameters, max_norm, norm_type=2):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
