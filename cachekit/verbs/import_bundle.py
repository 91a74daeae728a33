"""Import a bundle: `cachekit store import NAME.tar`. All of it is checked before any of it becomes visible."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cachekit.errors import UsageError
from cachekit.remotes import trust
from cachekit.remotes.bundle_in import State, read_bundle
from cachekit.store.bundle import Totals
from cachekit.store.record import Record
from cachekit.verbs.session import Session, holding


@dataclass(frozen=True, slots=True)
class Unbundled:
    """What an import took, or would take.

    Attributes:
        source: The bundle.
        dry_run: Nothing was written.
        records: Each with what became of it: `added`; `merged` with modules that the store's own has; `present` as a
            whole; `kept` is another build in the store, which stays.
        size: Bytes that the store lacked.
        totals: The bundle's size and digest.
        seconds: Wall time.
    """

    source: str
    dry_run: bool
    records: tuple[tuple[Record, State], ...]
    size: int
    totals: Totals
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "bundle": self.source,
            "dry_run": self.dry_run,
            "records": [
                {
                    "key": record.key,
                    "recipe": record.recipe,
                    "directory": record.directory,
                    "modules": [module.name for module in record.modules],
                    "bytes": record.size,
                    "state": state,
                }
                for record, state in self.records
            ],
            "bytes": self.size,
            "size": self.totals.size,
            "sha256": self.totals.sha256,
            "seconds": round(self.seconds, 3),
        }


@contextmanager
def opened(path: Path | None) -> Iterator[tuple[IO[bytes], str]]:
    """A bundle's bytes, and its name for messages; None is standard input.

    Raises:
        UsageError: It cannot be opened.
    """
    if path is None:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        source = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=error.strerror or str(error), hint="see its mode") from error
    with source:
        yield source, str(path)


@holding
def import_bundle(session: Session, source: IO[bytes], name: str, *, dry_run: bool = False) -> Unbundled:
    """Take the records of a bundle into the store.

    Args:
        session: Collaborators.
        source: The bundle's bytes.
        name: For messages.
        dry_run: Only check it, and say what would be taken.

    Raises:
        UntrustedError: Nothing says who made it, and the user does not say to trust that.
        IntegrityError: It is no bundle, or not whole. Nothing was taken.
        UsageError: A later cachekit made it, or it cannot be read.
        StoreError: The store cannot be written, or has no room.
    """
    if not (dry_run or session.config.trust_all):
        raise trust.refusal(name, "a bundle does not say who made it", trust.HINT_ONCE)
    start = time.monotonic()
    read = read_bundle(session.store, source, name, dry_run=dry_run)
    done = Unbundled(name, dry_run, read.records, read.size, read.totals, time.monotonic() - start)
    session.journal.emit("import.end", **done.as_dict())
    return done
