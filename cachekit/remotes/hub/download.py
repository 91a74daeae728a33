"""The bytes of a file, by one plain GET, from any place on.

Not `hf_hub_download`: that asks once more for each file, trusts sizes, keeps a second cache, and cannot be bounded.
The Hub answers for a file that git holds itself, and sends us elsewhere for others; the client's session drops the
token on the way to another host, and leaves out nothing else. `X-Linked-Size` on that redirect is the file's true size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from cachekit.errors import RemoteError
from cachekit.remotes.hub.reading import pieces
from cachekit.remotes.hub_client.call import Call, entered
from cachekit.remotes.hub_client.session import PIECE, bound_session

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_PAST_END = re.compile(r"bytes \*/(\d+)")


class Body:
    """An answer whose body comes in pieces; close it.

    Attributes:
        status: 200, 206 or 416; other answers were raised.
        headers: Of the last answer.
        linked_size: That the Hub named for the file, where it did.
    """

    def __init__(self, url: str, headers: dict[str, str], call: Call) -> None:
        from huggingface_hub.utils import hf_raise_for_status

        self._call = call
        with entered(call):
            session = bound_session()
            if hasattr(session, "build_request"):  # httpx, httpx2
                request = session.build_request("GET", url, headers=headers)
                self._response = session.send(request, stream=True, follow_redirects=True)
            else:
                self._response = session.get(url, headers=headers, stream=True, allow_redirects=True)
            self.status: int = self._response.status_code
            self.headers: Any = self._response.headers
            try:
                if self.status != 416:  # noqa: PLR2004
                    hf_raise_for_status(self._response)
            except BaseException:
                self.close()
                raise
        linked = [r.headers.get("X-Linked-Size") or "" for r in (*self._response.history, self._response)]
        self.linked_size = next((int(size) for size in linked if size.isdigit()), None)

    def pieces(self) -> Iterator[bytes]:
        """The body as it was sent, piece by piece.

        Raises:
            RemoteError: It is packed, though we asked for it as it is.
        """
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RemoteError("a file came packed, though it was asked for as it is")
        is_httpx = hasattr(self._response, "iter_raw")
        body = pieces(self._response, self._call.limits.read) if is_httpx else self._raw()
        while True:
            with entered(self._call):
                piece = next(body, None)
            if piece is None:
                return
            yield piece

    def _raw(self) -> Iterator[bytes]:
        body: Iterator[bytes] = self._response.raw.stream(PIECE, decode_content=False)
        return body

    def close(self) -> None:
        """Give the connection back."""
        self._response.close()


def chunks(url: str, headers: dict[str, str], start: int, call: Call) -> Iterator[bytes]:
    """The bytes of a file from `start` to its end, or an error.

    Raises:
        RemoteError: It is shorter than was announced, or than `start`; it is packed; the range is another one.
        Exception: Whatever the client raises.
    """
    headers = {**headers, "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with closing(Body(url, headers, call)) as body:
        at, end = _bounds(body, start)
        if at is None:
            return
        for piece in body.pieces():
            at += len(piece)
            if end is not None and at > end:
                raise RemoteError(f"a file has more than the {end} bytes that were announced")
            if at > start:
                yield piece[max(0, len(piece) - (at - start)) :]
        if at < (start if end is None else end):
            raise RemoteError(f"a file ended after {at} bytes" + (f" of {end}" if end is not None else ""))


def _bounds(body: Body, start: int) -> tuple[int | None, int | None]:
    """Where the body begins and ends in the file; None for the beginning where nothing is to come."""
    if body.status == 416:  # noqa: PLR2004
        past = _PAST_END.fullmatch(body.headers.get("Content-Range") or "")
        if past and int(past[1]) == start:
            return None, start
        raise RemoteError(f"a file has no bytes from {start} on")
    at = 0  # of a server that takes no ranges
    length = body.headers.get("Content-Length") or ""
    end = int(length) if length.isdigit() else None
    if body.status == 206:  # noqa: PLR2004
        given = _RANGE.fullmatch(body.headers.get("Content-Range") or "")
        if not given or int(given[1]) > start:
            raise RemoteError(f"another range came than the one from {start} on")
        at = int(given[1])
        end = int(given[3]) if given[3].isdigit() else int(given[2]) + 1
    return at, body.linked_size if body.linked_size is not None else end
