"""Command lines in processes of their own, for the tests of the command line."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

from tests.support.cli_session import DEADLINE, DRIVER, environment
from tests.support.processes import begin_python, until


def start(worker: Path, mode: str, *arguments: str) -> subprocess.Popen:
    """A run whose worker hangs, with a child of its own."""
    return begin_python("-c", DRIVER, worker, *arguments, environment=environment(FAKE_WORKER=mode))


class Terminal:
    """A command whose stderr is a terminal; stdout is a pipe. Or a whole session at a terminal of its own."""

    def __init__(self, *arguments: str, whole: bool = False, cwd: Path | None = None, **changes: str | None) -> None:
        self._screen, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment(**changes),
            stdin=side if whole else None,
            stdout=side if whole else subprocess.PIPE,
            stderr=side,
            text=True,
            start_new_session=whole,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if whole else None,  # noqa: PLW1509
        )
        os.close(side)
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def _more(self) -> bool:
        if not select.select([self._screen], [], [], 0.05)[0]:
            return self.process.poll() is None
        try:
            block = os.read(self._screen, 65536)
        except OSError:  # the other side was closed
            return False
        self.text += block.decode(errors="replace")
        return bool(block)

    def until(self, text: str) -> None:
        until(lambda: text in self.text or not self._more(), f"{text!r} on the screen")
        assert text in self.text

    def end(self) -> str:
        """Wait for the end; returns stdout."""
        until(lambda: not self._more(), "the end")
        os.close(self._screen)
        return self.process.communicate(timeout=DEADLINE)[0]
