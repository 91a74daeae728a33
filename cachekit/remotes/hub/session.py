"""The client's HTTP session, bounded: connect, answer, body, and no second tries.

huggingface_hub shares one httpx client (1.x), httpx2 client (2.x), or one requests session a thread (0.x) among all of
its calls, with no timeouts (`timeout=None`, also explicitly in many calls), and `http_backoff` tries five times. We
take what its factory gives, the user's own too, and bind it: requests of our calls (`call.current`) get timeouts and a
bound for the answer's body, take the token to no other host, and their failures become `LostError` or
`HfHubHTTPError` at once, which `http_backoff` does not catch. Where it may try again all the same (`Call.tolerates`),
its log does not tell of that: whoever made the call tells of a failure, once. Requests of others pass as they are.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from cachekit import text
from cachekit.remotes.hub.call import ANSWER_LIMIT, Call, LostError, current

PIECE = 1 << 16
MARK = "_cachekit_bound"
RETRIED = frozenset({408, 429, 500, 502, 503, 504})  # what http_backoff would try again
_LOCK = threading.Lock()


def bound_session() -> Any:
    """The client's session of this thread, bound; so are those that the client makes later."""
    from huggingface_hub.utils import _http, get_session

    with _LOCK:
        for name in ("_GLOBAL_CLIENT_FACTORY", "_GLOBAL_BACKEND_FACTORY"):  # since 1.0, before
            factory = getattr(_http, name, None)
            if factory is not None and not hasattr(factory, MARK):
                # The public setters would close the connections of calls that run.
                setattr(_http, name, _bound_factory(factory))
                if hasattr(_http, "reset_sessions"):
                    _http.reset_sessions()
        _http.logger.addFilter(_is_others)  # the same one again changes nothing
        return _bind(get_session())


def _is_others(_: logging.LogRecord) -> bool:
    """Whether a line is about a request of others: all of ours are made in threads that were started for them."""
    return current() is None or threading.current_thread() is threading.main_thread()


def _bound_factory(factory: Callable[[], Any]) -> Callable[[], Any]:
    def make() -> Any:
        return _bind(factory())

    setattr(make, MARK, True)
    return make


def _bind(session: Any) -> Any:
    if not hasattr(session, MARK):
        library = _library(session)
        if library.__name__ == "requests":
            for prefix, adapter in list(session.adapters.items()):
                session.mount(prefix, _adapter_class()(adapter))
        else:
            _bind_httpx(library, session)
        setattr(session, MARK, True)
    return session


def _library(session: Any) -> ModuleType:
    """requests, httpx or httpx2: whose session it is, or is derived from."""
    names = (cls.__module__.partition(".")[0] for cls in type(session).__mro__)
    return sys.modules[next(name for name in names if name in {"requests", "httpx", "httpx2"})]


def _refuse(call: Call, method: str, response: Any) -> None:
    """Raise for an answer after which the client would wait and try again, where it may not."""
    if response.status_code in RETRIED and not (response.status_code >= 500 and call.tolerates(method)):  # noqa: PLR2004
        from huggingface_hub.utils import hf_raise_for_status

        hf_raise_for_status(response)


def _is_bounded(call: Call, status: int) -> bool:
    return not (call.streams and 200 <= status < 300)  # noqa: PLR2004


