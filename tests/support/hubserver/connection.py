"""Connections: threads, the log around each request, and how an answer with a fault in it is sent."""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .faults import BODIES, Fault
from .log import Entry
from .wire import CHUNK, Body, ClientGoneError, FileBody, Request, Response

if TYPE_CHECKING:
    from .server import HubServer

POLL = 0.05


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    block_on_close = False

    def __init__(self, address: tuple[str, int], hub: HubServer) -> None:
        super().__init__(address, Handler)
        self.hub = hub
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):  # clients that go are part of the tests
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "test-hub", ""
    wbufsize = -1  # headers and body in one packet: else Nagle's algorithm and late acknowledgements cost 40 ms each
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _serve(self) -> None:
        hub = self.server.hub
        request = Request(self.command, self.path, self.headers, Body(self.rfile, self.headers))
        if request.path.startswith("/_test/"):
            self._send(request, hub.control(request), None, None)
            return
        try:
            account = hub.accounts.of(self.headers.get("Authorization"))
        except KeyError:
            account = None
        entry = hub.log.begin(self.command, self.path, account.name if account else "")
        try:
            self._answer(hub, request, entry)
        except (ClientGoneError, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            entry.received = request.body.received
            hub.log.end(entry)

    def _answer(self, hub: HubServer, request: Request, entry: Entry) -> None:
        latency, fault = hub.faults.strike(self.command, self.path, entry.user)
        if wait := max(latency, hub.latency):
            hub.stopping.wait(wait)
        entry.fault = fault.kind if fault else ""
        response: Response | None = None
        if fault:
            if fault.kind == "cut-request":
                self._read_some(request, fault.at or 0)
                self.close_connection = True
                return
            if fault.kind == "lag":
                request.lag = fault.commits
            if fault.landed or fault.kind in BODIES or fault.kind == "lag":
                response = hub.handle(request)
            for _ in request.body.chunks():
                pass
            if fault.kind in {"black-hole", "drop"}:
                if fault.kind == "black-hole":
                    self._wait_for_the_end(hub)
                self.close_connection = True
                return
            if fault.is_answer:
                response = fault.answer()
        if response is None:
            response = hub.handle(request)
        for _ in request.body.chunks():
            pass  # so that the next request on this connection is not read out of it
        self._send(request, response, fault if fault and fault.kind in BODIES else None, entry)

    def _send(self, request: Request, response: Response, fault: Fault | None, entry: Entry | None) -> None:
        response = fault.damage(response) if fault else response
        if entry:
            entry.status = response.status
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("X-Request-Id", f"test-{time.monotonic_ns():x}")
        endless = fault is not None and fault.kind == "endless" and self.command != "HEAD"
        if endless:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(response.length))
        self.end_headers()
        if self.command == "HEAD":
            return
        limit = response.length
        if fault and fault.kind == "cut":
            limit = min(limit, response.length // 2 if fault.at is None else fault.at)
        self._send_body(response, limit, fault if fault and fault.kind == "slow" else None, entry)
        if endless:
            while not self.server.hub.stopping.wait(0.001):
                self._write(b"\0" * 4096, entry)
                self.wfile.flush()
        if limit < response.length:
            self.close_connection = True

    def _send_body(self, response: Response, limit: int, slow: Fault | None, entry: Entry | None) -> None:
        if isinstance(response.body, FileBody) and slow is None:
            self.wfile.flush()
            with response.body.path.open("rb") as file:
                sent = self.connection.sendfile(file, response.body.start, limit) if limit else 0
            if entry:
                entry.sent += sent
            return
        step = min(CHUNK, max(1, int(slow.rate / 20))) if slow else CHUNK
        data = response.data()[:limit]
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            self._write(piece, entry)
            if slow:
                self.wfile.flush()
                if self.server.hub.stopping.wait(slow.seconds_for(len(piece))):
                    self.close_connection = True
                    return

    def _write(self, data: bytes, entry: Entry | None) -> None:
        self.wfile.write(data)
        if entry:
            entry.sent += len(data)

    def _read_some(self, request: Request, size: int) -> None:
        for _ in request.body.chunks():
            if request.body.received >= size:
                return

    def _wait_for_the_end(self, hub: HubServer) -> None:
        while not hub.stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], POLL)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815
