"""A blob while it is used: its digest is computed beside, or from the very bytes that its reader gets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cachekit.ordinary import opened
from cachekit.store.record import File
from cachekit.store.verify import Sink, Verifier, reason_of


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
        self._source: BinaryIO | None = None  # the file as it was when it was named; another may take its place

    @property
    def path(self) -> Path:
        """The file, for whoever reads it by himself. From now on its digest is computed beside that."""
        if self._source is None and not self._outcome:
            try:
                self._source = opened(self.location, buffering=0)
            except OSError as error:
                self._outcome.append(reason_of(error))
            else:
                self._beside = threading.Thread(target=self._look_at, args=(self._source,), daemon=True)
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
        if self._beside is not None and self._source is not None:
            self._beside.join()
            with self._source:
                replaced = not self._lies_there(self._source)
            # The reader opened the one that was looked at, or one that came after: whoever publishes hashes it first.
            # The last of them is looked at here, for what else may have put it there.
            if replaced:
                self._look()
        if not self._outcome:
            self._look()
        return next(filter(None, self._outcome), "")

    def _lies_there(self, source: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(source.fileno()), self.location.stat())
        except OSError:
            return False

    def _look(self) -> None:
        self._outcome.append(self._verifier.damage(self._file, "pieces"))

    def _look_at(self, source: BinaryIO) -> None:
        self._outcome.append(self._verifier.damage_of(source, self._file, "pieces"))


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
