"""Bodies in large pieces, over TLS and without: the same bytes, limits and errors as httpx gives by itself."""

import fcntl
import os
import shutil
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec

import pytest

from cachekit.remotes.hub import reading
from cachekit.remotes.hub.call import LostError
from cachekit.remotes.hub.reading import WIDE, pieces

library = pytest.importorskip("httpx2" if find_spec("httpx2") else "httpx")
DATA = os.urandom(3 * WIDE + 12345)
RECORD = 16 << 10  # bytes of a TLS record, at most


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", path]
    subprocess.run(command, check=True, capture_output=True)
    return path


class Served:
    """A server for one client: each connection answers requests with DATA, or as much of it as it is told."""

    def __init__(self, certificate):
        self.connections, self.sends, self.closes = 0, len(DATA), False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._socket.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                line, _ = self._socket.accept()
                self.connections += 1
                line = self._context.wrap_socket(line, server_side=True) if self._context else line
                with line:
                    while line.recv(1 << 16):
                        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(DATA) + DATA[: self.sends])
                        if self.closes:
                            break
            except OSError:
                if self._socket.fileno() < 0:
                    return

    def close(self):
        self._socket.close()


@pytest.fixture(params=["plain", "tls"])
def served(request):
    certificate = request.getfixturevalue("certificate") if request.param == "tls" else None
    with closing(Served(certificate)) as server:
        server.verify = ssl.create_default_context(cafile=certificate) if certificate else True
        yield server


@pytest.fixture(params=["httpx", "direct"], autouse=True)
def way(request, monkeypatch):
    if request.param == "direct":
        monkeypatch.setattr(reading, "LARGE", 1)
    return request.param


@contextmanager
def answer(client, served):
    with client.stream("GET", served.url, headers={"Accept-Encoding": "identity"}) as response:
        yield response


def test_all_bytes_come_and_only_what_went_round_httpx_needs_another_connection(served, way):
    with library.Client(verify=served.verify) as client:
        for _ in range(2):
            with answer(client, served) as response:
                assert b"".join(pieces(response, 20)) == DATA
    assert served.connections == (1 if way == "httpx" else 2)


def test_what_has_arrived_comes_at_once(served):
    with library.Client(verify=served.verify) as client, answer(client, served) as response:
        body = pieces(response, 20)
        size = len(next(body))
        handle = response.extensions["network_stream"].get_extra_info("socket")
        deadline = time.monotonic() + 20
        while struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, b"\0" * 4))[0] < 3 * RECORD:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        piece = next(body)
        assert len(piece) > RECORD
        assert len(piece) <= WIDE + RECORD
        assert size + len(piece) + sum(map(len, body)) == len(DATA)


def taken_until(error, served, **options):
    """How many bytes come before this error does."""
    size = 0
    with library.Client(verify=served.verify, **options) as client, answer(client, served) as response:
        try:
            for piece in pieces(response, 0.3):
                size += len(piece)
        except (error, LostError):
            return size
    raise AssertionError("no error came")


def test_a_cut_line_is_an_error_after_what_came(served):
    served.sends, served.closes = WIDE + 7, True
    assert taken_until(library.TransportError, served) == served.sends


def test_a_line_that_falls_silent_is_an_error_after_what_came(served):
    served.sends = WIDE + 7
    assert taken_until(library.ReadTimeout, served, timeout=0.3) == served.sends
