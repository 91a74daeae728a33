"""A blob while it is used: its digest is computed beside, or from the very bytes that its reader gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cachekit.record import File
from cachekit.store.verify import Sink, Verifier


class Blob:
    """A file of the store in use.

    Args:
        file: What its record says.
        path: Where it lies.
        verifier: Knows what it should be.

    Attributes:
        location: The file, for whoever only looks at it before he calls `through`.
    """

    def __init__(self, file: File, path: Path, verifier: Verifier) -> None:
        self.location = path
        self._file = file
        self._verifier = verifier
        self._outcome: list[str] = []
        self._beside: threading.Thread | None = None
        self._named = self._looked_at = ""  # which file it was when it was named, and when it was looked at

    @property
    def path(self) -> Path:
        """The file, for whoever reads it by himself. From now on its digest is computed beside that."""
        if self._beside is None:
            self._named = self._which()
            self._beside = threading.Thread(target=self._look, daemon=True)
            self._beside.start()
        return self.location

    def through(self, sink: Sink) -> None:
        """Have every byte given to `sink`, read and hashed once, by several threads and in no order.

        Args:
            sink: Called with an offset and the bytes there. A place can come twice; the last time counts.

        Raises:
            OSError: Of the sink. What is wrong with the blob itself is told when its use ends.
        """
        self._outcome = [self._verifier.pass_through(self._file, sink)]

    def end(self) -> str:
        """What is wrong with the bytes that were used; empty where they are what the record says."""
        if self._beside is not None:
            self._beside.join()
            # Another may have been put in its place: was it the one before that was looked at, or the one after?
            if self._looked_at != self._named:
                return "it was replaced while it was read"
            if self._which() != self._named:
                self._look()
        if not self._outcome:
            self._look()
        return next(filter(None, self._outcome), "")

    def _which(self) -> str:
        try:
            status = self.location.stat()
        except OSError as error:
            return error.strerror or str(error)
        return f"{status.st_dev} {status.st_ino}"

    def _look(self) -> None:
        before = self._which()
        self._outcome.append(self._verifier.damage(self._file, "pieces"))
        self._looked_at = before if before == self._which() else ""


@contextmanager
def reading(file: File, path: Path, verifier: Verifier, refuse: Callable[[File, str], Exception]) -> Iterator[Blob]:
    """Use a blob; leaving the block means that it was whole. What was made of it is to be thrown away if this raises.

    Args:
        file: What its record says.
        path: Where it lies.
        verifier: Knows what it should be.
        refuse: Sets a damaged one aside, and makes the error to raise.
    """
    blob = Blob(file, path, verifier)
    try:
        yield blob
    except Exception as error:
        reason = blob.end()
        if reason:
            raise refuse(file, reason) from error
        raise
    if reason := blob.end():
        raise refuse(file, reason)
