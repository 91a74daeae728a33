"""One training step of a small classifier: the user's script of bench_compare.py. It knows nothing of cachekit.

python compare_step.py [--load FILE] [--save FILE]

Prints JSON: the graphs that Inductor compiled and found, by its own counters, and what the step computed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch._dynamo.utils import counters


def classifier() -> tuple[nn.ModuleDict, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """Two layers, and their loss."""
    model = nn.ModuleDict({"hidden": nn.Linear(64, 64), "head": nn.Linear(64, 1)})

    def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = model["head"](nn.functional.gelu(model["hidden"](rows)))
        return nn.functional.mse_loss(found.squeeze(1), labels)

    return model, loss


def step(model: nn.ModuleDict, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> list[float]:
    """The loss, and two sums over its gradients."""
    model.zero_grad()
    value = loss(torch.linspace(-1, 1, 32 * 64).sin().view(32, 64), torch.linspace(0, 1, 32))
    value.backward()
    gradient = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    return [value.item(), gradient.norm().item(), gradient.abs().sum().item()]


def main() -> None:
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if pid := os.environ.get("COMPARE_PID"):
        Path(pid).write_text(str(os.getpid()))
    torch.manual_seed(0)
    model, loss = classifier()
    expected = step(model, loss)
    if "--load" in options:
        torch.compiler.load_cache_artifacts(Path(options["--load"]).read_bytes())
    computed = step(model, torch.compile(loss, dynamic=False))
    if "--save" in options and (saved := torch.compiler.save_cache_artifacts()):
        Path(options["--save"]).write_bytes(saved[0])
    inductor = counters["inductor"]
    print(
        json.dumps(
            {
                "compiled": inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"],
                "found": inductor["fxgraph_cache_hit"],
                "right": all(abs(a - b) < 1e-3 * abs(b) for a, b in zip(computed, expected, strict=True)),
            }
        )
    )


if __name__ == "__main__":
    main()
