"""Regular files: opened without waiting on a pipe, replaced whole, locked while their owner lives."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

from cachekit.decode import from_json

T = TypeVar("T")
LARGEST_NOTE = 32 << 20  # bytes
PIECE = 1 << 20  # bytes
CHUNK = 256 << 10  # bytes of a buffer that is used again: they stay in the processor's cache
DIGEST = "[0-9a-f]{64}"  # a SHA-256 as `digest_of` writes it, as a pattern
_DIGEST = re.compile(DIGEST)
Opener = Callable[[Path, int], int]  # opens a file to be read, as `os.open` does: its path, and flags
Sink = Callable[[int, memoryview], None]  # takes an offset in a file and the bytes there


def opened(path: Path | str, *, buffering: int = -1, opener: Opener = os.open) -> BinaryIO:
    """A file for reading. A pipe in its place is not waited for: that has no end.

    Args:
        path: The file.
        buffering: As `open` has it.
        opener: Opens it.

    Raises:
        OSError: It cannot be read, or is a pipe, a socket or a device.
    """

    def regular(name: str, flags: int) -> int:
        return _regular(opener(Path(name), flags | os.O_NONBLOCK | os.O_CLOEXEC), name)

    return open(path, "rb", buffering=buffering, opener=regular)


def read(path: Path | str, most: int | None = None) -> bytes:
    """All of a file.

    Raises:
        OSError: See `opened`; or the file has more bytes than `most`.
    """
    with opened(path, buffering=0) as source:
        raw = source.read(-1 if most is None else most + 1)
    if most is not None and len(raw) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return raw


def pieces(source: IO[bytes], most: int = sys.maxsize) -> Iterator[bytes]:
    """What is left of an open file, at most so many bytes, a piece after another."""
    while most and (piece := source.read(min(most, PIECE))):
        most -= len(piece)
        yield piece


def written(pieces: Iterable[bytes], target: IO[bytes]) -> Iterator[bytes]:
    """The pieces, each written to a file before it is handed on."""
    for piece in pieces:
        target.write(piece)
        yield piece


def entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def digest_of(pieces: Iterable[bytes]) -> tuple[str, int]:
    """The SHA-256 of bytes that come in pieces, and how many they are."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 as `digest_of` writes it."""
    return _DIGEST.fullmatch(text) is not None


def pour(handle: int, sink: Sink) -> None:
    """Give all bytes of an open file to a sink, from its beginning to its end, in one buffer that is used again.

    By hand: sendfile and copy_file_range were a quarter slower (ext4, page by page), and fail on some systems.
    """
    buffer, offset = memoryview(bytearray(CHUNK)), 0
    while count := os.preadv(handle, [buffer], offset):
        sink(offset, buffer[:count])
        offset += count


