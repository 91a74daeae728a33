"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import sys


def main() -> None:
    """The `cachekit` command."""
    from cachekit.cli.app import run

    sys.exit(run(sys.argv[1:]))
