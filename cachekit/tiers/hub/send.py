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
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cachekit.errors import RemoteError
from cachekit.tiers.hub.call import Call
from cachekit.tiers.port import Upload

SAMPLE = 512  # bytes, by which the Hub tells text from binary
THREADS = 5
DOCUMENT_LIMIT = 1 << 20  # bytes; the Hub keeps text of up to 10 MB in git itself
_REPORTER = threading.Lock()


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
    """Xet's progress goes to the call and not to the terminal; what it does is given up when nobody waits.

    Where no progress can be had (bars are off in the environment, or the client changed), there is the time only.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    with _REPORTER:
        module = _reporters()
        names = [n for n in ("XetUploadProgressReporter", "XetProgressReporter") if hasattr(module, n)]
        bars_off = are_progress_bars_disabled()
        kept = {name: getattr(module, name) for name in names}
        for name in names:
            setattr(module, name, lambda *_, **__: _Reporter(call))
        call.blind = bars_off or not names
        if not names and not bars_off:
            disable_progress_bars()
        try:
            yield
        finally:
            for name, reporter in kept.items():
                setattr(module, name, reporter)
            if not names and not bars_off:
                enable_progress_bars()


def _reporters() -> Any:
    """The client's module of Xet's progress bars; None where Xet is not used."""
    try:
        from huggingface_hub.utils import _xet_progress_reporting
        from huggingface_hub.utils._runtime import is_xet_available
    except ImportError:
        return None
    return _xet_progress_reporting if is_xet_available() else None


class _Reporter:
    """In place of the client's bars: `hf_xet` calls it with totals (later versions) or increments (0.x)."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._sent = 0
        self._state: list[str] = []

    def update_progress(self, total_update: Any, item_updates: Any) -> None:
        """Called by name in 0.x: the names are `hf_xet`'s."""
        sent = getattr(total_update, "total_transfer_bytes_completion_increment", None)
        if sent is None:
            completed = int(getattr(total_update, "total_transfer_bytes_completed", 0))
            sent, self._sent = max(0, completed - self._sent), max(completed, self._sent)
        names = ("total_bytes_completed", "total_transfer_bytes_completed", "shard")
        state = [str(getattr(total_update, name, None)) for name in names]
        if sent or state != self._state:
            self._state = state
            self._call.progress(int(sent))

    def close(self, *_: Any) -> None:
        """As the client's bars have it."""


def abandon() -> None:
    """End what Xet does in its own threads, where the client can."""
    try:
        from huggingface_hub.utils._xet import abort_xet_session
    except ImportError:
        return
    abort_xet_session()
