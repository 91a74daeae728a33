"""How long a look at a cache of 50,000 modules takes, against `find` over the same tree."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measure import limit, process, ratio, seconds

from cachekit.compilers.neuron.entries import scan

MODULES = 50_000
REPEATS = 5
NAMES = ("model.neff", "model.done", "model.hlo_module.pb", "compile_flags.json")


def grow(root: Path) -> None:
    for number in range(MODULES):
        folder = root / f"neuronxcc-2.{20 + number % 5}.0.0+abcdef01" / f"MODULE_{10**18 + number}+f7f529f3"
        folder.mkdir(parents=True)
        for name in NAMES:
            (folder / name).touch()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root)
        finished = sum(entry.finished for entry in scan(root).entries)
        if finished != MODULES:
            sys.exit(f"{finished} instead of {MODULES} finished modules")
        ours = seconds(lambda: scan(root), REPEATS)
        # The same question to `find`: which regular files are there. With sizes, both ask once more for each file.
        theirs = seconds(lambda: process(["find", folder, "-type", "f"]), REPEATS)
        sizes = seconds(
            lambda: sum(file.st_size for entry in scan(root).entries for file in entry.files().values()), REPEATS
        )
        listed = seconds(lambda: process(["find", folder, "-type", "f", "-printf", "%s\n"]), REPEATS)
    results = [
        limit(f"scan of {MODULES:,} modules", ours, 2.0),
        ratio("scan against find", ours, theirs, at_most=3),
        ratio("scan with sizes against find with sizes", sizes, listed, at_most=4),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
