"""Stands in for torch where a test needs only its launcher, at once: `python -m torch.distributed.run`."""
