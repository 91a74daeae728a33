"""Servers that come as programs: each in a process of its own, below one that ends with the tests."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cachekit.process import SUBREAPER

STARTS = 120.0  # seconds at most


@contextmanager
def listening(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    """Run it in a folder, once it listens and until it has ended."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*SUBREAPER, *command], stdout=log, stderr=log, cwd=folder)
        try:
            end = time.monotonic() + STARTS
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"{command[0]} did not start: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()  # the subreaper ends what is below, in its own time
            process.wait()
