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
- A server that ignores the conditions (`rclone serve s3`) lets the last writer win.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from cachekit import config
from cachekit.errors import CachekitError, RemoteError, TooLargeError
from cachekit.remotes.budget import Calls, Progress, each
from cachekit.remotes.objectstore.connect import (
    UNREACHED,
    Kind,
    is_missing,
    is_past_the_end,
    parse,
    status_of,
    translated,
)
from cachekit.remotes.paths import check
from cachekit.remotes.port import (
    ABSENT,
    Change,
    ConflictError,
    Document,
    Entry,
    Limits,
    Tell,
    UncertainError,
    Upload,
    Write,
)

if TYPE_CHECKING:
    from obstore import Attributes

T = TypeVar("T")
SINGLE = 16 << 20  # bytes of a file that is sent in one conditional request, from memory
REMOVED = b'{"cachekit": "removed", "meaning": "a document was here; the place is free"}\n'
PART = 8 << 20  # bytes of a part of a large upload; an ETag of S3 depends on it
_FEW = 4  # files that are asked for one by one, which also tells their SHA-256
_PAGE = 1000  # entries of one answer to a listing
_PATIENCE = 8  # answers of a listing; the rest is asked for one by one if they settled fewer than _FEW files each
_ASKERS, _SENDERS = 16, 6
_CHUNK = 64 << 10  # bytes that are handed on at least, but for the last ones
_SHA256 = "sha256"  # name of the metadata that objects carry


class _State(Struct, frozen=True, omit_defaults=True):
    """What names a state of a document: S3 and Azure compare the ETag, Google the version."""

    e_tag: str | None = None
    version: str | None = None


class _Found(Struct, frozen=True):
    """An object: what the port tells of it, its ETag without quotes, and what names its state."""

    entry: Entry
    e_tag: str
    token: str


