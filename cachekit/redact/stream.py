"""Secrets in what comes piece by piece, such as a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import HIDDEN, printed

_PEM_BEGIN, _PEM_END = rb"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY", b"-----END"
_PEM_LINES = 200


class Stream:
    """Hides secrets in what comes piece by piece: whole lines go on, the last part of one waits.

    Args:
        others: See `printed`.
    """

    LONGEST = 1 << 16  # bytes of a line that wait for its end

    def __init__(self, others: Iterable[str] = ()) -> None:
        self._others = tuple(others)
        self._rest = b""
        self._in_key = 0  # lines of a private key that were hidden

    def feed(self, block: bytes) -> bytes:
        """What of all that came may be shown now."""
        whole = self._rest + block
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        if len(whole) - end > self.LONGEST:
            end = len(whole)
        self._rest = whole[end:]
        return self._shown(whole[:end])

    def close(self) -> bytes:
        """The rest."""
        rest, self._rest = self._rest, b""
        return self._shown(rest)

    def _shown(self, block: bytes) -> bytes:
        if self._in_key or b"PRIVATE KEY" in block:
            block = b"".join(self._outside_keys(block))
        text = block.decode("utf-8", "surrogateescape")
        return printed(text, self._others).encode("utf-8", "surrogateescape")

    def _outside_keys(self, block: bytes) -> Iterator[bytes]:
        for line in block.splitlines(keepends=True):
            rest = line
            while rest:
                if self._in_key:
                    _, end, after = rest.partition(_PEM_END)
                    self._in_key = 0 if end or self._in_key == _PEM_LINES else self._in_key + 1
                    rest = after.partition(b"-----")[2]
                    continue
                found = re.search(_PEM_BEGIN, rest)
                yield rest[: found.start()] + HIDDEN.encode() if found else rest
                rest = rest[found.end() :] if found else b""
                self._in_key = 1 if found else 0
