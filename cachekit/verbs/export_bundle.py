"""Export records as one file, for a machine that no remote reaches: `cachekit store export NAME.tar`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from cachekit.errors import MissError, UnknownNameError, UsageError
from cachekit.remotes.bundle_out import write_bundle
from cachekit.store import Store
from cachekit.store.record import Record
from cachekit.values import Answer
from cachekit.verbs.entry import find
from cachekit.verbs.session import Session, using_store

ARCHIVES = frozenset({".tar", ".gz", ".tgz", ".xz", ".zst", ".bz2", ".zip"})  # of which a bundle is none but the first


class BundledRecord(Struct, frozen=True):
    """A record in a bundle."""

    key: str
    recipe: str
    directory: str
    bytes: int


class BundledFile(Struct, frozen=True):
    """A file in a bundle."""

    path: str
    bytes: int
    sha256: str


class Bundled(Answer, frozen=True, tag="cachekit/export-bundle/1"):
    """What an export wrote, or would write.

    Attributes:
        bundle: The file; `-` is standard output.
        dry_run: Nothing was written.
        bytes: Of the files in the bundle.
        size: Bytes of the bundle itself; 0 in a dry run.
        sha256: Of the bundle itself; empty in a dry run.
        signed: Each of its records has a signature, so that it is taken where its signers are known.
        seconds: Wall time.
    """

    bundle: str
    dry_run: bool
    records: tuple[BundledRecord, ...]
    files: tuple[BundledFile, ...]
    bytes: int
    size: int
    sha256: str
    signed: bool
    seconds: float


def is_bundle(path: Path, said: str) -> bool:
    """Whether a target means a bundle; otherwise it is the folder of a compiler's own cache.

    Raises:
        UsageError: It is called as another kind of archive is.
    """
    if path.suffix != ".tar" and path.suffix.lower() in ARCHIVES and not path.is_dir():
        raise UsageError(
            f"{said} would be a folder",
            cause="a bundle's name ends in .tar",
            hint="cachekit store export NAME.tar ...",
        )
    return path.suffix == ".tar" and not path.is_dir()


def chosen(store: Store, keys: Sequence[str], all_of: str = "") -> list[Record]:
    """What a bundle is to carry.

    Args:
        store: The store.
        keys: Of records, or their first digits; none means all.
        all_of: Of these those of one compiler's folder.

    Raises:
        UnknownNameError: Nothing is called that.
    """
    if keys:
        return list({record.key: record for record in (find(store, key) for key in keys)}.values())
    records = list(store.records(lambda one: not all_of or one.directory == all_of))
    if not records:
        raise UnknownNameError(
            f"the store has no records{f' of {all_of}' if all_of else ''}", hint="`cachekit store ls` lists the records"
        )
    return records


def check_warm(store: Store, key: str, recipe: str, machine: Sequence[str] = ()) -> None:
    """See that a recipe's record is there.

    Args:
        store: The store.
        key: The recipe's.
        recipe: As it is typed.
        machine: The options that say which other machine is meant.

    Raises:
        MissError: It is not.
    """
    if not store.by_prefix(key):
        raise MissError(
            f"{recipe} is not in the store: key {key[:16]} has no record",
            hint=f"cachekit pull {' '.join([recipe, *machine])}, or there cachekit warm {recipe}"
            if machine
            else f"cachekit pull {recipe}, or cachekit warm {recipe}",
        )


@using_store
def export_bundle(
    session: Session, records: Sequence[Record], target: Path | None, *, dry_run: bool = False
) -> Bundled:
    """Write records and their files as a bundle. The file appears whole, or not at all.

    Args:
        session: Collaborators.
        records: Of the store.
        target: A file; None is standard output.
        dry_run: Only say what it would hold.

    Raises:
        UntrustedError: A record is not given to others: nobody vouches for where it came from. Nothing was written.
        IntegrityError: A record of the store is not whole. Nothing was written.
        UsageError: The file cannot be written, or something else lies there.
    """
    start = time.monotonic()
    done = write_bundle(session.store, records, target, session.remotes.trust, dry_run=dry_run)
    return Bundled(
        bundle=str(target or "-"),
        dry_run=dry_run,
        records=tuple(BundledRecord(one.key, one.recipe, one.directory, one.size) for one in done.records),
        files=tuple(BundledFile(one.path, one.size, one.sha256) for one in done.members),
        bytes=sum(one.size for one in done.members),
        size=done.totals.size if done.totals else 0,
        sha256=done.totals.sha256 if done.totals else "",
        signed=done.signed,
        seconds=round(time.monotonic() - start, 3),
    )
