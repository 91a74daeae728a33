"""What MiniLM reaches on all of dair-ai/emotion: warm, then train, as anybody would. Half an hour on two quiet cores.

Not one of `make bench`, for it measures no speed; its last result stands in README.md beside it. The data set's
`train.txt`, `val.txt` and `test.txt` lie in the folder `data/emotion` of CACHEKIT_REAL_DIR.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from measure import process

RECIPE = Path(__file__).with_name("emotion.yaml")
AT_LEAST = 0.90


def main() -> int:
    data = Path(os.environ.get("CACHEKIT_REAL_DIR", "../shared/real")).resolve() / "data" / "emotion"
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "CACHEKIT_HOME": home}
        files = [f"data.{part}_file={data / name}.txt" for part, name in FILES.items()]
        words = [str(RECIPE), *(word for file in files for word in ("--set", file)), "--format", "json"]
        run = [sys.executable, "-m", "cachekit"]
        warmed = json.loads(process([*run, "warm", *words], environment))
        trained = json.loads(process([*run, "train", *words, "--output-dir", str(Path(home) / "out")], environment))
    test = trained["metrics"]["test"]
    verdict = "ok" if test["accuracy"] >= AT_LEAST and not trained["compiled"] else "MISSED"
    print(
        f"emotion, {test['rows']:,} test rows after {trained['steps']:,} steps: accuracy {test['accuracy']:.4f}, "
        f"macro-F1 {test['f1']:.4f}; warm {warmed['seconds']:.0f} s, train {trained['seconds']:.0f} s, "
        f"{trained['compiled']} compiled; at least {AT_LEAST:g} and none: {verdict}"
    )
    return 0 if verdict == "ok" else 1


FILES = {"train": "train", "validation": "val", "test": "test"}

if __name__ == "__main__":
    sys.exit(main())
