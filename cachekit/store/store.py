"""The store: publish a record with its blobs, find it again, and never serve bytes that are not what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cachekit import ordinary
from cachekit.errors import StoreError
from cachekit.events import Journal, bypass
from cachekit.store import access, durable, uses
from cachekit.store.blob import Blob, reading
from cachekit.store.catalogue import Catalogue
from cachekit.store.gate import Gate, Holds
from cachekit.store.index import Index
from cachekit.store.layout import Layout
from cachekit.store.quarantine import Quarantine
from cachekit.store.ranking import Ranked, Summaries
from cachekit.store.record import IMPORTED, DamagedRecordError, File, Record, decode, encode
from cachekit.store.scratch import Scratch
from cachekit.store.summary import Summary
from cachekit.store.verify import MISSING, Verifier

if TYPE_CHECKING:
    from filelock import FileLock

    from cachekit.store.reach import Reach


class Store:
    """The store at `home`. Any number of processes may use it at once, and any of them may die at any time.

    Args:
        home: Its folder; made when first written to.
        journal: Told about damage (`store.damaged`), once for each piece.
    """

    def __init__(self, home: Path, journal: Journal) -> None:
        self.layout = Layout(home)
        self.gate = Gate(self.layout, self._tell_waiting)
        self._holds = Holds(self.layout, self.gate)
        self._verifier = Verifier(self.layout)
        self._quarantine = Quarantine(self.layout, self._verifier, journal)
        self._catalogue = Catalogue(self.layout)
        self._index = Index(self.layout, self.gate, self._write, journal)
        self._journal = journal
        self._changes: dict[str, FileLock] = {}
        self._flaws: dict[str, str] = {}

    # Reading

    def lookup(self, key: str, directory: str, model_type: str) -> Record | None:
        """The record of a key, if it is whole: its own digest, and that of every blob, fits.

        Damage is reported to the journal, moved to quarantine, and a miss. Inside of `holding` that is a use of the
        record, and it is held.
        """
        self._index.restore()
        self._flaws.pop(key, None)
        record = self._load(self.layout.record(directory, model_type, key), key, check_blobs=True)
        if record is not None and self._holds.active:
            uses.note(self.layout, key)
        return record

    def flaw(self, key: str) -> str:
        """What the last `lookup` of a key found wrong with its record; empty where there is none, or a whole one."""
        return self._flaws.get(key, "")

    def records(self, without: str = "") -> Iterator[Record]:
        """All readable records, in the order of their paths; their blobs are not checked.

        Args:
            without: A model type whose records are not even read.
        """
        self._index.restore()
        for path in self._index.paths():
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
        self._index.restore()
        tell = lambda done, of: self._journal.show("store.reading", done=done, of=of)  # noqa: E731
        return self._catalogue.summaries(self._read, without, glance=glance, tell=tell)

    def chosen(self, where: Callable[[Summary], bool]) -> Iterator[Record]:
        """Some of `records`; no others are read.

        Args:
            where: Chooses by what a record's place and key say: compiler, directory, model type, ingredients.
        """
        for one in self.summaries(glance=True):
            if where(one) and (record := self.read(one.directory, one.model_type, one.key)) is not None:
                yield record

    def read(self, directory: str, model_type: str, key: str) -> Record | None:
        """The record of a key, its own digest checked; its blobs are not, which `lookup` does."""
        self._index.restore()
        return self._load(self.layout.record(directory, model_type, key), key, check_blobs=False)

    def _read(self, path: Path) -> tuple[Record | None, bool]:
        record = self._load(path, path.stem, check_blobs=False)
        return record, record is not None or path.stem not in self._flaws

    def reach(self, tell: Callable[[int, int], object] = lambda *_: None, *, strict: bool = True) -> Reach:
        """What the records name, at this moment.

        Args:
            tell: Told how many of how many were read.
            strict: See `Reach.refresh`.

        Raises:
            StoreError: One cannot be read.
        """
        from cachekit.store.reach import Reach

        self._index.restore()
        found = Reach(self.layout)
        found.refresh(tell, strict=strict)
        return found

    def nearest(self, hard: Mapping[str, Any], *, compiler: str = "", directory: str = "") -> Iterator[Ranked]:
        """The records by their distance from what is wanted, nearest first; the caller takes as many as are needed.

        Args:
            hard: Hard ingredients.
            compiler: Only records of this compiler.
            directory: Only records of this compiler's directory.
        """
        found = self.summaries(without=IMPORTED, glance=True)
        ranked = found.ranking(hard).where(compiler=compiler or None, directory=directory or None)
        return (Ranked(one, found.hard(one)) for one in ranked)

    def same_job(self, hard: Mapping[str, Any]) -> list[Ranked]:
        """The records with these hard ingredients, whatever their toolchains are."""
        found = self.summaries(without=IMPORTED, glance=True)
        return [Ranked(one, found.hard(one)) for one in found.ranking(hard).same_but("toolchain")]

    def holding(self) -> AbstractContextManager[None]:
        """What is looked up, published or held inside of the block stays until its end, whatever is removed beside."""
        return self._holds.scope()

    def hold(self, files: Iterable[File]) -> None:
        """Inside of `holding`: those of the files that are here stay; to be called before looking which those are."""
        self._holds.add(file.sha256 for file in files)

    def keep(self, record: Record) -> bool:
        """Inside of `holding`: the record and its files stay; False where it was removed or replaced meanwhile."""
        self._holds.add((file.sha256 for file in record.files), record.key)
        path = self.layout.record(record.directory, record.model_type, record.key)
        return self._load(path, record.key, check_blobs=False) == record

    def missing(self, record: Record) -> list[File]:
        """Files of a record that the store lacks, each once; damaged ones are set aside, and missing then."""
        return self.lacking(record.files)

    def lacking(self, files: Iterable[File]) -> list[File]:
        """Files that the store lacks, as `missing` finds those of a record."""
        lacking = []
        for file in {file.sha256: file for file in files}.values():
            reason = self._verifier.damage(file, "state")
            if reason and (reason == MISSING or self._quarantine.blob(file, reason)):
                lacking.append(file)
        return lacking

    def reading(self, file: File) -> AbstractContextManager[Blob]:
        """Read a blob, and have its digest computed meanwhile; leaving the block means that it fitted.

        What the block made of the bytes is to be thrown away when this raises.

        Raises:
            IntegrityError: The bytes are not those of the record, or the block failed over bytes that are not.
        """
        return reading(file, self.layout.blob(file.sha256), self._verifier, self._quarantine.refuse)

    def _load(self, path: Path, key: str, *, check_blobs: bool) -> Record | None:
        try:
            raw = ordinary.read(path)
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
            self._quarantine.file(path, str(error), lambda: ordinary.read(path) == raw)
            return None
        if record is None:
            if check_blobs and self._quarantine.tell_once(path):
                bypass(self._journal, "store-schema", key)
            return None  # another schema: a miss, and none of our business
        if record.key != key or self.layout.record(record.directory, record.model_type, record.key) != path:
            self._flaws[key] = "its record is damaged: it is another key's"
            self._quarantine.file(path, "it is another key's record", lambda: ordinary.read(path) == raw)
            return None
        if check_blobs:
            # Removal takes the record first: while that is here, what is held now was here, and stays.
            if self._holds.active:
                self._holds.add((file.sha256 for file in record.files), key)
                if not _still(path, raw):
                    return self._load(path, key, check_blobs=True)
            suspected = [(file, reason) for file in record.files if (reason := self._verifier.damage(file, "state"))]
            if suspected and not _still(path, raw):
                return self._load(path, key, check_blobs=True)
            damaged = [(file, reason) for file, reason in suspected if self._quarantine.blob(file, reason)]
            if damaged:
                file, reason = damaged[0]
                state = "is missing" if reason == MISSING else f"is damaged: {reason}"
                self._flaws[key] = f"its record cannot be restored: {file.path} {state}"
                self._quarantine.file(path, "a blob of it is damaged", lambda: ordinary.read(path) == raw, quiet=True)
                return None
            self._check_manifest(raw, path)
        return record

    def _check_manifest(self, raw: bytes, record: Path) -> None:
        """Renew the copy of a record among the blobs, from which a lost index is rebuilt."""
        digest = hashlib.sha256(raw).hexdigest()
        file = File("record.json", len(raw), digest)
        reason = self._verifier.damage(file, "state")
        if not reason or not _still(record, raw):  # removed meanwhile, with its copy
            return
        path = self.layout.blob(digest)
        if path.exists():
            self._quarantine.blob(file, reason)
        else:
            self._journal.emit("store.damaged", path=str(path), reason=reason, kept=False)
        with suppress(StoreError):
            self._write(raw, path)

    def rebuild_index(self) -> int:
        """Write the records again from their copies among the blobs; of several for a key, the youngest.

        Returns:
            How many records the index then has.

        Raises:
            StoreError: The store cannot be written.
        """
        return self._index.rebuild()

    def _tell_waiting(self, holder: str, waited: float, in_vain: bool) -> None:
        if in_vain:
            self._journal.emit("store.unguarded", holder=holder, waited=round(waited, 1))
        else:
            self._journal.show("store.waiting", holder=holder, waited=waited)

    # Writing

    def check_writable(self, place: tuple[str, str, str] | None = None) -> None:
        """Find out before an hour of compiling whether its result can be kept.

        Args:
            place: Of the record that is to be made: compiler's directory, model type, key.

        Raises:
            StoreError: It cannot.
        """
        access.check(self.layout, self.layout.record(*place) if place else None)
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
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        with self.gate.shared():  # before the lock: whoever holds that is inside already
            try:
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
            self._holds.add((file.sha256 for file in record.files), record.key)

    def _publish(self, record: Record, finished: Mapping[str, Path], hashed: Mapping[str, tuple[str, ...]]) -> None:
        files = {file.sha256: file for file in record.files}
        if self.layout.blobs.exists():
            self._index.restore()  # before this record makes a new index look like a whole one
        else:
            self._write(b"", self._index.complete)
        try:
            with durable.publishing(self.layout.home) as publishing:
                # What two processes fetched into one file, the quicker one has moved by now. Whether it is here all the
                # same is looked at below.
                taken = publishing.prepare(list(finished.values()))
                for sha256, path in finished.items():
                    if path in taken:
                        continue
                    pieces = hashed.get(sha256) or self._verifier.accept(path, files[sha256])
                    if publishing.move(path, self.layout.blob(sha256)):
                        self._verifier.remember(sha256, pieces)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        for file in record.files:
            reason = self._verifier.damage(file, "state")
            if reason:
                raise self._quarantine.refuse(file, reason)
        self._compare(record)
        raw = encode(record)
        # A copy of the record among the blobs: the index can be rebuilt from those alone.
        self._write(raw, self.layout.blob(hashlib.sha256(raw).hexdigest()))
        self._write(raw, self.layout.record(record.directory, record.model_type, record.key))

    def _compare(self, record: Record) -> None:
        """Tell where a record takes the place of another build of its key."""
        with suppress(OSError, DamagedRecordError):
            before = decode(ordinary.read(self.layout.record(record.directory, record.model_type, record.key)))
            if before is not None:
                from cachekit.store import builds

                builds.tell(self.layout, self._journal, record, before, builds.HERE)

    def _write(self, raw: bytes, target: Path) -> None:
        try:
            with self.workspace() as folder:
                durable.write_bytes(folder, target, self.layout.home, raw)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error


def _still(path: Path, raw: bytes) -> bool:
    try:
        return ordinary.read(path) == raw
    except OSError:
        return False
