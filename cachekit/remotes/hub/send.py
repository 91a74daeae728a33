"""Files on their way to a repo: the client's operations, their bytes ahead of the commit, and the commit.

What the client (0.36 to 2.4) does here that matters:
- `CommitOperationAdd` hashes its file (0.x at once, later when asked); we know the digest, and hand it over.
- An operation serves one commit. What was preuploaded stays on the Hub, so a later attempt gets a new operation that
  says so (`_upload_mode`, `_is_uploaded`: marks that the client's own uploaders set). A client that no longer reads
  these marks asks the Hub again, and sends nothing twice: the Hub knows the digests.
- `create_commit` drops files that have not changed, also if the parent is stale. Operations whose mode is set are not
  looked up, so none of ours is dropped, and the Hub compares the parent.
- A file that the repo's `.gitignore` names is left out of the commit without a word.
- With Xet, which is the default, its Rust part speaks to the store itself: tries for ever, tells only a progress bar.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cachekit.errors import RemoteError
from cachekit.remotes.hub.call import Call, current
from cachekit.remotes.hub.session import MARK
from cachekit.remotes.port import Upload

SAMPLE = 512  # bytes, by which the Hub tells text from binary
THREADS = 5
TRIES = "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS"  # hf_xet's own: 5 by default, over two minutes
DOCUMENT_LIMIT = 1 << 20  # bytes; the Hub keeps text of up to 10 MB in git itself


def addition(file: Upload, mode: str | None = None) -> Any:
    """The client's operation for a file, without hashing it.

    Args:
        file: What, and where.
        mode: As the Hub said when it was preuploaded, `lfs` or `regular`; None to have it asked.

    Raises:
        OSError: The source cannot be read, or has another size.
    """
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.lfs import UploadInfo

    if isinstance(file.source, bytes):
        content: bytes | str = file.source
        sample, size = file.source[:SAMPLE], len(file.source)
    else:
        path = Path(file.source)
        with path.open("rb") as stream:
            sample, size = stream.read(SAMPLE), path.stat().st_size
        content = str(path.absolute())
    if size != file.size:
        raise OSError(f"the file for {file.path} has {size} bytes, not {file.size}: it was changed")
    operation = CommitOperationAdd(file.path, b"")
    operation.path_or_fileobj = content
    operation.upload_info = UploadInfo(sha256=bytes.fromhex(file.sha256), size=size, sample=sample)
    if mode:
        operation._upload_mode, operation._should_ignore = mode, False  # noqa: SLF001
        operation._is_uploaded = mode == "lfs"  # noqa: SLF001
    return operation


def document(path: str, data: bytes) -> Any:
    """The operation for a document: text that git holds itself, whatever `.gitattributes` says of its name."""
    from huggingface_hub import CommitOperationAdd

    operation = CommitOperationAdd(path, data)
    if len(data) <= DOCUMENT_LIMIT and _is_text(data):
        operation._upload_mode, operation._should_ignore = "regular", False  # noqa: SLF001
    return operation


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def preupload(api: Any, repo: dict[str, str], branch: str, files: Sequence[Upload]) -> dict[str, str]:
    """Send what the Hub does not take in a commit; the mode of each path.

    Raises:
        RemoteError: The repo's `.gitignore` leaves one of them out.
        OSError: As `addition`.
    """
    operations = [addition(file) for file in files]
    api.preupload_lfs_files(additions=operations, revision=branch, num_threads=THREADS, **repo)
    refuse_ignored(operations)
    return {operation.path_in_repo: operation._upload_mode for operation in operations}  # noqa: SLF001


def commit(api: Any, repo: dict[str, str], call: Call, **options: Any) -> str:
    """The id of the commit that the client makes.

    0.x fails after the commit where the endpoint is not that of the environment: it cannot read the commit's address.

    Raises:
        Exception: Whatever the client raises.
    """
    try:
        return str(api.create_commit(num_threads=THREADS, **repo, **options).oid)
    except ValueError:
        try:
            return str(json.loads(call.answer)["commitOid"])
        except (ValueError, KeyError, TypeError):
            pass
        raise


def refuse_ignored(operations: Sequence[Any]) -> None:
    """Raise for files that the client would silently leave out."""
    for operation in operations:
        if getattr(operation, "_should_ignore", False):
            path = operation.path_in_repo
            raise RemoteError(f"the repo's .gitignore leaves out {path}", hint="take that line out of .gitignore")


@contextmanager
def watched(call: Call) -> Iterator[None]:
    """Nothing of the client's bars gets to the terminal; Xet's progress goes to the call.

    Where there are none (bars are off in the environment, or the client changed), there is the time only.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    off, seen = are_progress_bars_disabled(), _replace_reporter()
    call.blind = off or not seen
    if off or seen:
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _replace_reporter() -> bool:
    """Put ours in place of the client's bars for Xet, once; whether it will be asked.

    It stays there: a thread that hangs in Xet may never give back what it took. Uploads of others get their bars.
    """
    try:
        from huggingface_hub.utils import _xet_progress_reporting as module
        from huggingface_hub.utils._runtime import is_xet_available
    except ImportError:  # without hf_xet, in 0.x
        return False
    if not _can_abort():
        os.environ.setdefault(TRIES, "3")  # what it does not give up, later uploads of this process wait for
    names = [name for name in ("XetUploadProgressReporter", "XetProgressReporter") if hasattr(module, name)]
    for name in names:
        if not hasattr(getattr(module, name), MARK):
            setattr(module, name, _reporter_or(getattr(module, name)))
    return bool(names) and is_xet_available()


def _reporter_or(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any, **options: Any) -> Any:
        call = current()
        return _Reporter(call) if call else theirs(*args, **options)

    setattr(make, MARK, True)
    return make


class _Reporter:
    """In place of the client's bars: `hf_xet` calls it ten times a second with totals, or with increments (0.x)."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._sent, self._most = 0, -1

    def update_progress(self, total_update: Any, item_updates: Any) -> None:
        """Called by name in 0.x: the names are `hf_xet`'s."""
        del item_updates
        sent = _number(total_update, "total_transfer_bytes_completion_increment")
        completed = _number(total_update, "total_transfer_bytes_completed")
        sent = sent or max(0, completed - self._sent)
        self._sent += sent
        shard = getattr(total_update, "shard", None)
        names = ("total_shards_completed", "total_shard_validation_entries_completed")
        moved = completed + _number(total_update, "total_bytes_completed") + sum(_number(shard, name) for name in names)
        if moved > self._most:  # what is sent again is no progress
            self._most = moved
            self._call(sent)

    def close(self, *_: Any) -> None:
        """As the client's bars have it."""


def _number(holder: Any, name: str) -> int:
    value = getattr(holder, name, 0)
    return int(value) if isinstance(value, (int, float)) else 0


def _can_abort() -> bool:
    from huggingface_hub.utils import _xet

    return hasattr(_xet, "abort_xet_session")


def abandon() -> None:
    """End what Xet does in its own threads, where the client can: not in 0.x."""
    if _can_abort():
        from huggingface_hub.utils._xet import abort_xet_session

        abort_xet_session()
