"""A few XLA graphs, each executed in another way: a marked step, a value asked for, a tensor taken to the CPU."""

import torch
import torch_xla
import torch_xla.debug.metrics as xla_metrics

torch.manual_seed(0)
device = torch_xla.device()
layer = torch.nn.Linear(4, 4).to(device)
rows = torch.rand(3, 4).to(device)
layer(rows).sum().item()
(layer(rows) * 2).sum().backward()
torch_xla.sync()
(layer.weight.grad + 1).cpu()
bool((rows * 3).max() > 0)
print(f"xla-compiles={xla_metrics.counter_value('UncachedCompile')}", flush=True)
