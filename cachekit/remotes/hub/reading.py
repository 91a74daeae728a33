"""Read a body in large pieces: each one takes httpx some 100 µs of one core, however many bytes it has.

httpcore asks its connection for at most 64 KB, and TLS gives no more than one record of 16 KB, so that a fast line
waits for Python. Both pass through the `network_stream` that httpx gives with each answer (a documented extension):
from then on that stream takes what has arrived, up to a megabyte, and waits for nothing more than before. And once all
that was read of it came out as body, the rest of a large one is taken there, without three more copies in h11; that
connection is not used again.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cachekit.remotes.hub.call import LostError

WIDE = 1 << 20  # bytes that are taken at once, at most
LARGE = 16 << 20  # bytes that are left of a body, from which on another connection later is worth it
_MARK = "_cachekit_wide"


class Wide:
    """Reads a connection in large pieces; see `widen`.

    Attributes:
        taken: Bytes that were read; whoever wants to know sets it to zero before.
    """

    def __init__(self, stream: Any, handle: ssl.SSLSocket | None) -> None:
        self._read = stream.read
        self._handle = handle
        self.taken = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """As the stream's own: at least a byte, unless the line ended."""
        return self.at_most(max(max_bytes, WIDE), timeout)

    def at_most(self, limit: int, timeout: float | None) -> bytes:
        """What has arrived, up to so many bytes; waits for the first."""
        data: bytes = self._read(limit, timeout=timeout)
        if self._handle is not None and 0 < len(data) < limit:
            data = self._with_records(data, limit)
        self.taken += len(data)
        return data

    def _with_records(self, data: bytes, limit: int) -> bytes:
        """One record came with its limit of time; add those that are there already."""
        assert self._handle is not None
        records, size = [data], len(data)
        with suppress(OSError, ValueError):  # an error, or the end of the line, comes once more with the next call
            self._handle.settimeout(0)
            while size < limit and (record := self._handle.recv(limit - size)):
                records.append(record)
                size += len(record)
        return b"".join(records)


def widen(response: Any) -> Wide | None:
    """Let the rest of an answer, and what comes later over its connection, arrive in larger pieces, if it is httpx's.

    Where a stream is none that we know, it stays as it is.
    """
    stream = getattr(response, "extensions", {}).get("network_stream")
    wide: Wide | None = getattr(stream, _MARK, None)
    if stream is None or wide:
        return wide
    with suppress(AttributeError, TypeError):  # one that takes no attributes, or has no such method
        secret, handle = stream.get_extra_info("ssl_object"), stream.get_extra_info("socket")
        # An SSLObject is TLS inside of a proxy's TLS: what comes from the socket is not the body then.
        inside = isinstance(secret, ssl.SSLObject)
        if secret is None or (isinstance(handle, ssl.SSLSocket) and not inside):
            wide = Wide(stream, handle if secret is not None else None)
            setattr(stream, _MARK, wide)
            stream.read = wide.read
    return wide


def pieces(response: Any, seconds: float) -> Iterator[bytes]:
    """The body of an answer of httpx, as it was sent.

    Args:
        response: It has not been read.
        seconds: Without a byte.

    Raises:
        LostError: The line was lost, or nothing came in time.
        Exception: Whatever httpx raises.
    """
    wide = widen(response)
    body: Iterator[bytes] = response.iter_raw()
    length = response.headers.get("Content-Length") or ""
    if wide is None or not length.isdigit() or response.http_version != "HTTP/1.1":
        yield from body
        return
    left = int(length)
    wide.taken = 0
    for piece in body:
        left, whole = left - len(piece), len(piece) == wide.taken
        yield piece
        if whole and left >= LARGE:  # where it is not whole, some of it may wait in h11
            break
        wide.taken = 0
    else:
        return
    while left > 0:
        try:
            piece = wide.at_most(min(left, WIDE), seconds)
        except Exception as error:  # noqa: BLE001 - httpcore's own, which only httpx translates
            raise LostError(f"{type(error).__name__}: {error}", sent=True) from None
        if not piece:
            raise LostError(f"the line ended {left} bytes early", sent=True)
        left -= len(piece)
        yield piece