class ObjectTier:
    """A bucket, or what lies below a prefix in it.

    Args:
        kind: What the service does differently.
        address: `s3://bucket/prefix`.
        options: Of its table in cachekit.toml; see the kind.
        limits: How long it may take.

    Raises:
        UsageError: obstore is not installed, or the address or the settings cannot be used.
    """

    compares = True
    scarce = False
    batch = 1
    public = False

    def __init__(
        self, kind: Kind, address: str, options: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        bucket, prefix = parse(kind, address)
        self.name = f"{kind.scheme}://{bucket}/{prefix}".rstrip("/")
        self._kind = kind
        self._limits = limits or Limits()
        self._stores = kind.connect(bucket, prefix, options or {}, self._limits)
        # obstore ends what hangs by itself, a little later; so none of it is refused.
        self._calls = Calls(self.name, hanging=1000)
        self._soon = 2 * self._limits.connect + self._limits.read  # with the tries that begin within `connect`
        self._seen = False  # the bucket is there
        self._sent: set[tuple[str, str]] = set()

    def revision(self) -> str:
        """Nothing: there are no versions."""
        return ""

    def stranger(self, memory: Path | None = None) -> str:
        """Nobody but the account knows who may write; who comes without credentials is no user of the account."""
        variable = self._kind.unsigned
        if not variable or os.environ.get(variable, "").strip().lower() in config.FALSE_WORDS:
            return ""
        return f"it is read without credentials ({variable})"

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """See the port: a request a file for a few, else pages of a listing, from one wanted name to the next."""
        return {path: found.entry for path, found in self._look(paths).items()}

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """See the port: a request for 1,000 files."""
        import obstore

        check([folder] if folder else [])
        pages = self._calls.stream(
            lambda: obstore.list(self._stores.asks, folder or None, chunk_size=_PAGE), self._soon, "list"
        )
        try:
            for page in pages:
                yield from (found.entry for found in map(self._seen_in_list, page) if found)
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            raise self._translated(error, "list") from None

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """See the port."""
        import obstore

        check([path])
        progress = Progress()

        def get() -> Document:
            result = obstore.get(self._stores.reads, path)
            if result.meta["size"] > limit:
                raise TooLargeError(
                    f"{self.name}: {path} is too large",
                    cause=f"{result.meta['size']} bytes, at most {limit} expected",
                    token=self._token(result.meta),
                )
            data = bytearray()
            for chunk in result.stream(min_chunk_size=_CHUNK):
                data += chunk
                progress()
            return Document(bytes(data), self._token(result.meta))

        try:
            document = self._do("read", get, progress=progress)
        except FileNotFoundError:
            return None
        return None if document.data == REMOVED else document

    def chunks(self, path: str, revision: str, start: int = 0) -> Iterator[bytes]:
        """See the port."""
        import obstore

        check([path])

        def get() -> Iterator[bytes]:
            result = obstore.get(self._stores.reads, path, options={"range": {"offset": start}} if start else None)
            for chunk in map(bytes, result.stream(min_chunk_size=_CHUNK)):
                yield from (chunk[at : at + PART] for at in range(0, len(chunk), PART))

        try:
            yield from self._calls.stream(get, self._soon, "read")
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            if is_missing(self._kind, error):
                raise FileNotFoundError(f"{self.name}: there is no {path}") from None
            if start and is_past_the_end(error):
                return
            raise self._translated(error, "read") from None

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """See the port: one look for all, and a request for each that is not there."""
        there = self._look([file.path for file in files])
        each([partial(self._compare, file, there[file.path]) for file in files if file.path in there], _ASKERS)
        each([partial(self._send, file, tell) for file in files if file.path not in there], _SENDERS)
        self._sent.update((file.path, file.sha256) for file in files)

    def commit(self, change: Change, revision: str) -> str:
        """See the port, and this module for what is not possible."""
        check([write.path for write in change.writes])
        if missing := [file for file in change.files if (file.path, file.sha256) not in self._sent]:
            self.upload(missing, revision, lambda _: None)
        if len(change.writes) > 1:
            each([partial(self._check, write) for write in change.writes], _ASKERS)
        for write in change.writes:
            self._write(write)
        return ""

    def happened(self, title: str) -> str:
        """Nothing: there is no history. A document that was written is found by reading it."""
        return ""

    # Asking.

    def _look(self, paths: Sequence[str]) -> dict[str, _Found]:
        check(paths)
        found: dict[str, _Found] = {}
        left = sorted(set(paths))  # by code point, which is the order of UTF-8, and of object stores, too
        pages, wanted = 0, len(left)
        listing = self._listing(_common_folder(left))
        while len(left) > _FEW and (pages < _PATIENCE or wanted - len(left) >= pages * _FEW):
            page = {entry["path"]: entry for entry in self._do("list", partial(listing, left[0]))}
            pages, self._seen = pages + 1, True
            for path in left:
                if path in page and (seen := self._seen_in_list(page[path])):
                    found[path] = seen
            last = max(page) if len(page) >= _PAGE else None
            left = [path for path in left if path > last] if last is not None else []
        heads = each([partial(self._head, path) for path in left], _ASKERS)
        found |= {path: seen for path, seen in zip(left, heads, strict=True) if seen}
        if not self._seen:
            if not found and left:  # a missing bucket and a missing object answer the same
                self._do("list", partial(self._listing(""), left[0]))
            self._seen = True
        return found

    def _listing(self, folder: str) -> Callable[[str], Sequence[Any]]:
        """What gives the next page of a listing: from a name on, or as the server goes on where it cannot do that."""
        import obstore

        if not self._kind.resumes_lists:
            pages = obstore.list(self._stores.asks, folder or None, chunk_size=_PAGE)
            return lambda _: next(pages, ())

        def page(first: str) -> Sequence[Any]:
            before = first[:-1]
            if before.endswith("/"):  # SeaweedFS passes over a whole folder that one begins after
                before = before[:-2]
            pages = obstore.list(self._stores.asks, folder or None, offset=before or None, chunk_size=_PAGE)
            return next(pages, ())  # no more is asked for

        return page

    def _head(self, path: str) -> _Found | None:
        import obstore

        try:
            result = self._do("look", lambda: obstore.get(self._stores.asks, path, options={"head": True}))
        except FileNotFoundError:
            return None
        sha256 = result.attributes.get(_SHA256, "")
        digests = {_SHA256: sha256} if re.fullmatch("[0-9a-f]{64}", sha256) else {}
        meta = result.meta
        found = _Found(Entry(path, meta["size"], digests), (meta["e_tag"] or "").strip('"'), self._token(meta))
        return None if self._is_removed(found) else found

    def _seen_in_list(self, listed: Any) -> _Found | None:
        # An ETag may be an MD5 or not (encryption by KMS, parts), and does not say so: it is no digest to rely on.
        found = _Found(Entry(listed["path"], listed["size"]), (listed["e_tag"] or "").strip('"'), "")
        return None if self._is_removed(found) else found

    def _is_removed(self, found: _Found) -> bool:
        if found.entry.size != len(REMOVED):
            return False
        known = self._kind.e_tag_of(lambda: iter([REMOVED]), "")
        return (bool(known) and found.e_tag == known) or self.read(found.entry.path, "", len(REMOVED)) is None

    # Sending.

    def _compare(self, file: Upload, found: _Found) -> None:
        """Nothing, if these are the file's bytes; in the cheapest way that tells.

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
            digest = hashlib.sha256()
            for chunk in self.chunks(file.path, ""):
                digest.update(chunk)
            same = digest.hexdigest() == file.sha256
        if not same:
            raise ConflictError(f"{self.name}: other bytes are at {file.path}")

    def _send(self, file: Upload, tell: Tell) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        progress, broken = Progress(), list[OSError]()
        attributes: Attributes = {_SHA256: file.sha256}

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
            removed = self._raw(write.path, len(REMOVED))
            if write.token != ABSENT or not removed or removed.data != REMOVED:
                raise self._changed(write) from None
            self._write(Write(write.path, write.data, removed.token))
        except (PreconditionError, FileNotFoundError) as error:
            if status_of(error)[1] in self._kind.absent:
                raise self._translated(error, "write") from None
            raise self._changed(write) from None
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            self._settle(write, data, self._translated(error, "write"), status_of(error)[0])

    def _settle(self, write: Write, data: bytes, error: Exception, status: int) -> None:
        """Nothing, if a write whose answer was lost is there; else the error that says what is known."""
        if type(error) is not RemoteError or error.cause == UNREACHED or 400 <= status < 500:  # noqa: PLR2004
            raise error from None
        try:
            now = self._raw(write.path, len(data))
        except Exception:  # noqa: BLE001 - what counts is the first error
            now = None
        if not now or now.data != data:
            raise UncertainError(
                f"{self.name}: {write.path} may have been written", cause=error.cause or error.message
            ) from None

    def _put(self, path: str, data: bytes, token: str) -> None:
        import obstore

        attributes: Attributes = {_SHA256: hashlib.sha256(data).hexdigest()}  # for whoever asks what lies there
        # What is None there is left out: obstore takes it for a wrong type.
        mode: Any = "create" if token == ABSENT else msgspec.json.decode(token)
        put = partial(obstore.put, self._stores.writes, path, data, attributes=attributes, mode=mode)
        self._calls.run(put, self._soon, "write")

    def _raw(self, path: str, limit: int) -> Document | None:
        """A document, or the marker in the place of one; without its bytes where these are more than so many."""
        import obstore

        def get() -> Document:
            result = obstore.get(self._stores.reads, path)
            data = bytes(result.bytes()) if result.meta["size"] <= limit else b""
            return Document(data, self._token(result.meta))

        try:
            return self._do("read", get)
        except FileNotFoundError:
            return None

    def _changed(self, write: Write) -> ConflictError:
        return ConflictError(f"{self.name}: {write.path} was changed meanwhile")

    def _token(self, meta: Mapping[str, Any]) -> str:
        if not (meta["e_tag"] or meta["version"]):
            raise RemoteError(f"{self.name}: it gives neither ETags nor versions", hint="use another kind of remote")
        return msgspec.json.encode(_State(meta["e_tag"], meta["version"])).decode()

    def _translated(self, error: BaseException, doing: str) -> CachekitError:
        return translated(self._kind, error, self.name, doing)

    def _do(self, doing: str, call: Callable[[], T], progress: Progress | None = None) -> T:
        """A call in bounded time, with our errors; FileNotFoundError for a missing object."""
        try:
            return self._calls.run(call, self._soon, doing, progress)
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            if is_missing(self._kind, error):
                raise FileNotFoundError from None
            raise self._translated(error, doing) from None


def pieces_of(file: Upload) -> Iterator[bytes]:
    """The file's bytes, in parts.

    Raises:
        OSError: The source cannot be read, or has not as many bytes as it had.
    """
    size = 0
    if isinstance(file.source, bytes):
        size = len(file.source)
        yield from (file.source[at : at + PART] for at in range(0, size, PART))
    else:
        with Path(file.source).open("rb") as opened:
            while piece := opened.read(PART):
                size += len(piece)
                yield piece
    if size != file.size:
        raise OSError(f"{file.path} has {size} bytes, and had {file.size}")


def _common_folder(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    first, last = paths[0].split("/")[:-1], paths[-1].split("/")[:-1]  # what these have in common, all between have
    return "/".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
