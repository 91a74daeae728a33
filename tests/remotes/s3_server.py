"""moto's S3 on loopback, with a log of requests and faults; nothing of cachekit in it.

moto keeps everything in this process and checks no signature: what real servers say to wrong ones is injected.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

KEY, SECRET = "AKIACACHEKITTEST0000", "secret/that+nobody/may/see00000000000000"
Answer = tuple[str, list[tuple[str, str]], list[bytes]]


@dataclass
class S3Server:
    """A bucket of its own on a server, what was asked for, and what goes wrong.

    Attributes:
        endpoint, bucket: Where.
        requests: `METHOD /path?query`, since the last `clear()`.
        sent: Bytes of all answers' bodies.
        received: Bytes of all requests' bodies.
        keys: Access keys that requests were signed with.
        fault: Asked for each request; an answer of it is sent in place of the real one, which is not made.
        lost: Asked for each request; where it says so, the request is carried out and a 500 is the answer.
        ignores: How the names of headers begin that are not heeded: `HTTP_IF_`, as `rclone serve s3` does.
    """

    endpoint: str
    bucket: str
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    keys: set[str] = field(default_factory=set)
    fault: Callable[[str], Answer | None] = lambda _: None
    lost: Callable[[str], bool] = lambda _: False
    ignores: str = ""

    def count(self, pattern: str = ".*") -> int:
        return sum(bool(re.match(pattern, request)) for request in self.requests)

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "NO_PROXY": "127.0.0.1",
        }  # fmt: skip


def use(patch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set these, and nothing of AWS beside them."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            patch.delenv(name)
    for name, value in variables.items():
        patch.setenv(name, value)


def refusal(status: int, code: str, more: str = "") -> Answer:
    """What S3 answers; wrong signatures are refused with much of the request in the text."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message>{more}</Error>'.encode()
    return f"{status} NO", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], [body]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server until the end of the block; skips the test where moto or obstore is not installed."""
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")
    moto_server = pytest.importorskip("moto.server", reason="moto is not installed (make test-s3)")
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = moto_server.DomainDispatcherApplication(moto_server.create_backend_app)
    server = S3Server("", f"cache-{uuid.uuid4().hex[:12]}")
    one_at_a_time = threading.Lock()

    def app(environ, start):
        query = environ.get("QUERY_STRING", "")
        line = f"{environ['REQUEST_METHOD']} {environ.get('RAW_URI', environ['PATH_INFO']).partition('?')[0]}"
        line += f"?{query}" if query else ""
        server.requests.append(line)
        server.keys.update(re.findall(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", "")))
        if answer := server.fault(line):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(answer[0], answer[1])
            return answer[2]
        if server.lost(line):
            with one_at_a_time:
                list(application(environ, lambda *_: None))
            status, headers, body = refusal(500, "InternalError")
            start(status, headers)
            return body
        if server.ignores:
            environ = {name: value for name, value in environ.items() if not name.startswith(server.ignores)}
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
            server.received += int(length)
        # moto looks at If-Match in one step and writes in another, and answers 500 to who reads what another thread
        # is writing; S3 does neither.
        with one_at_a_time:
            body = list(application(environ, start))
            server.sent += sum(map(len, body)) if environ["REQUEST_METHOD"] != "HEAD" else 0
            return body

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_):
            pass

    http = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    http.daemon_threads = True
    server.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        make_bucket(server.endpoint, server.bucket)
        server.requests.clear()
        server.keys.clear()
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def make_bucket(endpoint: str, bucket: str) -> None:
    """As `aws s3 mb`."""
    import boto3

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    client.create_bucket(Bucket=bucket)
    client.close()
