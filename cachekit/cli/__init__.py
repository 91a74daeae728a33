"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import sys


def main() -> None:
    """The `cachekit` command."""
    from cachekit.cli.app import run, stop_when_asked

    stop_when_asked()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    sys.exit(run(sys.argv[1:]))
