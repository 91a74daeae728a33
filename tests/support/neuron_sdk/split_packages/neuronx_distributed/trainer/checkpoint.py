"""Checkpoints in parts: a file a worker. A whole model is one part."""

from pathlib import Path

import torch

from neuronx_distributed.parallel_layers.utils import move_all_tensor_to_cpu

g_iostate = None


def save_checkpoint(path, tag, model=None, optimizer=None, **_):
    """Writes `<path>/<tag>/model/dp_rank_00_tp_rank_00_pp_rank_00.pt`."""
    place = Path(path) / str(tag) / "model"
    place.mkdir(parents=True, exist_ok=True)
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    torch.save(move_all_tensor_to_cpu(dict(state)), place / "dp_rank_00_tp_rank_00_pp_rank_00.pt")
