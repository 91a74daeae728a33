"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import sys

from cachekit.cli import stop


def main() -> None:
    """The `cachekit` command."""
    stop.listen()
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the verbs were loaded: what one of them does answers for itself
        from cachekit.cli import out

        out.setup_early(sys.argv[1:])
        code = out.error(stop.interrupted())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    from cachekit.cli.app import run

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return run(arguments)