def _regular(handle: int, path: str) -> int:
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # whoever opens a folder is told by `open` itself
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def create(path: Path, data: bytes, *, mode: int = 0o666, above: int | None = None) -> None:
    """Write a file that is not there yet: where anything has its name, be it a link, nothing is written.

    Args:
        path: The file.
        data: What it is to hold.
        mode: Its permissions, as far as the umask lets it.
        above: The open folder that a relative path begins in.

    Raises:
        FileExistsError: Something has.
        OSError: It cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode, dir_fd=above), "wb", buffering=0) as target:
        view = memoryview(data)
        while view:
            view = view[target.write(view) :]


def replace(path: Path, data: bytes, *, mode: int = 0o666, above: int | None = None) -> None:
    """Write a file whole or not at all: whoever reads sees what was there, or what is there now.

    Who may read what was there may read what is there now. Its other name, until it is whole, is one that nobody can
    guess. A power cut may lose it; `store.durable` is for what must not be lost.

    Args:
        path: The file; a link in its place is replaced.
        data: What it is to hold.
        mode: Of one that was not there, as far as the umask lets it.
        above: The open folder that a relative path begins in.

    Raises:
        OSError: It cannot be written. What was there stays.
    """
    fresh = path.with_name(f".cachekit-{uuid.uuid4().hex}")
    try:
        create(fresh, data, mode=mode, above=above)
        with suppress(FileNotFoundError):
            there = os.stat(path, dir_fd=above, follow_symlinks=False)
            if stat.S_ISREG(there.st_mode) and there.st_uid in {0, os.geteuid()}:  # a stranger's says nothing of ours
                os.chmod(fresh, stat.S_IMODE(there.st_mode), dir_fd=above)
        os.replace(fresh, path, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=above)
        raise


def write(path: Path, data: bytes, beginning: bytes = b"") -> None:
    """Write a file that somebody named, whole or not at all; a link in its place leads nowhere.

    Args:
        path: The file.
        data: All of it.
        beginning: How it begins. A file that is there and has something else, of somebody's, is not replaced.

    Raises:
        OSError: It cannot be written; see `check_writable`.
    """
    check_writable(path)
    if beginning and path.exists():
        with opened(path) as source:
            head = source.read(len(beginning))
        if head and head != beginning:
            raise OSError(errno.EEXIST, "it exists, and this command did not write it", str(path))
    _replace_or_fill(path, data)


def check_writable(path: Path) -> None:
    """See that a file can be written: it may be there already.

    Raises:
        OSError: Something else is there, which is neither waited for nor replaced; or its folder is missing.
    """
    path.parent.stat()
    mode = stat.S_IFREG
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
    # /dev/stdout may lead to a regular file: root would replace the link.
    if not stat.S_ISREG(mode) or str(path.absolute().parent) == "/dev":
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {what}", str(path))


def _replace_or_fill(path: Path, raw: bytes) -> None:
    """Write a file whole; one that is mounted by itself, as by `docker run -v`, keeps its name, and is written to.

    Raises:
        OSError: It cannot be written.
    """
    try:
        replace(path, raw)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # Only root mounts, so nobody else has made the name lead elsewhere; another name may be a link of somebody's.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as target:
            state = os.fstat(target.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
                raise OSError(errno.EBUSY, "it is mounted, and has other names; mount its folder instead") from error
            target.truncate()
            target.write(raw)


def refuse_link(path: Path) -> None:
    """Look before a library opens a file that may be emptied: filelock followed links before 3.20.1.

    Raises:
        OSError: A link lies there.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def touch(path: Path, *, above: int | None = None) -> None:
    """Give a file the present time, as its last change; an empty one is made. A link in its place is refused.

    Args:
        path: The file.
        above: The open folder that a relative path begins in.

    Raises:
        OSError: It cannot be made, or changed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666, dir_fd=above)
    try:
        os.utime(handle)
    finally:
        os.close(handle)


def note(path: Path, data: bytes, *, mode: int = 0o666) -> bool:
    """Keep something small for later runs, in a folder that is made where needed, as `replace` does.

    Returns:
        Whether that worked: a note that cannot be kept is no reason to fail.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data, mode=mode)
    except OSError:
        return False
    return True


def noted(
    path: Path,
    kind: type[T],
    believe: Callable[[int], bool] = lambda _: True,
    opener: Opener = os.open,
    most: int = LARGEST_NOTE,
) -> T | None:
    """What `note` kept, as JSON; None where nothing of this kind can be read: it is missing, spoilt or too large.

    Args:
        path: The note.
        kind: What it holds.
        believe: Says of its descriptor whether it counts: whether this user wrote it, say.
        opener: Opens it.
        most: Bytes that it may have.
    """
    try:
        with opened(path, buffering=0, opener=opener) as source:
            if not believe(source.fileno()):
                return None
            raw = source.read(most + 1)
        return from_json(raw, kind) if len(raw) <= most else None
    except (OSError, ValueError, RecursionError):
        return None


def hold(
    path: Path | str, flags: int = os.O_RDWR | os.O_CREAT, *, mode: int = 0o644, above: int | None = None
) -> int | None:
    """Lock a file or folder, not waiting; the kernel frees it when its holder dies, however that dies.

    A lock file is removed by whoever holds it. So a process may come to hold a file that has lost its name meanwhile,
    and that says nothing: what is held must be what the name leads to. Not every version of filelock looks.

    Args:
        path: The file.
        flags: To open it with; a link is not followed.
        mode: Of a file that is made.
        above: The open folder that the path begins in.

    Returns:
        A handle to close; None where another holds it, or the name leads elsewhere by now.

    Raises:
        OSError: It cannot be opened, or the file system has no locks.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=above)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path, dir_fd=above)):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None
