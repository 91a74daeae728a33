"""A connection between machines that train together, at a port where anybody may come: what is kept has bounds."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cachekit.compilers import Node
from cachekit.errors import UsageError
from cachekit.text import cause_of

POLL = 0.1  # seconds between two looks
ANSWER = 5.0  # seconds that a machine has for a line
LONGEST = 1 << 18  # bytes of a line; what a machine says of itself has some kB
BLOCK = 1 << 16  # bytes that are read at once


class Connection:
    """A connection to another machine, read without waiting.

    Attributes:
        peer: The socket.
        since: When it was made, on the monotonic clock.
        broken: Nothing more comes.
        failed: The other machine has said what went wrong.
    """

    def __init__(self, peer: socket.socket) -> None:
        self.peer, self.broken, self.failed = peer, False, False
        self.since = time.monotonic()
        self._lines, self._rest = list[bytes](), b""
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine without power says nothing: after half a minute without an answer it is gone.
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        peer.settimeout(ANSWER)

    def tell(self, line: bytes) -> None:
        """Send a line; a connection that takes none is noticed when it is read."""
        with suppress(OSError):
            self.peer.settimeout(ANSWER)
            self.peer.sendall(line + b"\n")

    def line(self, seconds: float = 0.0) -> bytes:
        """The next line; empty where none has come, or comes in so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            self._read()
            if self._lines:
                return self._lines.pop(0)
            if self.broken or time.monotonic() >= deadline:
                return b""
            time.sleep(POLL / 2)

    def _read(self) -> None:
        """Read a block, unless a line waits: whoever sends faster than is read keeps the rest in memory of his own."""
        if self.broken or self._lines:
            return
        try:
            self.peer.setblocking(False)
            block = self.peer.recv(BLOCK)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        *self._lines, self._rest = (self._rest + block).split(b"\n")
        if b"" in self._lines or max(map(len, (*self._lines, self._rest))) > LONGEST:
            self._lines, block = [], b""  # no machine of ours
        self.broken = not block

    @property
    def over(self) -> bool:
        """Nothing more will be heard."""
        return self.broken and not self._lines


@contextmanager
def listening(place: Node) -> Iterator[socket.socket]:
    """Wait for connections at the port of the first machine; only this machine's own at a loopback address.

    The name of a machine does not tell: it may find itself at a loopback address, and the others find it elsewhere.

    Raises:
        UsageError: The port is taken.
    """
    host, port, both = "", place.port, socket.has_dualstack_ipv6()
    with suppress(ValueError):
        address = ipaddress.ip_address("127.0.0.1" if place.address == "localhost" else place.address)
        host, both = (str(address), False) if address.is_loopback else (host, both)
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    until = time.monotonic() + ANSWER  # the run before this one may be about to end
    while True:
        try:
            server = socket.create_server((host, port), family=family, dualstack_ipv6=both)
            break
        except OSError as error:
            if time.monotonic() > until:
                raise UsageError(
                    f"port {port} of this machine cannot be used",
                    cause=cause_of(error),
                    hint="choose another --master-port",
                ) from error
            time.sleep(POLL)
    with server:
        server.settimeout(POLL)
        yield server
