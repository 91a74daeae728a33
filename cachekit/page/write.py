"""Write the page of a store: `cachekit report`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.actions.report import Report, report
from cachekit.errors import UsageError
from cachekit.page.page import page
from cachekit.store import Store
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.actions.price import Price


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was written.

    Attributes:
        path: The file; absolute.
        size: Its bytes.
        report: What it shows, as values.
    """

    path: Path
    size: int
    report: Report

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"path": str(self.path), "bytes": self.size, "run": self.report.stats.scope.run}


def write_page(store: Store, output: Path, *, run: str = "", price: Price | None = None) -> Page:
    """Gather what a store has seen, and write it as one file of HTML, whole or not at all.

    Args:
        store: The store.
        output: The file.
        run: The run whose time line is shown; by default the last one that compiled.
        price: What an hour costs.

    Raises:
        UnknownNameError: There is no such run.
        UsageError: The file cannot be written.
    """
    found = report(store, run=run, price=price)
    return Page(output.absolute(), _write(output, page(found)), found)


def _write(output: Path, text: str) -> int:
    raw = text.encode("utf-8")
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        if output.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        try:
            fresh.write_bytes(raw)
            fresh.replace(output)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written", cause=error.strerror or str(error), hint="name another file with --output"
        ) from error
    return len(raw)
