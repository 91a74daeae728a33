"""What lies in a bucket of an object store: found, listed and read, in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cachekit.calls import CallProgress, Calls
from cachekit.errors import CachekitError, RemoteError, TooLargeError
from cachekit.files import is_digest
from cachekit.remotes.budget import each
from cachekit.remotes.layout import check
from cachekit.remotes.objectstore.connect import ObjectService, is_missing, is_past_the_end, parse, translated
from cachekit.remotes.port import Document, Entry, Limits

T = TypeVar("T")
REMOVED = b'{"cachekit": "removed", "meaning": "a document was here; the place is free"}\n'
PART = 8 << 20  # bytes of a piece; and of a part of a large upload, on which an ETag of S3 depends
ASKERS = 16
SHA256 = "sha256"  # name of the metadata that objects carry
FEW = 5  # files that are asked for one by one, which also tells their SHA-256: those of a module, and a pack
_PAGE = 1000  # entries of one answer to a listing
_PATIENCE = 8  # answers of a listing; the rest is asked for one by one if they settled fewer than FEW files each
_CHUNK = 64 << 10  # bytes that are handed on at least, but for the last ones


class DocumentVersion(Struct, frozen=True, omit_defaults=True):
    """What names a state of a document: S3 and Azure compare the ETag, Google the version."""

    e_tag: str | None = None
    version: str | None = None

    def is_of(self, e_tag: str) -> bool:
        """Whether this is the state with an ETag, given without quotes."""
        return (self.e_tag or "").strip('"') == e_tag


class FoundObject(Struct, frozen=True):
    """An object.

    Attributes:
        entry: What the port tells of it.
        e_tag: Without quotes.
        token: What names its state.
    """

    entry: Entry
    e_tag: str
    token: str


class ObjectReader:
    """What is read of a bucket of an object store, below a prefix.

    Args:
        kind: What the service does differently.
        address: `s3://bucket/prefix`.
        options: Of its table in cachekit.toml; see the kind.
        limits: How long it may take.

    Raises:
        UsageError: obstore is not installed, or the address or the settings cannot be used.
    """

    def __init__(self, kind: ObjectService, address: str, options: Mapping[str, str], limits: Limits) -> None:
        bucket, prefix = parse(kind, address)
        self.name = f"{kind.scheme}://{bucket}/{prefix}".rstrip("/")
        self._kind, self._limits = kind, limits
        self._stores = kind.connect(bucket, prefix, options, limits)
        # obstore ends what hangs by itself, a little later; so none of it is refused.
        self._calls = Calls(self.name, hanging=1000)
        # Seconds that a small answer may take, with a little for the client itself to give up first.
        self._soon = 2 * self._limits.connect + self._limits.read
        self._seen = False  # the bucket is there

    def _look(self, paths: Sequence[str]) -> dict[str, FoundObject]:
        """What exists of some paths: by requests for each, or by pages of a listing, whichever are fewer."""
        check(paths)
        found: dict[str, FoundObject] = {}
        left = sorted(set(paths))  # by code point, which is the order of UTF-8, and of object stores, too
        pages, wanted = 0, len(left)
        listing = self._listing(_common_folder(left))
        while len(left) > FEW and (pages < _PATIENCE or wanted - len(left) >= pages * FEW):
            page = {entry["path"]: entry for entry in self._do("list", partial(listing, left[0]))}
            pages, self._seen = pages + 1, True
            for path in left:
                if path in page and (seen := self._seen_in_list(page[path])):
                    found[path] = seen
            last = max(page) if len(page) >= _PAGE else None
            left = [path for path in left if path > last] if last is not None else []
        heads = each([partial(self._head, path) for path in left], ASKERS)
        found |= {path: seen for path, seen in zip(left, heads, strict=True) if seen}
        if not self._seen:
            if not found and left:  # a missing bucket and a missing object answer the same
                self._do("list", partial(self._listing(""), left[0]))
            self._seen = True
        return found

    def _listing(self, folder: str) -> Callable[[str], Sequence[Any]]:
        """A function that gives the next page of a listing: from a name on, or in the server's own order."""
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

    def _object(self, store: Any, path: str, options: Any = None) -> Any:
        """What the service answers for an object.

        Raises:
            RemoteError: It is none of the service's: a page of a proxy, or of a login, maybe with an ETag of its own.
        """
        import obstore

        result = obstore.get(store, path, options=options)
        if str(result.attributes.get("Content-Type", "")).startswith("text/html"):  # as no object of a cache is sent
            message = f"{self.name} did not send the file that was asked for"
            raise RemoteError(message, cause="a web page came instead", hint=f"{self._kind.check}, proxies")
        return result

    def _head(self, path: str) -> FoundObject | None:
        """An object, by a request of its own; None where none is there."""
        try:
            result = self._do("look", lambda: self._object(self._stores.asks, path, {"head": True}))
        except FileNotFoundError:
            return None
        sha256 = result.attributes.get(SHA256, "")
        digests = {SHA256: sha256} if is_digest(sha256) else {}
        meta = result.meta
        found = FoundObject(Entry(path, meta["size"], digests), (meta["e_tag"] or "").strip('"'), self._token(meta))
        return None if self._is_removed(found) else found

    def _seen_in_list(self, listed: Any) -> FoundObject | None:
        # An ETag may be an MD5 or not (encryption by KMS, parts), and does not say so: it is not a digest to rely on.
        found = FoundObject(Entry(listed["path"], listed["size"]), (listed["e_tag"] or "").strip('"'), "")
        return None if self._is_removed(found) else found

    def _is_removed(self, found: FoundObject) -> bool:
        if found.entry.size != len(REMOVED):
            return False
        known = self._kind.e_tag_of(lambda: iter([REMOVED]), "")
        return (bool(known) and found.e_tag == known) or self._reads_removed(found.entry.path)

    def _reads_removed(self, path: str) -> bool:
        document = self._document(path, len(REMOVED))
        return document is None or document.data == REMOVED

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """All files below a folder; a request for 1,000 files."""
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

    def _document(self, path: str, limit: int) -> Document | None:
        """A document, or the marker in the place of one; None where neither is there.

        Raises:
            TooLargeError: It has more than `limit` bytes.
        """
        check([path])
        progress = CallProgress()

        def get() -> Document:
            result = self._object(self._stores.reads, path)
            size, token = result.meta["size"], self._token(result.meta)
            if size > limit:
                cause = f"{size} bytes, at most {limit} expected"
                raise TooLargeError(f"{self.name}: {path} is too large", cause=cause, token=token)
            data = bytearray()
            for chunk in result.stream(min_chunk_size=_CHUNK):
                data += chunk
                progress(len(chunk))
            return Document(bytes(data), token)

        document: Document | None = None
        with suppress(FileNotFoundError):
            document = self._do("read", get, progress=progress)
        self._seen = True  # where the bucket is missing, that is another error
        return document

    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """A file's bytes; one request."""
        check([path])

        def get() -> Iterator[bytes]:
            if end is not None and end <= start:
                return
            wanted: Any = {"offset": start} if end is None else (start, end)
            options: Any = {"range": wanted} if start or end is not None else None
            result = self._object(self._stores.reads, path, options)
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

    def _do(self, doing: str, call: Callable[[], T], progress: CallProgress | None = None) -> T:
        """A call in bounded time, with our errors.

        Raises:
            FileNotFoundError: There is no such object.
            CachekitError: Of the port.
        """
        try:
            return self._calls.run(call, self._soon, doing, progress)
        except Exception as error:  # noqa: BLE001 - obstore's own have no common root
            if is_missing(self._kind, error):
                raise FileNotFoundError from None
            raise self._translated(error, doing) from None

    def _translated(self, error: BaseException, doing: str) -> CachekitError:
        """An error of obstore in our words."""
        return translated(self._kind, error, self.name, doing)

    def _token(self, meta: Mapping[str, Any]) -> str:
        if not (meta["e_tag"] or meta["version"]):
            message = f"{self.name}: the service returns neither ETags nor versions"
            raise RemoteError(message, hint="use another kind of remote", lasting=True)
        return msgspec.json.encode(DocumentVersion(meta["e_tag"], meta["version"])).decode()


def _common_folder(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    first, last = paths[0].split("/")[:-1], paths[-1].split("/")[:-1]  # what these have in common, all between have
    return "/".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
