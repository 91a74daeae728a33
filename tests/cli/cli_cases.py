"""Command lines in processes of their own, for the tests of the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.cli_session import (
    DRIVER,
    environment,
)


def start(worker: Path, mode: str, *arguments: str) -> subprocess.Popen:
    """A run whose worker hangs, with a child of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(worker), *arguments],
        env=environment(FAKE_WORKER=mode),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background of a shell has SIGINT ignored, and it is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
