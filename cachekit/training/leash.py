"""Die with the parent: `python -m cachekit.training.leash COMMAND…` ends when whoever started it does.

A launcher between cachekit and its worker (torchrun, a compiler's tool) need not pass a kill on. Each process that
cachekit starts, or has started, asks the kernel itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Have the kernel end this process when process `parent`, which started it, ends; at once if it has already."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)


if __name__ == "__main__":
    die_with(os.getppid())
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the caller's own command line
