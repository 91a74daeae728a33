"""Requests, answers and errors as the routes see them, and how a path finds its route.

The Hub's contract: an error is JSON `{"error": ...}` with the headers `X-Error-Code` and `X-Error-Message`, from which
huggingface_hub's `hf_raise_for_status` makes its exceptions. Without a code a 401 is "repository not found" on https
only, so that an http test Hub has to send it always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from .accounts import Account

CHUNK = 1 << 18
JSON_LIMIT = 1 << 28  # bytes of a request that is held in memory


class HubError(Exception):
    """A refusal, as the Hub words it."""

    def __init__(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, headers or {}

    def response(self) -> Response:
        headers = {"X-Error-Message": self.message.replace("\n", " "), **self.headers}
        if self.code:
            headers["X-Error-Code"] = self.code
        return Response.json({"error": self.message}, self.status, headers)


class ClientGoneError(ConnectionError):
    """The client closed or cut its connection before its request was whole."""


@dataclass(frozen=True)
class FileBody:
    """A part of a file as an answer's body: never held in memory."""

    path: Path
    start: int
    length: int


@dataclass
class Response:
    """An answer before it is sent; faults may change it."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | FileBody = b""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        return cls(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    @property
    def length(self) -> int:
        return self.body.length if isinstance(self.body, FileBody) else len(self.body)

    def data(self) -> bytes:
        """The whole body in memory."""
        if isinstance(self.body, bytes):
            return self.body
        with self.body.path.open("rb") as file:
            file.seek(self.body.start)
            return file.read(self.body.length)


class Body:
    """The body of a request, by length or in chunks, read once."""

    def __init__(self, stream: BufferedIOBase, headers: Message) -> None:
        self._stream = stream
        self._chunked = "chunked" in (headers.get("Transfer-Encoding") or "").lower()
        self._left = 0 if self._chunked else int(headers.get("Content-Length") or 0)
        self._done = not self._chunked and not self._left
        self.received = 0

    def chunks(self) -> Iterator[bytes]:
        """The rest of the body; raises ClientGoneError where it ends early."""
        while not self._done:
            if self._chunked and not self._left:
                line = self._stream.readline(64)
                if not line.endswith(b"\n"):
                    raise ClientGoneError
                self._left = int(line.split(b";")[0], 16)
                if not self._left:
                    while self._stream.readline(1024).strip():
                        pass
                    self._done = True
                    return
            piece = self._stream.read(min(CHUNK, self._left))
            if not piece:
                raise ClientGoneError
            self.received += len(piece)
            self._left -= len(piece)
            if not self._left:
                if self._chunked:
                    self._stream.readline(4)
                else:
                    self._done = True
            yield piece

    def bytes(self) -> bytes:
        pieces, size = [], 0
        for piece in self.chunks():
            size += len(piece)
            if size > JSON_LIMIT:
                raise HubError(413, "Payload too large")
            pieces.append(piece)
        return b"".join(pieces)


@dataclass
class Request:
    """One request: `path` is as sent (percent-encoded), `query` decoded."""

    method: str
    target: str
    headers: Message
    body: Body
    account: Account | None = None
    lag: int = 0  # commits by which a branch's head appears older: a fault sets it

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    def option(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[-1]

    def flag(self, name: str) -> bool:
        return self.option(name).lower() in {"true", "1"}

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body.bytes() or b"{}")
        except ValueError:
            raise HubError(400, "Invalid JSON") from None
        if not isinstance(value, dict):
            raise HubError(400, "Expected an object")
        return value


Handler = Callable[..., Response]
_PARTS = {
    "t": "(?P<t>models|datasets|spaces)",
    "prefix": "(?:(?P<prefix>datasets|spaces)/)?",
    "repo": "(?P<repo>[^/]+/[^/]+?)",
    "path": "(?P<path>.+)",
}


class Routes:
    """Functions by method and path; a parameter that is missing from a path arrives as the empty string."""

    def __init__(self) -> None:
        self.table: list[tuple[str, re.Pattern[str], Handler]] = []

    def on(self, methods: str, template: str) -> Callable[[Handler], Handler]:
        """Register for methods ("GET HEAD") and a path with `{t}`, `{repo}`, `{path}`, or a segment `{name}`."""
        pattern = re.sub(r"\{(\w+)\}", lambda m: _PARTS.get(m[1], f"(?P<{m[1]}>[^/]+)"), template)

        def register(function: Handler) -> Handler:
            self.table.extend((method, re.compile(pattern), function) for method in methods.split())
            return function

        return register

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        """The route and its decoded parameters; raises HubError 404 or 405."""
        known = False
        for allowed, pattern, function in self.table:
            if found := pattern.fullmatch(path):
                if allowed == method:
                    return function, {name: unquote(value or "") for name, value in found.groupdict().items()}
                known = True
        raise HubError(405 if known else 404, "Method not allowed" if known else "Sorry, we can't find this page")


def ranged(request: Request, path: Path, size: int, headers: dict[str, str]) -> Response:
    """A file, or the one range of it that was asked for: 206, or 416 past its end."""
    headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range") or "")
    if not wanted or not (wanted[1] or wanted[2]):
        return Response(200, headers, FileBody(path, 0, size))
    if not wanted[1]:
        start, end = max(0, size - int(wanted[2])), size - 1
    else:
        start, end = int(wanted[1]), min(size - 1, int(wanted[2] or size))
    if start >= size or end < start:
        return Response(416, {"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Response(206, headers, FileBody(path, start, end - start + 1))


def page(
    request: Request, endpoint: str, items: list[Any], default: int, show: Callable[[Any], Any] = lambda item: item
) -> Response:
    """One page of a list; the address of the next one in `Link`, as the Hub does. The cursor is an offset: invented."""
    start, size = int(request.option("cursor", "0")), min(default, int(request.option("limit") or default))
    headers = {}
    if start + size < len(items):
        query = {name: values[-1] for name, values in request.query.items()} | {"cursor": str(start + size)}
        headers["Link"] = f'<{endpoint}{request.path}?{urlencode(query)}>; rel="next"'
    return Response.json([show(item) for item in items[start : start + size]], headers=headers)
