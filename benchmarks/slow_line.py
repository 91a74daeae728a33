"""A line in front of a server on loopback: each answer begins late, and all bodies share its bytes a second.

It stands in for a network that cannot be had on one machine; TCP's own behaviour (windows, losses) is not in it. As a
program it takes the server's port, prints its own, and reads lines of two numbers: seconds before each answer, and the
bytes a second of all answers together (0 for no limit), from then on.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

PIECE = 1 << 18  # bytes


class Line:
    """What all connections share."""

    def __init__(self) -> None:
        self.delay, self.rate = 0.0, 0.0
        self._free, self._lock = 0.0, threading.Lock()

    def send(self, target: socket.socket, data: memoryview) -> None:
        """Send a piece of an answer as soon as the line is free."""
        if self.rate:
            with self._lock:
                self._free = max(self._free, time.monotonic()) + len(data) / self.rate
                wait = self._free - time.monotonic()
            if wait > 0.002:  # the system wakes late anyway; what is slept too long, the next pieces need not wait
                time.sleep(wait)
        target.sendall(data)


def carry(line: Line, client: socket.socket, port: int) -> None:
    """One connection, until either side ends it."""
    server = socket.create_connection(("127.0.0.1", port))
    asked = threading.Event()

    def there() -> None:
        try:
            while data := client.recv(PIECE):
                asked.set()
                server.sendall(data)
        except OSError:
            pass
        finally:
            close(server)

    threading.Thread(target=there, daemon=True).start()
    room = memoryview(bytearray(PIECE))
    try:
        while count := server.recv_into(room):
            if asked.is_set():
                asked.clear()
                time.sleep(line.delay)
            line.send(client, room[:count])
    except OSError:
        pass
    finally:
        close(client)


def close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def main() -> None:
    line, port = Line(), int(sys.argv[1])
    door = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(door.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            client, _ = door.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(line, client, port), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    for words in sys.stdin:
        line.delay, line.rate = (float(word) for word in words.split())
        print("set", flush=True)


if __name__ == "__main__":
    main()
