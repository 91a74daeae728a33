"""Print the rows of docs/features.md with the tests that prove them, from the outcomes of the last runs.

    make test test-slow features

A row counts only while every test that names it passes. Exit 1 where one failed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    table = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \|$", (ROOT / "docs" / "features.md").read_text(), re.MULTILINE)
    source = ROOT / ".features.json"
    if not source.exists():
        sys.exit("no test has run yet: make test")
    proofs: dict[str, list[tuple[str, str]]] = {}
    for test, entry in json.loads(source.read_text()).items():
        for row in entry["rows"]:
            proofs.setdefault(row, []).append((test, entry["outcome"]))
    unknown = set(proofs) - {row for row, _ in table}
    proved = failed = 0
    for row, name in table:
        tests = proofs.get(row, [])
        good = sorted(test for test, outcome in tests if outcome == "passed")
        bad = sorted(test for test, outcome in tests if outcome == "failed")
        failed += len(bad)
        if good and not bad:
            proved += 1
            print(f"{row}  {name}")
            print("\n".join(f"      {test}" for test in good))
        for test in bad:
            print(f"{row}  FAILED {test}")
    print(f"\n{proved} of {len(table)} rows have passing tests")
    if unknown:
        print(f"unknown rows: {', '.join(sorted(unknown))}")
    return 1 if failed or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
