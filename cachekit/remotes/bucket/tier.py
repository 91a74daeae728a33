"""A tier in a Storage Bucket of the Hugging Face Hub: `hf://buckets/namespace/name[/prefix]`.

A bucket has no versions, no commits and no conditions: the last writer of a path wins, and a change of several files
is one request, carried out in its order, but no transaction. So:

- Nothing is overwritten knowingly: before a write one request asks for the states it builds on. Between that and the
  write somebody else may still be faster; `compares` is false, and leases are claimed another way.
- The Hub knows contents by their Xet hash, which the client can compute without sending them: so it is told for
  nothing whether other bytes lie at an artifact's path. `Entry.digests` stays empty.
- A write whose answer was lost may land late, over what others wrote meanwhile; the record of a key is merged again by
  the next push of it.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.errors import IntegrityError, RemoteError, TooLargeError, UsageError
from cachekit.remotes import trust
from cachekit.remotes.bucket.client import BATCH, BucketClient
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
from cachekit.text import redact

PATIENCE = 3  # more tries of a batch of files, whose paths have one content
_TOGETHER = 64 << 20  # bytes that are sent in one batch, unless a single file has more


class BucketTier:
    """A Storage Bucket, or what lies below a prefix in it.

    Args:
        name: `hf://buckets/namespace/name[/prefix]`.
        limits: How long it may take.
        endpoint: Of the Hub; else from HF_ENDPOINT.
        token: Else the one that the client finds.

    Raises:
        UsageError: It is no such name, or the installed huggingface_hub knows no buckets.
    """

    compares = False
    scarce = False
    batch = BATCH
    public = False

    def __init__(
        self, name: str, *, limits: Limits | None = None, endpoint: str = "", token: str | None = None
    ) -> None:
        found = re.fullmatch(r"hf://buckets/([\w.-]+/[\w.-]+)(?:/(.*))?", name, re.ASCII)
        prefix = (found[2] or "").strip("/") if found else ""
        if not found or (prefix and any(part in {"", ".", ".."} for part in prefix.split("/"))):
            raise UsageError(
                f"{redact(name)!r} is no bucket of the Hub", hint="write it as hf://buckets/namespace/name"
            )
        self._limits = limits or Limits()
        self._client = BucketClient(found[1], self._limits, endpoint=endpoint, token=token)
        self._below = f"{prefix}/" if prefix else ""
        self.name = f"hf://buckets/{found[1]}/{prefix}".rstrip("/")
        self._sent: set[tuple[str, str]] = set()
        self._info: dict[str, Any] | None = None  # what the Hub says of the bucket

    def revision(self) -> str:
        """Nothing: there are no versions. The first time it is found out whether anybody can read it; one request."""
        self._said()
        return ""

    def stranger(self, memory: Path | None = None) -> str:
        """What the bucket's owner and its being private say; one request a day, beside that of `revision`."""
        info = self._said()
        accounts = trust.Accounts(memory, *self._client.identity(), self._client.whoami)
        return trust.stranger_on_hub(str(info.get("id") or self._client.bucket), info.get("private"), accounts)

    def _said(self) -> dict[str, Any]:
        if self._info is None:
            self._info = self._client.info()
            self.public = self._info.get("private") is False
        return self._info

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """See the port: a request for 1,000 paths."""
        return {path: entry for path, (entry, _) in self._look(paths).items()}

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """See the port: a request for a page of the Hub's, of 1,000 files."""
        check([folder] if folder else [])
        below = self._below + (f"{folder}/" if folder else "")
        for item in self._client.tree(below.rstrip("/")):
            if item["path"].startswith(below):  # a server may take it for the beginning of a name
                yield self._entry(item)

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """See the port."""
        check([path])

        def get() -> Iterator[tuple[bytes, str]]:
            with self._client.opened(self._below + path) as (response, xet):
                yield b"", xet
                for chunk in response.iter_raw():
                    yield chunk, xet

        data, token = bytearray(), ""
        try:
            for chunk, token in self._streamed(get):  # noqa: B007 - the same each time
                data += chunk
                if len(data) > limit:
                    break
        except FileNotFoundError:
            return None
        if not token:  # it did not say
            token = self._look([path]).get(path, (None, ""))[1]
        if len(data) > limit:
            raise TooLargeError(f"{self.name}: {path} is too large", cause=f"more than {limit} bytes", token=token)
        return Document(bytes(data), token) if token else None

    def chunks(self, path: str, revision: str, start: int = 0) -> Iterator[bytes]:
        """See the port."""
        check([path])

        def get() -> Iterator[tuple[bytes, str]]:
            with self._client.opened(self._below + path, start) as (response, _):
                if response.status_code == 416:  # noqa: PLR2004 - nothing is left from there on
                    return
                skip = start if response.status_code == 200 else 0  # noqa: PLR2004 - the whole, all the same
                for chunk in response.iter_raw():
                    if chunk[skip:]:
                        yield chunk[skip:], ""
                    skip = max(0, skip - len(chunk))

        try:
            for chunk, _ in self._streamed(get):
                yield chunk
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.name}: there is no {path}") from None

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """See the port: one request to look, one for each batch that is not there."""
        there = self._look([file.path for file in files])
        self._compare([file for file in files if file.path in there], there)
        for batch in _batches([file for file in files if file.path not in there]):
            size = sum(file.size for file in batch)
            sources = [(_source(file), self._below + file.path) for file in batch]
            try:
                self._client.batch(sources, [], size, patience=PATIENCE)
            except TimeoutError as error:
                raise RemoteError(f"{self.name}: files cannot be sent", cause=str(error)) from None
            tell(size)
        self._sent.update((file.path, file.sha256) for file in files)

    def commit(self, change: Change, revision: str) -> str:
        """See the port: a look, and one request for all documents, in their order."""
        check([write.path for write in change.writes])
        if missing := [file for file in change.files if (file.path, file.sha256) not in self._sent]:
            self.upload(missing, revision, lambda _: None)
        there = self._look([write.path for write in change.writes])
        for write in change.writes:
            if there.get(write.path, (None, ABSENT))[1] != write.token:
                raise ConflictError(f"{self.name}: {write.path} was changed meanwhile")
        add: Sequence[tuple[bytes, str]] = [
            (write.data, self._below + write.path) for write in change.writes if write.data is not None
        ]
        delete = [self._below + write.path for write in change.writes if write.data is None and write.path in there]
        if add or delete:
            try:
                self._client.batch(add, delete, sum(len(data) for data, _ in add))
            except TimeoutError as error:
                if not self._is_there(change.writes):
                    raise UncertainError(
                        f"{self.name}: the documents may have been written", cause=str(error)
                    ) from None
        return ""

    def happened(self, title: str) -> str:
        """Nothing: there is no history. A document that was written is found by reading it."""
        return ""

    def _look(self, paths: Sequence[str]) -> dict[str, tuple[Entry, str]]:
        """What exists, and its Xet hash."""
        check(paths)
        wanted = [self._below + path for path in dict.fromkeys(paths)]
        found = [(self._entry(item), str(item.get("xetHash") or "")) for item in self._client.paths_info(wanted)]
        return {entry.path: (entry, xet) for entry, xet in found}

    def _entry(self, item: dict[str, Any]) -> Entry:
        size = item.get("size")
        if not isinstance(size, int) or size < 0:
            raise IntegrityError(f"{self.name}: {item['path']} has no size")
        return Entry(item["path"].removeprefix(self._below), size)

    def _streamed(self, get: Any) -> Iterator[tuple[bytes, str]]:
        try:
            yield from self._client.calls.stream(get, self._limits.connect + self._limits.read, "read")
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001 - httpx of one or the other version, and what lies below it
            raise self._client.translated(error, "read") from None

    def _compare(self, files: Sequence[Upload], there: dict[str, tuple[Entry, str]]) -> None:
        """Nothing, if all these files lie at their paths.

        Raises:
            ConflictError: Other bytes do.
        """
        for file in files:
            if there[file.path][0].size != file.size:
                raise ConflictError(f"{self.name}: other bytes are at {file.path}")
        with tempfile.TemporaryDirectory(prefix="cachekit-") as folder:
            paths = []
            for number, file in enumerate(files):
                path = Path(folder, str(number)) if isinstance(file.source, bytes) else Path(file.source)
                if isinstance(file.source, bytes):
                    path.write_bytes(file.source)
                paths.append(path)
            hashes = self._client.xet_hashes(paths)
        for number, file in enumerate(files):
            known = there[file.path][1]
            same = hashes[number] == known if hashes and known else self._reads_as(file)
            if file.size and not same:
                raise ConflictError(f"{self.name}: other bytes are at {file.path}")

    def _reads_as(self, file: Upload) -> bool:
        digest = hashlib.sha256()
        for chunk in self.chunks(file.path, ""):
            digest.update(chunk)
        return digest.hexdigest() == file.sha256

    def _is_there(self, writes: Sequence[Write]) -> bool:
        """Whether all these documents are as they were to be written."""
        try:
            documents = [self.read(write.path, "", max(1, len(write.data or b""))) for write in writes]
        except Exception:  # noqa: BLE001 - what counts is the error that came first
            return False
        return [document.data if document else None for document in documents] == [write.data for write in writes]


def opened(address: str, options: Mapping[str, str]) -> BucketTier:
    """The remote at `hf://buckets/namespace/name[/prefix]`; options: `endpoint`."""
    return BucketTier(address, endpoint=options.get("endpoint", ""))


def _source(file: Upload) -> Path | bytes:
    if isinstance(file.source, bytes):
        return file.source
    path = Path(file.source)
    if path.stat().st_size != file.size:
        raise OSError(0, "it has another size than before", str(path))
    return path


def _batches(files: Sequence[Upload]) -> Iterator[Sequence[Upload]]:
    """Files that are sent together: large ones alone, so that each has its own time."""
    batch: list[Upload] = []
    for file in files:
        if batch and (len(batch) >= BATCH or sum(one.size for one in batch) + file.size > _TOGETHER):
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch
