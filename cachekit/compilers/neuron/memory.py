"""How many compilers fit into this host's memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

from cachekit.compilers.neuron import facts

# What a compile holds altogether, and what others need beside it, as a multiple of its largest process; ours.
SHARE = 2.0


def host_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the container's limit where that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            total = min(total, int(text))
    return total


def jobs_for_memory(total: int | None = None) -> int:
    """Compilers at once: one for each 64 GiB begun, as `neuron_parallel_compile` itself counts."""
    return max(1, math.ceil((host_memory() if total is None else total) / facts.MEMORY_PER_COMPILE))


def jobs_for_peak(peak: int, total: int | None = None, processors: int | None = None) -> int:
    """Compilers at once whose largest process holds `peak` bytes: what fits, and no more than there are processors."""
    fitting = int((host_memory() if total is None else total) // max(1, int(peak * SHARE)))
    return max(1, min(fitting, processors or os.cpu_count() or 1))
