"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import gc
import sys

from cachekit.cli import stop


def main() -> None:
    """The `cachekit` command."""
    # Loading modules makes many objects that all live on: looking for dead ones among them takes a tenth of a start.
    gc.set_threshold(50_000, 20, 100)
    stop.listen()
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the verbs were loaded: what one of them does answers for itself
        from cachekit.cli import out

        out.setup_early(sys.argv[1:])
        code = out.error(stop.interrupted())
    gc.freeze()  # nor among what is left at the end
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    from cachekit.cli.app import run

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return run(arguments)
