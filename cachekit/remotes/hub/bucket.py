"""A remote in a Storage Bucket of the Hugging Face Hub: `hf://buckets/namespace/name[/prefix]`.

A bucket has no versions, no commits and no conditions: the last writer of a path wins, and a change of several files
is one request, or few, carried out in its order, but no transaction. So:

- Nothing is overwritten knowingly: before a write one request asks for the states it builds on, unless the last second
  told them. Between that and the write somebody else may still be faster; `compares` is false, and leases are taken
  another way.
- Two pushes may send two builds of one module to one path, and the later one stays. So each file that no record has
  inside lies below its digest as well, which is one line more in a request: a bucket keeps equal bytes once.
- The Hub knows contents by their Xet hash, which the client can compute without sending them: so it is told for
  nothing whether there are different bytes at an artifact's path. `Entry.digests` stays empty.
- A write whose answer was lost may land late, over what others wrote meanwhile; the record of a key is merged again by
  the next push of it.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cachekit import redact
from cachekit.errors import (
    BusyError,
    ConflictError,
    IntegrityError,
    RemoteError,
    TooLargeError,
    UncertainError,
    UsageError,
)
from cachekit.remotes.hub.account import login
from cachekit.remotes.hub.client import LINES, STAGING, Client
from cachekit.remotes.layout import BLOBS, INDEX, RECORDS, ROOT, TINY, blob_path, check, is_good
from cachekit.remotes.port import ABSENT, ANY, Commit, Document, Entry, Limits, Storage, Tell, Upload, Write, reads_as

if TYPE_CHECKING:
    from cachekit.health import Finding

BATCH = 1000  # paths in one question, operations in one batch: the Hub's limit
_FEWEST = 100  # operations in one batch of a client before 1.10, which sends more in several, and goes on if one fails
PATIENCE = 3  # more tries of a batch of files, whose paths have one content
_TOGETHER = 64 << 20  # bytes that are sent in one batch, unless a single file has more
FRESH = 1.0  # seconds for which a look counts: a change takes about as long to arrive there


class BucketStorage(Storage):
    """A Storage Bucket, or what lies below a prefix in it.

    Args:
        name: `hf://buckets/namespace/name[/prefix]`.
        limits: How long it may take.
        endpoint: Of the Hub; else from HF_ENDPOINT.
        token: Else the one that the client finds.

    Raises:
        UsageError: It is not such a name, or the installed huggingface_hub knows no buckets.
    """

    compares = False
    batch = BATCH
    joins = 1 << 20
    lines = LINES
    staging = STAGING

    def __init__(
        self, name: str, *, limits: Limits | None = None, endpoint: str = "", token: str | None = None
    ) -> None:
        found = re.fullmatch(r"hf://buckets/([\w.-]+/[\w.-]+)(?:/(.*))?", name, re.ASCII)
        prefix = (found[2] or "").strip("/") if found else ""
        if not found or (prefix and any(part in {"", ".", ".."} for part in prefix.split("/"))):
            raise UsageError(
                f"{redact.address(name)!r} is not a bucket of the Hub", hint="write it as hf://buckets/namespace/name"
            )
        self._most = _check_client(f"hf://buckets/{found[1]}")
        self._bucket = found[1]
        self._below = f"{prefix}/" if prefix else ""
        self.name = f"hf://buckets/{found[1]}/{prefix}".rstrip("/")
        self._client = Client(self.name, endpoint or None, token, limits or Limits())
        self._sent: set[tuple[str, str]] = set()
        self._looks: dict[str, tuple[float, Entry | None, str]] = {}  # when, and what was there
        self._info: Any = None  # what the Hub says of the bucket

    def revision(self) -> str:
        """Nothing: there are no versions. The first time it is found out whether anybody can read it; one request."""
        self._looks.clear()
        self._said()
        return ""

    def stranger(self, memory: Path | None = None) -> str:
        """What the bucket's owner and its being private say; one request a day, beside that of `revision`."""
        info = self._said()
        return self._client.stranger(str(info.id or self._bucket), memory, private=self.private)

    def known_stranger(self, memory: Path | None = None) -> str:
        """What the endpoint says, and the names that the token stood for when that was asked last."""
        return self._client.stranger(str(self._said().id or self._bucket), memory, private=self.private, asks=False)

    def _said(self) -> Any:
        if self._info is None:
            self._info = self._client.ask(lambda api: api.bucket_info(self._bucket))
            self.public, self.private = self._info.private is False, self._info.private is True
        return self._info

    def server(self) -> str:
        """The Hub."""
        return self._client.endpoint

    def login(self, *, writable: bool) -> Finding:
        """What there is of a token of the Hub."""
        return login(self.name, writable=writable)

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those that exist; a request for 1,000 paths."""
        return {path: entry for path, (entry, _) in self._look(paths).items()}

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """All files below a folder; a request for a page of the Hub's, of 1,000 files."""
        check([folder] if folder else [])
        below = self._below + (f"{folder}/" if folder else "")

        def tree(api: Any) -> Iterator[Any]:
            found: Iterator[Any] = api.list_bucket_tree(self._bucket, below.rstrip("/") or None, recursive=True)
            return found

        try:
            for item in self._client.each(tree, self._client.call(missing=True)):
                # A server may take the folder for the beginning of a name.
                if item.type == "file" and item.path.startswith(below) and is_good(item.path):
                    entry = self._entry(item)
                    self._looks[entry.path] = (time.monotonic(), entry, str(item.xet_hash or ""))
                    yield entry
        except FileNotFoundError:
            return

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """A document; two requests, and none where a fresh look says that it is what is known to lie there.

        What is named by its digest does not change: of that, an older look of the same change will do.
        """
        seen, there, token = self._looks.get(path, (-math.inf, None, ABSENT))
        copy = self.copies.get(path) if there else None
        fresh = path.startswith(f"{BLOBS}/") or time.monotonic() - seen < FRESH
        if fresh and copy is not None and len(copy) <= limit and self._is(copy, token):
            return Document(copy, token)
        call = self._client.call(streams=True, missing=True)
        begun = time.monotonic()
        try:
            data, token, _ = self._client.document(self._address(path), path, limit, call)
        except FileNotFoundError:
            self._looks[path] = (begun, None, ABSENT)
            return None
        except TooLargeError as error:
            error.token = error.token or self._token(path)
            raise
        token = token or self._token(path)
        self._looks[path] = (begun, Entry(path, len(data)), token)
        if path == INDEX or path.startswith(f"{RECORDS}/"):  # who has read it may push to it next
            self.copies.keep(path, data)
        return Document(data, token) if token else None

    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """A file's bytes; two requests, and one for each further range."""
        yield from self._client.chunks(self._address(path), self._client.call(streams=True, missing=True), start, end)

    def _address(self, path: str) -> str:
        check([path])
        return f"{self._client.endpoint}/buckets/{self._bucket}/resolve/{quote(self._below + path, safe='')}"

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """Send files: one request to look, unless the last one is fresh, and one for each batch that is not there."""
        there = self._look([file.path for file in files], FRESH)
        spoilt = self._compare([file for file in files if file.path in there], there)
        missing = [file for file in files if file.path not in there or file in spoilt]
        for batch in _batches(missing, self._most // 2):
            size = sum(file.size for file in batch)
            try:
                self._batch(self._adds(batch), [], size, patience=PATIENCE)
            except UncertainError as error:
                raise RemoteError(f"files cannot be sent to {self.name}", cause=error.cause) from None
            finally:
                self._looks.clear()
            tell(size)
        self._sent.update((file.path, file.sha256) for file in files)

    def commit(self, change: Commit, revision: str) -> str:
        """A look, unless the last one is fresh; and one request for all documents, in their order, after few files."""
        check([write.path for write in change.writes])
        sent, self._sent = self._sent, set()
        files = [file for file in change.files if (file.path, file.sha256) not in sent]
        if sum(file.size for file in files) > self.joins or 2 * len(files) > self._most:
            self.upload(files, revision, lambda _: None)
            files = []
        seen = {path for path, (_, entry, _) in self._looks.items() if entry}  # to remove one of these needs no look
        paths = [write.path for write in change.writes if write.token != ANY]
        paths += [write.path for write in change.writes if write.data is None and write.path not in seen]
        there = self._look([*(file.path for file in change.files), *paths], FRESH)
        # What was sent as well: others may have sent theirs to the same path since, or removed it.
        spoilt = self._compare([file for file in change.files if file.path in there], there)
        if gone := [file.path for file in change.files if file not in files and file.path not in there]:
            raise ConflictError(f"{self.name}: {gone[0]} is gone again")
        for write in change.writes:
            if write.token not in {ANY, there.get(write.path, (None, ABSENT))[1]}:
                raise ConflictError(f"{self.name}: {write.path} was changed in the meantime")
        add = [*self._adds([file for file in files if file.path not in there or file in spoilt])]
        add += [(write.data, self._below + write.path) for write in change.writes if write.data is not None]
        seen |= there.keys()
        delete = [self._below + write.path for write in change.writes if write.data is None and write.path in seen]
        size = sum(file.size for file in files) + sum(len(write.data or b"") for write in change.writes)
        try:
            for at in range(0, len(add) + len(delete), self._most):  # what comes after one that failed is not sent
                end = at + self._most
                self._batch(add[at:end], delete[max(0, at - len(add)) : max(0, end - len(add))], size)
        except UncertainError:
            if not self._is_there(change.writes):
                raise
        finally:
            self._looks.clear()
        return ""

    def _adds(self, files: Sequence[Upload]) -> Sequence[Any]:
        """Each file at its own path, and below its digest, where nothing else is ever put."""
        spared = [file for file in files if file.size > TINY and not file.path.startswith(f"{ROOT}/")]
        hashes = dict(zip((file.path for file in spared), _hashes_of(spared) or [], strict=False))
        add = []
        for file in files:
            add.append((_source(file), self._below + file.path))
            if file in spared:
                add.append(_once_more(file, self._below + blob_path(file.sha256), hashes.get(file.path)))
        return add

    def _batch(self, add: Sequence[Any], delete: Sequence[str], size: int, *, patience: int = 0) -> None:
        """Send files and documents, and remove others: in one request, after their bytes.

        Nothing of it is sent any more once this has raised: a document that somebody else has written by then would be
        written over.

        Args:
            add: Sources and paths, or what `_once_more` makes.
            delete: Paths.
            size: Bytes of all.
            patience: How often a request that failed may be sent again meanwhile: none for what others may write too.

        Raises:
            BusyError: The Hub says that something is in the way.
            UncertainError: No answer came, or the line was cut: it may have happened, or happen still.
            CachekitError: The Hub refused.
        """
        call = self._client.call(uploads=True, slack=size, patience=patience, again=frozenset({"POST"}))
        try:
            self._client.send(
                lambda api: api.batch_bucket_files(self._bucket, add=list(add), delete=list(delete)), call
            )
        except ConflictError as error:  # a bucket compares nothing, so this says nothing of what lies there
            raise BusyError(error.message, cause=error.cause) from error

    def _look(self, paths: Sequence[str], fresh: float = 0.0) -> dict[str, tuple[Entry, str]]:
        """The files that exist, with their Xet hashes; what was seen so many seconds ago counts."""
        check(paths)
        since = time.monotonic() - fresh
        known = {path: self._looks[path] for path in paths if fresh and path in self._looks}
        if all(path in known and known[path][0] >= since for path in paths):
            return {path: (entry, token) for path, (_, entry, token) in known.items() if entry}
        wanted = [self._below + path for path in dict.fromkeys(paths)]
        found: dict[str, tuple[Entry, str]] = {}
        now = time.monotonic()
        for at in range(0, len(wanted), BATCH):

            def infos(api: Any, batch: Sequence[str] = wanted[at : at + BATCH]) -> Sequence[Any]:
                return [info for info in api.get_bucket_paths_info(self._bucket, batch) if info.type == "file"]

            for info in self._client.ask(infos):
                entry = self._entry(info)
                found[entry.path] = (entry, str(info.xet_hash or ""))
        self._looks |= {path: (now, *found.get(path, (None, ABSENT))) for path in paths}
        return found

    def _token(self, path: str) -> str:
        return self._look([path]).get(path, (None, ABSENT))[1]

    def _entry(self, info: Any) -> Entry:
        if not isinstance(info.size, int) or info.size < 0:
            raise IntegrityError(f"{self.name}: {info.path} has no size")
        at = info.uploaded_at.timestamp() if info.uploaded_at else 0.0
        return Entry(info.path.removeprefix(self._below), info.size, at=at)

    def _is(self, data: bytes, token: str) -> bool:
        """Whether a token is that of these bytes, as far as the client can compute it."""
        with tempfile.TemporaryDirectory(prefix="cachekit-") as folder:
            path = Path(folder, "copy")
            path.write_bytes(data)
            return _xet_hashes([path]) == [token]

    def _compare(self, files: Sequence[Upload], there: dict[str, tuple[Entry, str]]) -> Sequence[Upload]:
        """Raise where other bytes than these lie at one of the paths.

        Returns:
            The files below their digests of which that is so: nothing else belongs there, so they are sent again.

        Raises:
            ConflictError: Other bytes lie at a path where others may put theirs.
        """
        hashes = _hashes_of(files) if files else []
        spoilt = []
        for number, file in enumerate(files):
            entry, known = there[file.path]
            same = entry.size == file.size
            if same and file.size:
                same = hashes[number] == known if hashes and known else reads_as(self, file.path, file.sha256)
            if not same and file.path != blob_path(file.sha256):
                raise ConflictError(f"{self.name}: there are different bytes at {file.path}")
            if not same:
                spoilt.append(file)
        return spoilt

    def _is_there(self, writes: Sequence[Write]) -> bool:
        """Whether all these documents are as they were to be written."""
        try:
            documents = [self.read(write.path, "", max(1, len(write.data or b""))) for write in writes]
        except Exception:  # noqa: BLE001 - what counts is the error that came first
            return False
        return [document.data if document else None for document in documents] == [write.data for write in writes]


def opened(address: str, options: Mapping[str, str]) -> BucketStorage:
    """The remote at `hf://buckets/namespace/name[/prefix]`; options: `endpoint`."""
    return BucketStorage(address, endpoint=options.get("endpoint", ""))


def _check_client(name: str) -> int:
    """How many operations the client sends in one batch."""
    import huggingface_hub

    if not hasattr(huggingface_hub.HfApi, "batch_bucket_files"):
        raise UsageError(
            f"{name} needs huggingface_hub 1.5 or newer",
            cause=f"{huggingface_hub.__version__} is installed, which does not support buckets",
            hint='pip install "huggingface_hub>=1.5"',
        )
    try:
        import hf_xet  # noqa: F401 - buckets have no other way to send bytes
    except ImportError as error:
        raise UsageError(f"{name} needs hf_xet", cause=str(error), hint="pip install hf_xet") from None
    return min(BATCH, getattr(huggingface_hub.hf_api, "_BUCKET_BATCH_ADD_CHUNK_SIZE", _FEWEST))


def _xet_hashes(paths: Sequence[Path]) -> list[str] | None:
    """The Xet hashes of these files; None where the client cannot compute them."""
    import hf_xet

    if not hasattr(hf_xet, "hash_files"):
        return None
    return [str(info.hash) for info in hf_xet.hash_files([str(path) for path in paths])] if paths else []


def _hashes_of(files: Sequence[Upload]) -> list[str] | None:
    with tempfile.TemporaryDirectory(prefix="cachekit-") as folder:
        paths = []
        for number, file in enumerate(files):
            path = Path(folder, str(number)) if isinstance(file.source, bytes) else Path(file.source)
            if isinstance(file.source, bytes):
                path.write_bytes(file.source)
            paths.append(path)
        return _xet_hashes(paths)


def _once_more(file: Upload, path: str, xet_hash: str | None) -> Any:
    """A file that the same batch sends to its own path, at another path.

    Clients from 1.10 on pass on what a batch makes of a pair of source and path, and send nothing where it has a hash.
    Others look at the pair, and send the bytes once more.
    """
    try:
        from huggingface_hub._buckets import _BucketAddFile
    except ImportError:
        xet_hash = None
    if not xet_hash:
        return (_source(file), path)

    class Known(_BucketAddFile):  # type: ignore[misc]  # the client has no types
        def __iter__(self) -> Iterator[Path | bytes | str]:
            yield from (self.source, self.destination)

    return Known(source=_source(file), destination=path, xet_hash=xet_hash, size=file.size)


def _source(file: Upload) -> Path | bytes:
    if isinstance(file.source, bytes):
        return file.source
    path = Path(file.source)
    if path.stat().st_size != file.size:
        raise OSError(0, "its size has changed", str(path))
    return path


def _batches(files: Sequence[Upload], most: int) -> Iterator[Sequence[Upload]]:
    """Files that are sent together, so many at most: large ones alone, so that each has its own time."""
    batch: list[Upload] = []
    for file in files:
        if batch and (len(batch) >= most or sum(one.size for one in batch) + file.size > _TOGETHER):
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch
