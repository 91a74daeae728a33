"""The store: publish a record with its blobs, find it again, and never serve bytes that are not what it says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from cachekit import files
from cachekit.errors import StoreError
from cachekit.events import Journal, bypass
from cachekit.private import NotPrivateError, new_folder
from cachekit.store import access, durable, pins, staying
from cachekit.store.blobs import MISSING, Blob, Blobs
from cachekit.store.index import Around, Index
from cachekit.store.index_file import LostIndexError
from cachekit.store.index_rows import IndexRow, Listed
from cachekit.store.layout import LOCAL, Layout, Place, temporary_folder
from cachekit.store.origin import HERE, Beside, Origins
from cachekit.store.record import DamagedRecordError, File, Record, decode, encode, is_document_of
from cachekit.store.refusal import Asked, Quarantine, Refusal
from cachekit.store.rwlock import InUse, RWLock
from cachekit.text import cause_of
from cachekit.whose import open_judged

if TYPE_CHECKING:
    from filelock import FileLock

_T = TypeVar("_T")


class Store:
    """The store at `home`. Any number of processes may use it at once, and any of them may die at any time.

    Args:
        home: Its folder; made when first written to.
        journal: Told about damage (`store.damaged`), once for each piece.
        asked: Says which records may be used; all by default.

    Attributes:
        layout: Its paths.
        rwlock: Its lock: publishing reads, removal writes.
        index: What its records say and name, as of the last question.
        blobs: Checks them.
        owners: To whom the store belongs.
        origins: Where records came from.
        refusal: Which of them may not be used.
        journal: Told what happens.
    """

    def __init__(self, home: Path, journal: Journal, asked: Asked | None = None) -> None:
        self.layout = Layout(home)
        self.rwlock = RWLock(self.layout, self._tell_waiting)
        self.index = Index(self.layout)
        self.blobs = Blobs(self.layout, self.index)
        self.owners = access.Owners(self.layout)
        self.origins = Origins(self.layout, self.owners)
        self._in_use = InUse(self.layout, self.rwlock)
        self._quarantine = Quarantine(self.layout, self.blobs, journal)
        self.refusal = Refusal(self.layout, self.owners, self.origins, self._quarantine, journal, asked=asked)
        self.journal = journal
        self._changes: dict[str, FileLock] = {}
        self._flaws: dict[str, str] = {}

    # Reading

    def lookup(self, place: Place) -> Record | None:
        """The record at a place, if it is whole: its own digest, and that of every blob, fits.

        Damage is reported to the journal, moved to quarantine, and a miss. Inside of `using` that is a use of the
        record, and it is held.
        """
        self._flaws.pop(place.key, None)
        record = self._load(place, check_blobs=True)
        if record is not None and self._in_use.active:
            pins.note_use(self.layout, place.key)
        return record

    def flaw(self, key: str) -> str:
        """What the last `lookup` of a key found wrong with its record; empty if the record is missing or whole."""
        return self._flaws.get(key, "")

    def read(self, place: Place) -> Record | None:
        """The record at a place, its own digest checked; its blobs are not, which `lookup` does."""
        return self._load(place, check_blobs=False)

    def refresh(self, *, exact: bool = False, checked: bool = False) -> Index:
        """The index, as the records are at this moment.

        Args:
            exact: Look at each record's file; else only whether records came or went, which is enough to find one by
                its key or its ingredients, as those are what its name says.
            checked: Compare the checksums of all that the index says: for who removes or reports on the word of it.

        Raises:
            StoreError: A folder of records cannot be read, and it is to be exact.
        """
        return next(self._looks(exact=exact, checked=checked))

    def _looks(self, *, exact: bool = False, checked: bool = False) -> Iterator[Index]:
        tell = lambda done, of: self.journal.show("store.reading", done=done, of=of)  # noqa: E731
        return self.index.looks(exact=exact, checked=checked, tell=tell)

    def _ask(self, question: Callable[[Index], _T]) -> _T:
        """What the index answers, as the records are at this moment."""
        looks = self._looks()
        while True:
            index = next(looks)
            with suppress(LostIndexError):
                return question(index)

    def rows(self, where: Callable[[IndexRow], bool] = lambda _: True) -> list[IndexRow]:
        """Some of the records that can be used, in the order of their paths; damaged ones are set aside."""
        return self._ask(lambda index: [row for row in self._sound(index).rows() if where(row)])

    def listed(self) -> list[Listed]:
        """The records that can be used, as `ls` lists them, the youngest first; damaged ones are set aside."""
        return self._ask(lambda index: self._sound(index).listed())

    def doubtful(self) -> set[Place]:
        """The records of which a glance does not tell that this user or root wrote them: `owners.stranger` does.

        It is told of their files as they were when they were read: what is done to a file later is seen by the next
        exact look, see `refresh`. Nothing is used on the word of this.
        """
        return self._ask(lambda index: index.doubtful(os.geteuid()))

    def _sound(self, index: Index) -> Index:
        """The index, after what is damaged was set aside."""
        for row in index.flawed():
            self.read(row.place)
        return index

    def by_prefix(self, digits: str) -> list[IndexRow]:
        """The records whose keys begin so: those that can be used, else those with a flaw."""
        rows = self._ask(lambda index: index.by_prefix(digits.lower()))
        return [row for row in rows if row.usable] or [row for row in rows if row.flaw]

    def records(self, where: Callable[[IndexRow], bool] = lambda _: True) -> Iterator[Record]:
        """The records of `rows`; their blobs are not checked."""
        for row in self.rows(where):
            if (record := self.read(row.place)) is not None:
                yield record

    def around(self, hard: Mapping[str, Any]) -> Around:
        """The records as they lie around what is wanted at this moment."""
        return Around(self._looks(), hard)

    def using(self) -> AbstractContextManager[None]:
        """Records looked up, published or used inside of the block stay until its end, whatever others remove."""
        return self._in_use.scope()

    def use(self, files: Iterable[File]) -> None:
        """Inside of `using`: those of the files that are here stay; to be called before looking which those are."""
        self._in_use.add(file.sha256 for file in files)

    def keep(self, record: Record) -> bool:
        """Inside of `using`: the record and its files stay; False where it was removed or replaced meanwhile."""
        self._in_use.add((file.sha256 for file in record.files), record.key)
        return self.read(record.place) == record

    def lacking(self, files: Iterable[File], record: Record | None = None) -> list[File]:
        """Those of some files that the store lacks, each once; damaged ones are set aside, and lacking then.

        Args:
            files: The files.
            record: Whose they are, where it is in the store: what has not changed since then needs no note.
        """
        lacking = []
        written = self._written(record) if record else 0
        for file in {file.sha256: file for file in files}.values():
            reason = self.blobs.check(file, "noted", since=written)
            if reason and (reason == MISSING or self._quarantine.blob(file, reason)):
                lacking.append(file)
        return lacking

    def _written(self, record: Record) -> int:
        """When a record was written, ns since the epoch; 0 where it does not lie there."""
        with suppress(OSError), files.opened(self.layout.record(record.place)) as source:
            if is_document_of(source.read(), record):
                return os.fstat(source.fileno()).st_mtime_ns
        return 0

    @contextmanager
    def reading(self, file: File) -> Iterator[Blob]:
        """Read a blob, and have its digest computed meanwhile; leaving the block means that it fitted.

        What the block made of the bytes is to be thrown away when this raises. A blob that others wrote, or can put
        another file in the place of, is a copy that they cannot reach, hashed as it is made.

        Raises:
            IntegrityError: The bytes are not those of the record, or the block failed over bytes that are not.
            StoreError: There is no folder for a copy that nobody else can change.
        """
        with ExitStack() as stack:
            folder = None if _is_own(self.layout.blob(file.sha256)) else stack.enter_context(self._copies())
            yield stack.enter_context(self.blobs.reading(file, self._quarantine.refuse, folder))

    @contextmanager
    def _copies(self) -> Iterator[Path]:
        """A folder of this user alone, gone afterwards."""
        from cachekit.store.durable import Scratch

        with ExitStack() as stack:
            try:
                folder = stack.enter_context(Scratch(temporary_folder("copies"), "blob"))
            except OSError as error:
                raise StoreError(
                    f"no file of the store at {self.layout.home} can be used: somebody else can change it",
                    cause=f"there is no folder for copies: {cause_of(error)}",
                    hint=(error.standing.mend if isinstance(error, NotPrivateError) else "") or new_folder("TMPDIR"),
                ) from error
            yield folder

    def _load(self, place: Place, *, check_blobs: bool) -> Record | None:
        path, key = self.layout.record(place), place.key
        try:
            with files.opened(path) as source:
                raw, written = source.read(), os.fstat(source.fileno()).st_mtime_ns
                strange = self.refusal.strange(path, source.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._flaws[key] = f"its record cannot be read: {cause_of(error)}"
            self.journal.emit("store.damaged", path=str(path), reason=cause_of(error), kept=True)
            return None
        try:
            record = decode(raw)
        except DamagedRecordError as error:
            self._flaws[key] = f"its record is damaged: {error}"
            self._quarantine.document(path, str(error), raw)
            return None
        if record is None:
            if check_blobs and self._quarantine.tell_once(path):
                bypass(self.journal, "store-schema", key)
            return None  # another schema: a miss, and none of our business
        if record.place != place:
            self._flaws[key] = "its record is damaged: it is another key's"
            self._quarantine.document(path, "it is another key's record", raw)
            return None
        if self.refusal.refuses(record, raw, strange):
            return None
        if check_blobs:
            # Removal takes the record first: while that is here, what is held now was here, and stays.
            if self._in_use.active:
                self._in_use.add((file.sha256 for file in record.files), key)
                if not _still(path, raw):
                    return self._load(place, check_blobs=True)
            checked = ((file, self.blobs.check(file, "noted", since=written)) for file in record.files)
            suspected = [(file, reason) for file, reason in checked if reason]
            if suspected and not _still(path, raw):
                return self._load(place, check_blobs=True)
            damaged = [(file, reason) for file, reason in suspected if self._quarantine.blob(file, reason)]
            if damaged:
                file, reason = damaged[0]
                state = "is missing" if reason == MISSING else f"is damaged: {reason}"
                self._flaws[key] = f"its record cannot be restored: {file.path} {state}"
                self._quarantine.document(path, "a blob of it is damaged", raw, quiet=True)
                return None
        return record

    def _tell_waiting(self, holder: str, waited: float, in_vain: bool) -> None:
        if in_vain:
            self.journal.emit("store.unguarded", holder=holder, waited=round(waited, 1))
        else:
            self.journal.show("store.waiting", holder=holder, waited=waited)

    # Writing

    def check_writable(self, place: Place | None = None) -> None:
        """Find out before an hour of compiling whether its result can be kept.

        Args:
            place: Of the record that is to be made.

        Raises:
            StoreError: It cannot.
        """
        access.check(self.layout, self.layout.record(place) if place else None)
        try:
            with self.workspace() as folder:
                files.create(folder / "probe", b"cachekit")
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the store's file system, in which to build what `publish` takes.

        Raises:
            StoreError: It cannot be made.
        """
        from cachekit.store.durable import Scratch

        with ExitStack() as stack:
            try:
                folder = stack.enter_context(Scratch(self.layout.tmp, "publish", self.layout.inside))
            except OSError as error:
                raise durable.store_error(self.layout.home, error) from error
            yield folder

    @contextmanager
    def changing(self, key: str) -> Iterator[None]:
        """Hold a key's record for the moment that reading, changing and publishing it takes; others wait.

        May be entered again by the holder: `publish` does. Its lock is another than that of a compile, which may be
        held for an hour; like that one it is the kernel's, and ends with its holder.

        Raises:
            StoreError: The lock cannot be made.
        """
        from filelock import FileLock

        path = self.layout.locks / f"{key}.record.lock"
        lock = self._changes.setdefault(key, FileLock(path))
        try:
            with self.layout.inside.folder(self.layout.locks, make=True):
                files.refuse_link(path)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        with self.rwlock.read_lock():  # before the lock: whoever holds that is inside already
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
        *,
        beside: Beside | None = None,
        reused: Iterable[tuple[Record, Beside]] = (),
        tree: Path | None = None,
    ) -> None:
        """Make a record and its blobs visible, the record last.

        Args:
            record: The record; each of its blobs is in `finished` or in the store already.
            finished: Files by SHA-256, from `workspace` or `partial`; moved.
            hashed: Of files that were hashed while they came in: their pieces' digests.
            beside: Where it came from; it was made here, where nothing is said.
            reused: Of one that was made here: the records that the compiler was given, and where those came from then.
            tree: The folder in which the compiler worked: what is noted there is asked, too; see `staying.reused`.

        Raises:
            StoreError: Disk full, no permission. Nothing partial is visible.
            IntegrityError: A blob that the record names is in neither place, or is not what it says.
        """
        with self.changing(record.key):
            if beside is None:
                reused = [*reused, *staying.reused(self.layout, record.modules, tree)]
            self._publish(record, finished, hashed, beside, reused)
            self._in_use.add((file.sha256 for file in record.files), record.key)

    def _publish(
        self,
        record: Record,
        finished: Mapping[str, Path],
        hashed: Mapping[str, tuple[str, ...]],
        beside: Beside | None,
        reused: Iterable[tuple[Record, Beside]],
    ) -> None:
        files = {file.sha256: file for file in record.files}
        try:
            pieces: dict[str, tuple[str, ...]] = {}
            for sha256, path in finished.items():
                # What two processes fetched into one file, the quicker one has moved by now. Whether it is here all the
                # same is looked at below.
                with suppress(FileNotFoundError):
                    pieces[sha256] = hashed.get(sha256) or self.blobs.accept(path, files[sha256])
            moves = {finished[sha256]: self.layout.blob(sha256) for sha256 in pieces}
            moved = durable.publish(moves, self.layout.home)
            whole = {one: self.blobs.whole_now(one, of) for one, of in pieces.items() if self.layout.blob(one) in moved}
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error
        for file in files.values():
            reason = self.blobs.check(file, "there" if file.sha256 in whole else "noted")
            if reason:
                raise self._quarantine.refuse(file, reason)
        before = self._compare(record)
        if beside is None:
            beside = self.origins.made(record, before, reused)
        if note := self.origins.note(record, beside, before):
            self._write(note, self.layout.origin(record.place))
        self._write(encode(record, noted=beside.origin != HERE), self.layout.record(record.place))
        self.index.published(record.place, whole)

    def _compare(self, record: Record) -> Record | None:
        """The record that is there; told where the new one is another build of its key."""
        before = self.read(record.place)  # sets a damaged record aside
        if before is not None:
            from cachekit.store import divergent

            with suppress(OSError):
                divergent.tell(self.layout, self.journal, record, before, LOCAL)
        return before

    def _write(self, raw: bytes, target: Path) -> None:
        try:
            with self.workspace() as folder:
                durable.write_bytes(folder, target, self.layout.home, raw)
        except OSError as error:
            raise durable.store_error(self.layout.home, error) from error


def _is_own(path: Path) -> bool:
    """Whether only this user and root can have written a file, or can put another one in its place."""
    try:
        handle, found = open_judged(path)
    except OSError:
        return False
    os.close(handle)
    return found.whose == "own"


def _still(path: Path, raw: bytes) -> bool:
    try:
        return files.read(path) == raw
    except OSError:
        return False
