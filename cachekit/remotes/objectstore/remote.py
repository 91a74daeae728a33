"""An object store as a remote: a bucket of S3, Google Cloud Storage or Azure Blob, or what lies below a prefix in it.

Artifacts are created only where nothing lies, documents written on top of the ETag or generation that they are built
on: of two writers on the same state one fails. What object stores do not have, and what becomes of it:

- Documents of one change are written one after another, in their order. Their tokens are all checked first; where one
  changes between that check and its turn, those before it stay written and `ConflictError` tells of it. Whoever builds
  on them again finds them as they are: each document is whole and true by itself.
- No server deletes under a condition that `obstore` can ask for: a removed document is replaced by a marker, by the
  same compare-and-swap, and counts as absent from then on.
- A file of more than `SINGLE` bytes goes up in parts, whose completion is without a condition: two writers of
  different bytes at one new path are not told apart there. The names of artifacts come from their contents.
- An upload that was killed leaves parts that nobody sees: a lifecycle rule of the bucket removes them (on S3:
  AbortIncompleteMultipartUpload; Azure does so by itself, after a week).
- A server that ignores the conditions (`rclone serve s3`) lets the last writer win. Whether one does that which is not
  the service's own, the first lease of a store finds out, before anything compiles; without a lease, its first push.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from cachekit.calls import CallProgress
from cachekit.decode import from_json
from cachekit.errors import ConflictError, RemoteError, TooLargeError, UncertainError
from cachekit.remotes.budget import each
from cachekit.remotes.layout import BLOBS, INDEX, LEASES, RECORDS, blob_path, check
from cachekit.remotes.objectstore.connect import UNREACHED, ObjectService, status_of
from cachekit.remotes.objectstore.objects import (
    ASKERS,
    FEW,
    PART,
    REMOVED,
    SHA256,
    DocumentVersion,
    FoundObject,
    ObjectReader,
)
from cachekit.remotes.port import (
    ABSENT,
    SOON_SENT,
    Commit,
    Document,
    Entry,
    Limits,
    Storage,
    Tell,
    Upload,
    Write,
    in_clear,
    reads_as,
)

if TYPE_CHECKING:
    from obstore import Attributes

SINGLE = 16 << 20  # bytes of a file that is sent in one conditional request, from memory
_SENDERS = 6  # files at once
_HEEDS = "heeds"  # before a server's address, in the place of a path: whether it does, once that was found out
_PROBE = b"cachekit\n"  # what lies below its own digest is never anything else, however often it is written
_NO_STATE = '{"e_tag":"\\"0\\""}'  # the token of a state that no document has


class ObjectStorage(ObjectReader, Storage):
    """A bucket, or what lies below a prefix in it."""

    compares = True
    lines = 8
    untold = "who may write to a bucket cannot be asked"

    def __init__(
        self, kind: ObjectService, address: str, options: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        super().__init__(kind, address, options or {}, limits or Limits())
        self._sent: set[tuple[str, str]] = set()
        self._asked: dict[str, FoundObject | None] = {}  # what `stat` found since files were sent last

    def heeds(self, token: str) -> bool:
        """Whether it is the service's own server, or one that was seen to refuse such a write.

        Servers like a service's are many, and old ones of them overwrite whatever the condition of a write is.
        """
        if not self._stores.server:
            return True
        note = f"{_HEEDS} {token == ABSENT} {self._stores.server}"
        known = self.copies.get(note)
        if known is None and self.copies.kept and (token == ABSENT or self.heeds(ABSENT)):
            known = self._find_out(token)
            self.copies.keep(note, known)
        return known == b"yes"

    def revision(self) -> str:
        """Nothing: there are no versions. What was found before is of another state."""
        self._asked.clear()
        return ""

    def server(self) -> str:
        """The one that the settings name: those of the services keep the time, and answer under many names."""
        return self._stores.server

    def stranger(self, memory: Path | None = None) -> str:
        """Whether requests go without credentials, as a stranger's do, or in clear; only the account knows more."""
        variable = self._kind.unsigned
        return f"it is read without credentials ({variable})" if variable else in_clear(self.server())

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those that exist: a request a file for a few, else pages of a listing, from one wanted name to the next.

        When files are sent next, they are not looked for again.
        """
        found = self._look(paths)
        self._asked |= {path: found.get(path) for path in paths}
        return {path: self._told(one) for path, one in found.items()}

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """A document; one request."""
        document = self._document(path, limit)
        if document is None or document.data == REMOVED:
            return None
        self._remember(path, document)
        return document

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """Send files: one look for all of which nothing is known, and a request for each that is not there.

        A few small ones are sent without a look, where the server heeds that nothing may lie there: whatever does
        stays, and is compared then.
        """
        check([file.path for file in files])
        known, self._asked = self._asked, {}
        files = [file for file in files if file.path in known or (file.path, file.sha256) not in self._sent]
        unknown = [file for file in files if file.path not in known]
        few = 0 < len(unknown) <= FEW and self.heeds(ABSENT)
        asked = [file.path for file in unknown if not few or file.size > SOON_SENT]
        there = {path: one for path, one in known.items() if one} | (self._look(asked) if asked else {})
        each([partial(self._compare, file, there[file.path]) for file in files if file.path in there], ASKERS)
        each([partial(self._send, file, tell) for file in files if file.path not in there], _SENDERS)

    def commit(self, change: Commit, revision: str) -> str:
        """Write documents, one after the other; this module says what that cannot do."""
        check([write.path for write in change.writes])
        if any(write.path.startswith(f"{LEASES}/") for write in change.writes):
            self.heeds(_NO_STATE)  # what is pushed after the compile need not find it out
        if missing := [file for file in change.files if (file.path, file.sha256) not in self._sent]:
            self.upload(missing, revision, lambda _: None)
        # What is named by its digest is whole and true by itself: it may stay where a later one has changed.
        first = sum(1 for _ in takewhile(lambda write: write.path.startswith(f"{BLOBS}/"), change.writes))
        each([partial(self._check, write) for write in change.writes[first + 1 :]], ASKERS)
        for write in change.writes:
            self._write(write)
        self._sent.clear()  # what this change names may be removed before the next one
        return ""

    def _told(self, found: FoundObject) -> Entry:
        """What the port tells of an object. A listing has no digest, but a record may be as in our copy."""
        entry = found.entry
        copy = self.copies.seen(entry.path) if not entry.digests and _is_record(entry.path) else None
        with suppress(msgspec.MsgspecError):
            if copy and found.e_tag and from_json(copy.token, DocumentVersion).is_of(found.e_tag):
                return structs.replace(entry, digests={"sha256": hashlib.sha256(copy.data).hexdigest()})
        return entry

    def _find_out(self, token: str) -> bytes | None:
        """Write on a state that is not there: whether that is refused; None where that cannot be said now."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        path = blob_path(hashlib.sha256(_PROBE).hexdigest())
        for _ in range(2 if token == ABSENT else 1):  # the first may be the first of all
            try:
                self._put(path, _PROBE, token if token == ABSENT else _NO_STATE)
            except (AlreadyExistsError, PreconditionError):
                return b"yes"
            except Exception:  # noqa: BLE001 - obstore's own have no common root; a look is the safe way
                return None
        return b"no"

    def _compare(self, file: Upload, found: FoundObject) -> None:
        """Raise where the object has other bytes than the file; compared in the cheapest way that tells.

        Raises:
            ConflictError: They are not.
        """
        same = found.entry.holds(file.size, file.sha256)
        if same is None and found.e_tag:
            same = self._kind.e_tag_of(partial(pieces_of, file), found.e_tag) == found.e_tag or None
        if same is None:
            head = self._head(file.path)
            same = head.entry.holds(file.size, file.sha256) if head else False
        if same is None:
            same = reads_as(self, file.path, file.sha256)
        if not same:
            raise ConflictError(f"{self.name}: there are different bytes at {file.path}")
        self._sent.add((file.path, file.sha256))

    def _send(self, file: Upload, tell: Tell) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        progress, broken = CallProgress(), list[OSError]()
        attributes: Attributes = {SHA256: file.sha256}

        def pieces() -> Iterator[bytes]:
            try:
                for piece in pieces_of(file):
                    yield piece
                    progress()
                    tell(len(piece))
            except OSError as error:
                broken.append(error)
                raise

        def put() -> None:
            if file.size > SINGLE:
                obstore.put(
                    self._stores.sends, file.path, pieces(), attributes=attributes, chunk_size=PART,
                    max_concurrency=4, use_multipart=True,
                )  # fmt: skip
            else:
                data = b"".join(pieces_of(file))
                obstore.put(self._stores.sends, file.path, data, attributes=attributes, mode="create")
                tell(len(data))

        try:
            self._calls.run(put, self._limits.connect + self._limits.commit, "send", progress)
        except AlreadyExistsError:  # somebody was faster, or the answer to a first try was lost
            if not (found := self._head(file.path)):
                raise ConflictError(f"{self.name}: {file.path} is being written by others") from None
            self._compare(file, found)
        except Exception as error:
            if broken or (isinstance(error, OSError) and not status_of(error)[0]):
                raise  # the source
            raise self._translated(error, "send") from None
        self._sent.add((file.path, file.sha256))

    def _check(self, write: Write) -> None:
        found = self._head(write.path)
        if (found.token if found else ABSENT) != write.token:
            raise self._changed(write)

    def _write(self, write: Write) -> None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if write.data is None and write.token == ABSENT:
            self._check(write)
            return
        data = REMOVED if write.data is None else write.data
        try:
            self._put(write.path, data, write.token)
        except AlreadyExistsError:
            there = self._marker(write.path)
            if write.token != ABSENT or there is None:
                raise self._changed(write) from None
            self._write(Write(write.path, write.data, there.token))
        except (PreconditionError, FileNotFoundError) as error:
            if status_of(error)[1] in self._kind.absent:
                raise self._translated(error, "write") from None
            raise self._changed(write) from None
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            self._settle(write, data, self._translated(error, "write"), status_of(error)[0])

    def _settle(self, write: Write, data: bytes, error: Exception, status: int) -> None:
        """Return if a write whose answer was lost has landed; else raise the error that says what is known."""
        if type(error) is not RemoteError or error.cause == UNREACHED or 400 <= status < 500:  # noqa: PLR2004
            raise error from None
        try:
            now = self._document(write.path, len(data))
        except Exception:  # noqa: BLE001 - what counts is the first error
            now = None
        if not now or now.data != data:
            raise UncertainError(
                f"{self.name}: {write.path} may have been written", cause=error.cause or error.message
            ) from None

    def _put(self, path: str, data: bytes, token: str) -> None:
        import obstore

        attributes: Attributes = {SHA256: hashlib.sha256(data).hexdigest()}  # for whoever asks what lies there
        # What is None there is left out: obstore takes it for a wrong type.
        mode: Any = "create" if token == ABSENT else from_json(token, dict[str, str])
        put = partial(obstore.put, self._stores.writes, path, data, attributes=attributes, mode=mode)
        made = self._calls.run(put, self._soon, "write")
        if (made["e_tag"] or made["version"]) and data != REMOVED:
            self._remember(path, Document(data, self._token(made)))

    def _remember(self, path: str, document: Document) -> None:
        """What a push builds on without a look: records and the index, with their tokens."""
        if path == INDEX or _is_record(path):
            self.copies.keep(path, document.data, document.token)

    def _marker(self, path: str) -> Document | None:
        """The marker in the place of a removed document; None where something else lies there."""
        try:
            there = self._document(path, len(REMOVED))
        except TooLargeError:
            return None
        return there if there and there.data == REMOVED else None

    def _changed(self, write: Write) -> ConflictError:
        return ConflictError(f"{self.name}: {write.path} was changed in the meantime")


def _is_record(path: str) -> bool:
    return path.startswith(f"{RECORDS}/")


def pieces_of(file: Upload) -> Iterator[bytes]:
    """The file's bytes, in parts.

    Raises:
        OSError: The source cannot be read, or has not as many bytes as it had.
    """
    size = 0
    for piece in file.pieces(PART):
        size += len(piece)
        yield piece
    if size != file.size:
        raise OSError(f"{file.path} has {size} bytes, and had {file.size} before")
