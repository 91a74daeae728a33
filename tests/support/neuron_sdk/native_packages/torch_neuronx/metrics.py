"""Counters by name; None until they count, and where nobody switched them on."""

from __future__ import annotations

import os

_COUNTED: dict[str, int] = {}
_STATE = {"on": os.environ.get("TORCH_NEURONX_METRICS_ENABLED") == "1"}


def set_enabled(on: bool) -> None:
    """Count from now on, or no longer."""
    _STATE["on"] = on


def count(name: str) -> None:
    """Add one."""
    if _STATE["on"]:
        _COUNTED[name] = _COUNTED.get(name, 0) + 1


def get_counter_value(name: str) -> int | None:
    """What was counted."""
    return _COUNTED.get(name)
