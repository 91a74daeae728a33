"""Cases of one behaviour: some that always run, and the others with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def representative(cases: Iterable[Any], always: Sequence[Any]) -> list[Any]:
    """The cases for `parametrize`, of which all but those named are marked slow."""
    return [case if case in always else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
