"""Small symmetric systems of equations: a few dozen unknowns, for which no numpy need be loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cholesky(table: Sequence[Sequence[float]]) -> list[list[float]]:
    """The lower triangle whose product with its own transpose is the table, of which only the lower half is read."""
    size = len(table)
    lower = [[0.0] * size for _ in range(size)]
    for row in range(size):
        for column in range(row + 1):
            rest = table[row][column] - sum(a * b for a, b in zip(lower[row][:column], lower[column], strict=False))
            if row == column:
                lower[row][row] = math.sqrt(max(rest, 1e-12))
            else:
                lower[row][column] = rest / lower[column][column]
    return lower


def solve(lower: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Solve `lower · lowerᵀ · x = values`."""
    half: list[float] = []
    for row, value in enumerate(values):
        half.append((value - sum(a * b for a, b in zip(lower[row], half, strict=False))) / lower[row][row])
    size = len(half)
    found = [0.0] * size
    for row in reversed(range(size)):
        later = sum(lower[other][row] * found[other] for other in range(row + 1, size))
        found[row] = (half[row] - later) / lower[row][row]
    return found
