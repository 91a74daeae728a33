"""One Neuron host at a time: whose lock is stale is judged by all processes of this machine, other tests' too."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def neuron_alone() -> Iterator[None]:
    """Wait until no other test of this machine's user plays a Neuron host."""
    with FileLock(Path(tempfile.gettempdir()) / f"cachekit-tests-neuron-{os.getuid()}.lock"):
        yield
