"""Where the repository is, and real files where somebody has them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def real_dir(*parts: str) -> Path:
    """A folder of real files; skips the test where they are not at hand."""
    folder = Path(os.environ.get("CACHEKIT_REAL_DIR") or ROOT.parent / "shared" / "real").joinpath(*parts)
    if not folder.exists():
        import pytest  # the processes that tests start do without it, which saves each 0.15 s

        pytest.skip(f"no real files in {folder} (CACHEKIT_REAL_DIR)")
    return folder
