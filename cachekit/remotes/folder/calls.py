"""System calls on a shared folder: bounded in time, with errors that say what helps."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from cachekit.errors import AuthError, RemoteError
from cachekit.remotes.folder.bounded import AbandonedError, OverdueError, Point, Workers
from cachekit.remotes.folder.confined import is_absent
from cachekit.remotes.port import Limits, UncertainError

T = TypeVar("T")
_HINTS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "the quota there is used up: free some space, or have it raised",
    errno.EROFS: "it is mounted read-only: use it with `:r`, or mount it for writing",
    errno.EACCES: "you may not do that there: `mkdir -m 2775` it for your group, or use it with `:r`",
    errno.EPERM: "you may not do that there, or it has no hard links (FAT): use it with `:r`, or another one",
    errno.ENOENT: "mount it, or make it: cachekit does not, so that nothing lands below a missing mount",
    errno.ENOTDIR: "it must be a folder, and what lies in it no link",
    errno.ELOOP: "what lies in it must be no link",
    errno.EXDEV: "all of it must be one file system",
    errno.EOPNOTSUPP: "this file system has no hard links: use another one, or S3",
    errno.ENOSYS: "this file system has no hard links: use another one, or S3",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class Calls:
    """What is done on one folder.

    Args:
        name: The folder, for errors.
        limits: How long it may take.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._workers = Workers()

    def do(self, work: Callable[[], T], seconds: float = 0.0, point: Point | None = None, *, absent: bool = False) -> T:
        """Do it in time, with errors as the port has them.

        Args:
            work: What to do.
            seconds: How long it may take; `Limits.read` where it is not given.
            point: Of no return: what is given up on before it did not happen.
            absent: Let errors that say that a file is not there through, as FileNotFoundError.

        Raises:
            RemoteError: It took too long, or failed.
            AuthError: It is not allowed.
            UncertainError: It took too long after its point of no return.
            FileNotFoundError: The file is not there; only where `absent` is asked for.
        """
        try:
            return self._workers.call(work, seconds or self._limits.read)
        except OverdueError:
            if point is not None and not point.give_up():
                raise UncertainError(f"{self._name} did not answer in time, and may have done it") from None
            hint = "look whether its mount is alive: `ls` on a dead one hangs as well"
            raise RemoteError(f"{self._name} does not answer", hint=hint) from None
        except AbandonedError:  # pragma: no cover - only its caller could see it
            raise RemoteError(f"{self._name} was given up on") from None
        except OSError as error:
            if absent and is_absent(error):
                raise FileNotFoundError(errno.ENOENT, "no such file") from None
            raise self._error(error) from error

    def _error(self, error: OSError) -> AuthError | RemoteError:
        kind = AuthError if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else RemoteError
        hint = _HINTS.get(error.errno or 0, "look whether it is mounted, and what `dmesg` says")
        return kind(f"the shared folder {self._name} cannot be used", cause=error.strerror or str(error), hint=hint)
