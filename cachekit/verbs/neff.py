"""Say what compiled files are, and whether they are whole: `cachekit neff FILE…`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cachekit.compilers import registry
from cachekit.compilers.adapter import ABSENT, DAMAGED, UNKNOWN
from cachekit.errors import IntegrityError, UsageError
from cachekit.text import one_line


def inspect(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Each file's state and, where a compiler knows it, all that it says; one that cannot be read stops no other."""
    return [{"file": one_line(str(path)), **_said(path)} for path in paths]


def _said(path: Path) -> dict[str, Any]:
    found = {"state": UNKNOWN, "reason": "no compiler that is known here makes such files"}
    for adapter in registry.every():
        if (said := adapter.describe(path)) is not None:
            found = said
            if said["state"] != UNKNOWN:
                break
    return found


def exit_code(found: Iterable[dict[str, Any]]) -> int:
    """What the process says: damage before absence."""
    states = {one["state"] for one in found}
    if states & {DAMAGED, UNKNOWN}:
        return IntegrityError.exit_code
    return UsageError.exit_code if ABSENT in states else 0
