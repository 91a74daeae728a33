"""Read a body in large pieces: each one takes httpx some 100 µs of one core, however many bytes it has.

httpcore asks its connection for at most 64 KB, and TLS gives no more than one record of 16 KB, so that a fast line
waits for Python. Both pass through the `network_stream` that httpx gives with each answer (a documented extension):
from then on that stream takes what has arrived, up to a megabyte, and waits for nothing more than before.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

WIDE = 1 << 20  # bytes that are taken at once, at most
_MARK = "_cachekit_wide"


def widen(response: Any) -> None:
    """Let the rest of an answer, and what comes later over its connection, arrive in larger pieces, if it is httpx's.

    Where a stream is none that we know, it stays as it is.
    """
    stream = getattr(response, "extensions", {}).get("network_stream")
    if stream is None or hasattr(stream, _MARK):
        return
    with suppress(AttributeError, TypeError):  # one that takes no attributes, or has no such method
        secret, handle = stream.get_extra_info("ssl_object"), stream.get_extra_info("socket")
        if secret is None:
            stream.read = _taking(stream.read)
        elif isinstance(handle, ssl.SSLSocket) and not isinstance(secret, ssl.SSLObject):
            # An SSLObject is TLS inside of a proxy's TLS: what comes from the socket is not the body then.
            stream.read = _gathering(stream.read, handle)
        setattr(stream, _MARK, True)


def _taking(read: Callable[..., bytes]) -> Callable[..., bytes]:
    def wide(max_bytes: int, timeout: float | None = None) -> bytes:
        return read(max(max_bytes, WIDE), timeout=timeout)

    return wide


def _gathering(read: Callable[..., bytes], handle: ssl.SSLSocket) -> Callable[..., bytes]:
    """The first record as always, with its limit of time; then those that are there already."""

    def wide(max_bytes: int, timeout: float | None = None) -> bytes:
        records = [read(max_bytes, timeout=timeout)]
        size = len(records[0])
        # An error, or the end of the line, comes once more with the next call.
        with suppress(OSError, ValueError):
            handle.settimeout(0)
            while records[-1] and size < WIDE:
                records.append(handle.recv(WIDE))
                size += len(records[-1])
        return b"".join(records)

    return wide
