"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import signal
import sys
from types import FrameType

# What a scheduler sends before it kills, and a terminal that goes away: what Ctrl-C cleans up must not be left then,
# a lease above all, for which a whole team would wait.
ASKED = ("SIGTERM", "SIGHUP")


def _asked(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _listen() -> None:
    for name in ASKED:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _asked)


def main() -> None:
    """The `cachekit` command."""
    from cachekit.cli.app import run, stop_when_asked

    stop_when_asked()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    _listen()
    sys.exit(run(sys.argv[1:]))
