"""Import a bundle: `cachekit store import NAME.tar`. All of it is checked before any of it becomes visible."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct

from cachekit import files
from cachekit.errors import UntrustedError, UsageError
from cachekit.remotes.bundle_in import State, read_bundle
from cachekit.remotes.judging import HINT_BUNDLE, refusal
from cachekit.text import cause_of, one_line
from cachekit.values import Answer
from cachekit.verbs.session import Session, using_store


class UnbundledRecord(Struct, frozen=True):
    """A record of a bundle, and what became of it.

    Attributes:
        modules: Their names.
        state: `added`; `merged` with modules that the store's own record has; `present` as a whole; `kept` where the
            store has another build, which stays.
        untrusted: Why it may not be used, so that the import would take nothing; only in a dry run.
    """

    key: str
    recipe: str
    directory: str
    modules: tuple[str, ...]
    bytes: int
    state: State
    untrusted: str = ""


class Unbundled(Answer, frozen=True, tag="cachekit/import-bundle/1"):
    """What an import took, or would take.

    Attributes:
        dry_run: Nothing was written.
        bytes: That the store lacked.
        size: Bytes of the bundle itself.
        sha256: Of the bundle itself.
        seconds: Wall time.
    """

    bundle: str
    dry_run: bool
    records: tuple[UnbundledRecord, ...]
    bytes: int
    size: int
    sha256: str
    seconds: float

    def error(self) -> UntrustedError | None:
        """The error that the import would end with, where this dry run found that it would take nothing."""
        refused = next((one for one in self.records if one.untrusted), None)
        if refused is None:
            return None
        why = f"{one_line(refused.recipe)} ({refused.key[:12]}) in it is {refused.untrusted}"
        return refusal(self.bundle, f"anybody can make a bundle, and {why}", HINT_BUNDLE)


@contextmanager
def opened(path: Path | None) -> Iterator[tuple[IO[bytes], str]]:
    """A bundle's bytes, and its name for messages; None is standard input.

    Raises:
        UsageError: It cannot be opened, or is a pipe or a device, which is not waited for.
    """
    if path is None:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        source = files.opened(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=cause_of(error),
            hint="name a file that you may read, or - for standard input",
        ) from error
    with source:
        yield source, str(path)


@using_store
def import_bundle(session: Session, source: IO[bytes], name: str, *, dry_run: bool = False) -> Unbundled:
    """Take the records of a bundle into the store.

    Args:
        session: Collaborators.
        source: The bundle's bytes.
        name: For messages.
        dry_run: Only check it, and say what would be taken.

    Raises:
        UntrustedError: A record of it is signed by nobody whom the settings name. Nothing was taken.
        IntegrityError: It is not a bundle, or incomplete. Nothing was taken.
        UsageError: A later cachekit made it, or it cannot be read.
        StoreError: The store cannot be written, or has no room.
    """
    start = time.monotonic()
    read = read_bundle(session.store, source, name, session.remotes.trust, dry_run=dry_run)
    records = [
        UnbundledRecord(
            one.key,
            one.recipe,
            one.directory,
            tuple(module.name for module in one.modules),
            one.size,
            state,
            read.untrusted.get(one.key, ""),
        )
        for one, state in read.records
    ]
    done = Unbundled(
        bundle=name,
        dry_run=dry_run,
        records=tuple(records),
        bytes=read.size,
        size=read.totals.size,
        sha256=read.totals.sha256,
        seconds=round(time.monotonic() - start, 3),
    )
    session.journal.emit("import.end", **done.as_dict())
    return done
