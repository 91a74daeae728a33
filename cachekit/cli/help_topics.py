"""`cachekit help TOPIC`: what does not belong to one verb."""

from __future__ import annotations

from typing import Annotated

import typer

from cachekit.cli import out
from cachekit.errors import UsageError, every_error

NAME = "help"

MEANINGS = {
    0: "ok",
    1: "failed",
    2: "usage: options, recipe, data",
    3: "not warm (--require-warm)",
    4: "a shared cache refuses this token",
    5: "damaged bytes",
    6: "the compiler failed",
    7: "a shared cache cannot be reached",
    75: "waited too long for another process",
    130: "interrupted (Ctrl-C, SIGTERM)",
}

Topic = Annotated[str, typer.Argument(metavar="[TOPIC]", help="exit-codes.", autocompletion=lambda: ["exit-codes"])]


def command(topic: Topic = "exit-codes") -> int:
    """Explain a topic: exit-codes.

    Example:  cachekit help exit-codes
    """
    if topic != "exit-codes":
        raise UsageError(f"no help topic {topic!r}", hint="exit-codes; for a verb, `cachekit VERB --help`")
    rows = []
    for number, meaning in MEANINGS.items():
        codes = sorted({cls.code for cls in every_error() if cls.exit_code == number})
        # Two codes a line: a table of 80 columns.
        pairs = [", ".join(codes[start : start + 2]) for start in range(0, len(codes), 2)] or [""]
        rows += [[str(number) * (pair is pairs[0]), meaning * (pair is pairs[0]), pair] for pair in pairs]
    for line in out.table(rows, ["exit", "meaning", "error codes"]):
        out.text(line)
    return 0
