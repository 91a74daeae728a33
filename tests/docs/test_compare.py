"""The figures of docs/compare.md are those that benchmarks/bench_compare.py measured."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_compare  # noqa: E402


def test_the_page_has_the_table_that_the_benchmark_renders():
    found = json.loads((ROOT / "benchmarks" / "compare.json").read_text(encoding="utf-8"))
    assert [*found["cells"]] == [*bench_compare.ROWS]
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    assert bench_compare.render(found) in page, (
        "python benchmarks/bench_compare.py --json benchmarks/compare.json --render"
    )
