"""Write the page of a store: `cachekit report`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.errors import UsageError
from cachekit.ordinary import opened
from cachekit.page.page import page
from cachekit.store import Store
from cachekit.values import by_value
from cachekit.verbs.report import Report, report

if TYPE_CHECKING:
    from cachekit.verbs.price import Price

HEAD = 1024  # bytes of a page in which it says whose it is
OURS = b'<meta name="generator" content="cachekit">'


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
        output: The file. A page that is there is replaced, anything else is not.
        run: The run whose time line is shown; by default the last one that compiled.
        price: What an hour costs.

    Raises:
        UnknownNameError: There is no such run.
        UsageError: The file cannot be written, or something else lies there.
    """
    _check(output)
    found = report(store, run=run, price=price)
    return Page(output.absolute(), _write(output, page(found)), found)


def _check(output: Path) -> None:
    """Never write over what is no page: a typing error must not cost somebody's script, and root a device.

    Raises:
        UsageError: Something else lies there.
    """
    try:
        if output.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with opened(output) as source:
            head = source.read(HEAD)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(output, error) from error
    if head and OURS not in head:
        raise UsageError(
            f"{output} is there, and no page of cachekit's", hint="name another file with --output, or remove it"
        )


def _write(output: Path, text: str) -> int:
    raw = text.encode("utf-8")
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        try:
            fresh.write_bytes(raw)
            fresh.replace(output)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(output, error) from error
    return len(raw)


def _refused(output: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{output} cannot be written", cause=error.strerror or str(error), hint="name another file with --output"
    )