def _unpacked(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """What was compressed as we asked, in small pieces: a kilobyte of it may stand for a megabyte, or for more."""
    if encoding in {"", "identity"}:
        yield from pieces
        return
    if encoding != "gzip":
        raise LostError("an answer in an encoding that was not requested", sent=True)
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        for piece in pieces:
            data = piece
            while data:
                yield unpacker.decompress(data, PIECE)
                data = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error as error:
        raise LostError(f"an answer that cannot be unpacked ({error})", sent=True) from None


def _bounded(pieces: Iterator[bytes], encoding: str, seconds: float) -> Iterator[bytes]:
    """An answer's body, of no more than `ANSWER_LIMIT` bytes, and in no more than so many seconds."""
    size, end = 0, time.monotonic() + seconds
    for piece in _unpacked(pieces, encoding):
        size += len(piece)
        if size > ANSWER_LIMIT:
            raise LostError(f"an answer of more than {text.size(ANSWER_LIMIT)}", sent=True)
        if time.monotonic() > end:
            raise LostError(f"an answer that did not end within {seconds:.0f} s", sent=True)
        yield piece


def _begin(call: Call, request: Any) -> tuple[float, float]:
    """Note a request; the seconds to connect and to answer."""
    url = urlsplit(str(request.url))
    if request.headers.get("Accept-Encoding") != "identity":
        request.headers["Accept-Encoding"] = "gzip"  # which `_unpacked` can bound
    if request.method == "GET" and url.netloc != call.host:  # the next page of a list, as some answer says
        request.headers.pop("Authorization", None)
    return call.limits.connect, call.begin(request.method, url.path)


# httpx and httpx2


def _bind_httpx(library: ModuleType, client: Any) -> None:
    send = client.send
    received, sent = _streams(library)

    def begin(request: Any) -> None:
        if call := current():
            connect, read = _begin(call, request)
            timeout = {"connect": connect, "read": read, "write": read, "pool": connect}
            request.extensions = {**request.extensions, "timeout": timeout}
            if call.uploads and request.method == "PUT":
                request.stream = sent(request.stream, call)

    def answered(response: Any) -> None:
        if call := current():
            if _is_bounded(call, response.status_code):
                encoding = response.headers.pop("Content-Encoding", "")  # the client unpacks without a bound
                response.stream = received(response.stream, encoding.lower(), 2 * call.limits.read)
            _refuse(call, response.request.method, response)

    def bounded_send(request: Any, **options: Any) -> Any:
        call = current()
        if not call:
            return send(request, **options)
        try:
            return send(request, **options)
        except library.TransportError as error:
            early = isinstance(error, (library.ConnectError, library.ConnectTimeout, library.PoolTimeout))
            if not early and call.tolerates(request.method):
                raise
            raise LostError(_said(error, call, sent=not early), sent=not early) from None
        except library.DecodingError as error:
            raise LostError(_said(error, call, sent=True), sent=True) from None

    hooks = client.event_hooks
    client.event_hooks = {"request": [*hooks["request"], begin], "response": [*hooks["response"], answered]}
    client.send = bounded_send


@lru_cache(maxsize=2)
def _streams(library: ModuleType) -> tuple[Any, Any]:
    """Classes for bodies, which must be of the library's own kind: what is received, what is sent."""

    class Received(library.SyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, stream: Any, encoding: str, seconds: float) -> None:
            self._stream, self._encoding, self._seconds = stream, encoding, seconds

        def __iter__(self) -> Iterator[bytes]:
            return _bounded(iter(self._stream), self._encoding, self._seconds)

        def close(self) -> None:
            self._stream.close()

    class Sent(library.SyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, stream: Any, call: Call) -> None:
            self._stream, self._call = stream, call

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._stream:
                yield piece
                self._call(len(piece))

    return Received, Sent


# requests


@lru_cache(maxsize=1)
def _adapter_class() -> Any:
    import requests
    from requests.adapters import BaseAdapter
    from urllib3.exceptions import HTTPError

    class Adapter(BaseAdapter):  # type: ignore[misc]
        """Around the adapter that the factory gave."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self._inner = inner

        def send(self, request: Any, stream: bool = False, timeout: Any = None, **options: Any) -> Any:
            call = current()
            if not call:
                return self._inner.send(request, stream=stream, timeout=timeout, **options)
            limits = _begin(call, request)
            if call.uploads and request.method == "PUT" and hasattr(request.body, "read"):
                request.body = _Counted(request.body, call)
            response: Any = None
            try:
                response = self._inner.send(request, stream=True, timeout=limits, **options)
                if not stream or _is_bounded(call, response.status_code):
                    _read_whole(call, response)
                _refuse(call, request.method, response)
            except (requests.RequestException, HTTPError) as error:
                _close(response)
                if getattr(error, "response", None) is not None:
                    raise  # an answer, by `_refuse`
                if response is not None and response.status_code == 404:  # noqa: PLR2004
                    error.response = response  # as httpx's has it: its headers say what is not there
                early = _is_early(error)
                if not early and call.tolerates(request.method):
                    raise
                raise LostError(_said(error, call, sent=not early), sent=not early) from None
            except BaseException:
                _close(response)
                raise
            return response

        def close(self) -> None:
            self._inner.close()

    return Adapter


def _read_whole(call: Call, response: Any) -> None:
    encoding = response.headers.get("Content-Encoding", "").lower()
    sent = response.raw.stream(PIECE, decode_content=False)
    data = b"".join(_bounded(sent, encoding, 2 * call.limits.read))
    response.raw.release_conn()
    response.raw = BytesIO(data)
    call.answer = data if call.committing else b""


def _close(response: Any) -> None:
    if response is not None:
        response.close()


def _is_early(error: BaseException | None) -> bool:
    """Whether no connection was made: requests has one exception for that and for a cut line."""
    while error is not None:
        if type(error).__name__ in {"ConnectTimeout", "ConnectTimeoutError", "NewConnectionError", "ProxyError"}:
            return True
        reason = getattr(error, "reason", None) or next((a for a in error.args if isinstance(a, Exception)), None)
        error = reason if isinstance(reason, BaseException) else None
    return False


class _Counted:
    """A file that is sent: what is read of it went over the line."""

    def __init__(self, file: Any, call: Call) -> None:
        self._file, self._call = file, call

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._call(len(data))
        return data

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read(PIECE):
            yield data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _said(error: BaseException, call: Call, *, sent: bool) -> str:
    """What happened to a request, in words that are the same for each of the three libraries."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"ConnectTimeout", "PoolTimeout"}:
        return f"no connection within {call.limits.connect:g} s"
    if names & {"ReadTimeout", "WriteTimeout"}:
        return f"nothing came for {call.limits.commit if call.committing else call.limits.read:g} s"
    if names & {"TooManyRedirects", "DecodingError"}:
        return str(error)
    return f"the connection was cut ({error})" if sent else f"no connection ({error})"
