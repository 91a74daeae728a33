"""The store: publish a record with its blobs, find it again, and never serve bytes that are not what it says."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit.errors import IntegrityError, StoreError
from cachekit.journal import Journal
from cachekit.record import DamagedRecordError, File, Record, decode, encode
from cachekit.store import durable
from cachekit.store.catalogue import Catalogue
from cachekit.store.layout import Layout
from cachekit.store.scratch import Scratch
from cachekit.store.summary import Summaries
from cachekit.store.verify import MISSING, Verifier

if TYPE_CHECKING:
    from filelock import FileLock


class Store:
    """The store at `home`. Any number of processes may use it at once, and any of them may die at any time.

    Args:
        home: Its folder; made when first written to.
        journal: Told about damage (`store.damaged`), once for each piece.
    """

    def __init__(self, home: Path, journal: Journal) -> None:
        self.layout = Layout(home)
        self._verifier = Verifier(self.layout)
        self._catalogue = Catalogue(self.layout)
        self._journal = journal
        self._told: set[Path] = set()
        self._changes: dict[str, FileLock] = {}
        self._flaws: dict[str, str] = {}

    # Reading

    def lookup(self, key: str, directory: str, model_type: str) -> Record | None:
        """The record of a key, if it is whole: its own digest, and that of every blob, fits.

        Damage is reported to the journal, moved to quarantine, and a miss.
        """
        self._restore_index()
        self._flaws.pop(key, None)
        return self._load(self.layout.record(directory, model_type, key), key, check_blobs=True)

    def flaw(self, key: str) -> str:
        """What the last `lookup` of a key found wrong with its record; empty where there is none, or a whole one."""
        return self._flaws.get(key, "")

    def records(self, without: str = "") -> Iterator[Record]:
        """All readable records, in the order of their paths; their blobs are not checked.

        Args:
            without: A model type whose records are not even read.
        """
        self._restore_index()
        for path in self._record_paths():
            if path.parent.name == without:
                continue
            record = self._load(path, path.stem, check_blobs=False)
            if record is not None:
                yield record

    def summaries(self, without: str = "", *, glance: bool = False) -> Summaries:
        """All readable records in few words, in the order of their paths, as `records` would read them this moment.

        Args:
            without: A model type whose records are not even looked at.
            glance: Look whether they are there, not whether they have changed: enough for finding one by its key or
                its ingredients, which are what its name says, before it is read.
        """
        self._restore_index()
        return self._catalogue.summaries(self._read, without, glance=glance)

    def read(self, directory: str, model_type: str, key: str) -> Record | None:
        """The record of a key, its own digest checked; its blobs are not, which `lookup` does."""
        return self._load(self.layout.record(directory, model_type, key), key, check_blobs=False)

    def _read(self, path: Path) -> tuple[Record | None, bool]:
        record = self._load(path, path.stem, check_blobs=False)
        return record, record is not None or path.stem not in self._flaws

    def missing(self, record: Record) -> list[File]:
        """Files of a record that the store lacks, each once; damaged ones are set aside, and missing then."""
        return self.lacking(record.files)

    def lacking(self, files: Iterable[File]) -> list[File]:
        """Files that the store lacks, as `missing` finds those of a record."""
        lacking = []
        for file in {file.sha256: file for file in files}.values():
            reason = self._verifier.damage(file, memo=True)
            if reason and (reason == MISSING or self._condemn_blob(file, reason)):
                lacking.append(file)
        return lacking

    @contextmanager
    def reading(self, file: File) -> Iterator[Path]:
        """Read a blob while its digest is computed beside; leaving the block means that it fitted.

        What the block made of the bytes is to be thrown away when this raises.

        Raises:
            IntegrityError: The bytes are not those of the record, or the block failed over bytes that are not.
        """
        path = self.layout.blob(file.sha256)
        outcome: list[str] = []
        thread = threading.Thread(target=lambda: outcome.append(self._verifier.damage(file, memo=False)), daemon=True)
        thread.start()
        try:
            yield path
        except Exception as error:
            thread.join()
            if outcome == [""]:
                raise
            raise self._refuse(file, (outcome or ["unreadable"])[0]) from error
        thread.join()
        if outcome != [""]:
            raise self._refuse(file, (outcome or ["unreadable"])[0])

    def _refuse(self, file: File, reason: str) -> IntegrityError:
        self._condemn_blob(file, reason)
        if reason == MISSING:
            return IntegrityError(
                f"{file.sha256[:16]} is missing in the store", cause=file.path, hint="warm again to compile it anew"
            )
        return IntegrityError(
            f"{file.sha256[:16]} in the store is damaged",
            cause=reason,
            hint="it was set aside; warm again to compile it anew",
        )

    def _load(self, path: Path, key: str, *, check_blobs: bool) -> Record | None:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._flaws[key] = f"its record cannot be read: {error.strerror or error}"
            self._journal.emit("store.damaged", path=str(path), reason=error.strerror or str(error), kept=True)
            return None
        try:
            record = decode(raw)
        except DamagedRecordError as error:
            self._flaws[key] = f"its record is damaged: {error}"
            self._condemn(path, str(error), lambda: path.read_bytes() == raw)
            return None
        if record is None:
            return None  # another schema: a miss, and none of our business
        if record.key != key or self.layout.record(record.directory, record.model_type, record.key) != path:
            self._flaws[key] = "its record is damaged: it is another key's"
            self._condemn(path, "it is another key's record", lambda: path.read_bytes() == raw)
            return None
        if check_blobs:
            suspected = [(file, reason) for file in record.files if (reason := self._verifier.damage(file, memo=True))]
            damaged = [(file, reason) for file, reason in suspected if self._condemn_blob(file, reason)]
            if damaged:
                file, reason = damaged[0]
                state = "is missing" if reason == MISSING else f"is damaged: {reason}"
                self._flaws[key] = f"its record cannot be restored: {file.path} {state}"
                self._condemn(path, "a blob of it is damaged", lambda: path.read_bytes() == raw, quiet=True)
                return None
            self._check_manifest(raw)
        return record

    # Damage

    def _condemn_blob(self, file: File, reason: str) -> bool:
        """Set a blob aside that is not what its name says; returns whether it is not what its record says.

        Another process may just have put a whole one in its place; and a stranger's record may say another size.
        """
        path = self.layout.blob(file.sha256)

        def is_bad() -> bool:
            return self._verifier.damage(structs.replace(file, size=path.stat().st_size), memo=False) != ""

        return self._condemn(path, reason, is_bad) or self._verifier.damage(file, memo=True) != ""

    def _condemn(self, path: Path, reason: str, is_bad: Callable[[], bool], *, quiet: bool = False) -> bool:
        """Move a damaged file out of the way, and say so once; returns False where it is found whole by now.

        Args:
            path: The file.
            reason: What is wrong with it.
            is_bad: Looks again: since it was read, it may have been replaced.
            quiet: Say nothing.
        """
        place = self.layout.quarantine / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{path.name}"
        kept, moved = False, False
        try:
            judged = path.stat()
            if not is_bad():
                return False
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
            moved = True
            if not os.path.samestat(place.stat(), judged):
                # Replaced between the look and the rename: what came is judged for itself. Linked, so that nothing
                # is overwritten that has come since.
                with suppress(FileExistsError):
                    os.link(place, path)
                place.unlink()
                return is_bad()
        except FileNotFoundError:
            pass  # it is missing, or another process was quicker
        except OSError:
            kept = True  # a read-only store; it stays, and stays a miss
        # Once set aside, a blob is missing where its record still names it: the same damage, told already.
        if not quiet and not (path in self._told and reason == MISSING):
            where = str(place) if moved else ""
            self._journal.emit("store.damaged", path=str(path), reason=reason, kept=kept, quarantine=where)
        self._told.add(path)
        return True

    def _check_manifest(self, raw: bytes) -> None:
        """Renew the copy of a record among the blobs, from which a lost index is rebuilt."""
        digest = hashlib.sha256(raw).hexdigest()
        file = File("record.json", len(raw), digest)
        reason = self._verifier.damage(file, memo=True)
        if not reason:
            return
        path = self.layout.blob(digest)
        if path.exists():
            self._condemn_blob(file, reason)
        else:
            self._journal.emit("store.damaged", path=str(path), reason=reason, kept=False)
        with suppress(StoreError):
            self._write(raw, path)

    # Writing

    def check_writable(self) -> None:
        """Find out before an hour of compiling whether its result can be kept.

        Raises:
            StoreError: It cannot.
        """
        try:
            with Scratch(self.layout.tmp, "check") as folder:
                (folder / "probe").write_bytes(b"cachekit")
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the store's file system, in which to build what `publish` takes.

        Raises:
            StoreError: It cannot be made.
        """
        scratch = Scratch(self.layout.tmp, "publish")
        try:
            folder = scratch.__enter__()
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        try:
            yield folder
        finally:
            scratch.__exit__(None, None, None)

    @contextmanager
    def changing(self, key: str) -> Iterator[None]:
        """Hold a key's record for the moment that reading, changing and publishing it takes; others wait.

        May be entered again by the holder: `publish` does. Its lock is another than that of a compile, which may be
        held for an hour; like that one it is the kernel's, and ends with its holder.

        Raises:
            StoreError: The lock cannot be made.
        """
        from filelock import FileLock

        lock = self._changes.setdefault(key, FileLock(self.layout.locks / f"{key}.record.lock"))
        try:
            self.layout.locks.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        try:
            yield
        finally:
            lock.release()

    def publish(
        self,
        record: Record,
        finished: Mapping[str, Path],
        hashed: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """Make a record and its blobs visible, the record last.

        Args:
            record: The record; each of its blobs is in `finished` or in the store already.
            finished: Files by SHA-256, from `workspace` or `partial`; moved.
            hashed: Of files that were hashed while they came in: their pieces' digests.

        Raises:
            StoreError: Disk full, no permission. Nothing partial is visible.
            IntegrityError: A blob that the record names is in neither place, or is not what it says.
        """
        with self.changing(record.key):
            self._publish(record, finished, hashed)

    def _publish(self, record: Record, finished: Mapping[str, Path], hashed: Mapping[str, tuple[str, ...]]) -> None:
        files = {file.sha256: file for file in record.files}
        if self.layout.blobs.exists():
            self._restore_index()  # before this record makes a new index look like a whole one
        else:
            self._write(b"", self._complete)
        try:
            with durable.publishing(self.layout.home) as publishing:
                publishing.prepare(list(finished.values()))
                for sha256, path in finished.items():
                    pieces = hashed.get(sha256) or self._verifier.accept(path, files[sha256])
                    publishing.move(path, self.layout.blob(sha256))
                    self._verifier.remember(sha256, pieces)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        for file in record.files:
            reason = self._verifier.damage(file, memo=True)
            if reason:
                raise self._refuse(file, reason)
        raw = encode(record)
        # A copy of the record among the blobs: the index can be rebuilt from those alone.
        self._write(raw, self.layout.blob(hashlib.sha256(raw).hexdigest()))
        self._write(raw, self.layout.record(record.directory, record.model_type, record.key))

    def _write(self, raw: bytes, target: Path) -> None:
        try:
            with self.workspace() as folder:
                durable.write_bytes(folder, target, self.layout.home, raw)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error

    # The index

    def _record_paths(self) -> list[Path]:
        return sorted(self.layout.records.glob("*/*/*.json"))

    @property
    def _complete(self) -> Path:
        """Marks an index that has every record: it is written before the first record, and after a rebuild."""
        return self.layout.records / ".complete"

    def _restore_index(self) -> None:
        if not self._complete.exists() and self.layout.blobs.exists():
            with suppress(StoreError):
                self.rebuild_index()

    def rebuild_index(self) -> int:
        """Write the records again from their copies among the blobs; of several for a key, the youngest.

        Returns:
            How many records the index then has.

        Raises:
            StoreError: The store cannot be written.
        """
        newest: dict[Path, tuple[str, bytes]] = {}
        for path in sorted(self.layout.blobs.glob("*/*")):
            try:
                with path.open("rb") as source:
                    if not source.read(10).startswith(b'{"record":'):
                        continue
                    source.seek(0)
                    raw = source.read()
                record = decode(raw)
            except (OSError, DamagedRecordError):
                continue
            if record is not None and hashlib.sha256(raw).hexdigest() == path.name:
                place = self.layout.record(record.directory, record.model_type, record.key)
                newest[place] = max(newest.get(place, ("", b"")), (record.provenance.created, raw))
        for place, (_, raw) in newest.items():
            self._write(raw, place)
        self._write(b"", self._complete)
        if newest:
            self._journal.emit("store.reindexed", records=len(newest))
        return len(newest)
