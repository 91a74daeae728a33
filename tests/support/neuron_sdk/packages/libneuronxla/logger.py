"""The log lines of libneuronxla 2.2.17544, as real logs have them: six digits that are zero-padded milliseconds."""

from __future__ import annotations

import os
import sys
import time

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
level = "INFO"


def info(text: str) -> None:
    """Log a line at INFO, which `--log_level=ERROR` hides."""
    _line("INFO", text)


def error(text: str) -> None:
    """Log a line at ERROR."""
    _line("ERROR", text)


def _line(name: str, text: str) -> None:
    if LEVELS[name] >= LEVELS.get(level.upper(), 20):
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:06}"
        # One write a line: ranks share the terminal. Which stream the real one uses is not known.
        sys.stdout.flush()
        os.write(1, f"{stamp}:  {os.getpid()}  [{name}]: {text}\n".encode())
