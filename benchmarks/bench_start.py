"""How long a newcomer waits for `cachekit --help`, and a script for `cachekit plan`; and how much memory that takes."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path

from measure import limit, process, ratio, seconds

REPEATS = 15
RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "bert.yaml"


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        # As pip leaves it: compiled to bytecode, whatever this shell says of writing that.
        environment = {**os.environ, "CACHEKIT_HOME": home, "PYTHONDONTWRITEBYTECODE": ""}
        run = [sys.executable, "-m", "cachekit"]
        for arguments in (["--help"], ["plan", str(RECIPE)]):
            process([*run, *arguments], environment)
        bare = seconds(lambda: process([sys.executable, "-c", "pass"]), REPEATS)
        typer = seconds(lambda: process([sys.executable, "-c", "import typer, msgspec, yaml"]), REPEATS)
        helps = seconds(lambda: process([*run, "--help"], environment), REPEATS)
        plans = seconds(lambda: process([*run, "plan", str(RECIPE)], environment), REPEATS)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    results = [
        limit("cachekit --help", helps, 0.150),
        limit("cachekit plan", plans, 0.300),
        limit("cachekit plan, memory", [peak], 60, "MB"),
        ratio("cachekit plan against python -c pass", plans, bare, at_most=25),
        ratio("cachekit plan against importing its libraries", plans, typer, at_most=4),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
