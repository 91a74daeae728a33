"""The first training step: cold, from its own cache folder, from a restored one, and through torch's own artifacts.

A two-layer BERT on the CPU; every figure is a process of its own, in turn. Peers: the same cache folder used again
(nothing can be faster), and `torch.compiler.save_cache_artifacts` / `load_cache_artifacts`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import process, ratio

from cachekit.compilers.inductor import facts
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.store import archive

REPEATS = 3
DRIVER = Path(__file__).with_name("first_step.py")


def first_step(cache: Path, *arguments: str, found: bool) -> float:
    environment = {
        **os.environ,
        facts.CACHE_DIR: str(cache),
        facts.THREADS: "2",
        facts.PRECOMPILE_HEADERS: "0" if found else "1",
        "PYTHONHASHSEED": "0",
    }
    seconds, compiled = process([sys.executable, str(DRIVER), *arguments], environment).split()
    if found and int(compiled):
        sys.exit(f"compiled {compiled} graphs where everything should have been found")
    return float(seconds)


def main() -> int:
    inductor = Inductor()
    cold, reused, restored, artifacts = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = root / "first"
        for number in range(REPEATS):
            shutil.rmtree(first, ignore_errors=True)
            saved = root / f"artifacts{number}"
            cold.append(first_step(first, "--save", str(saved), found=False))
            packed = root / f"{number}.tar"
            with packed.open("wb") as target:
                archive.pack(first, inductor.contents(first), target)
            reused.append(first_step(first, found=True))
            again = root / f"restored{number}"
            again.mkdir()
            archive.unpack(packed, again)
            restored.append(first_step(again, found=True))
            artifacts.append(first_step(root / f"loaded{number}", "--load", str(saved), found=False))
    print(
        f"medians of {REPEATS}: cold {statistics.median(cold):.1f} s, same folder {statistics.median(reused):.1f} s, "
        f"restored {statistics.median(restored):.1f} s, torch's artifacts {statistics.median(artifacts):.1f} s"
    )
    results = [
        ratio("restored against the same folder", restored, reused, at_most=1.25),
        ratio("restored, faster than cold", restored, cold, at_least=5),
        ratio("restored, faster than torch's save/load of artifacts", restored, artifacts, at_least=3),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
