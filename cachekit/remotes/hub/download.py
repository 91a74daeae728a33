"""The bytes of a file, by one plain GET, from any place on.

Not `hf_hub_download`: that asks once more for each file, trusts sizes, keeps a second cache, and cannot be bounded.
The Hub answers for a file that git holds itself, and sends us elsewhere for others; the client's session drops the
token on the way to another host, and leaves out nothing else. `X-Linked-Size` on that redirect is the file's true size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import urlsplit

from msgspec import Struct

from cachekit.calls import paced
from cachekit.decode import from_json
from cachekit.errors import RemoteError
from cachekit.remotes.hub.call import Call, entered
from cachekit.remotes.hub.session import PIECE, bound_session

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LFS = "application/vnd.git-lfs+json"
_PAST_END = re.compile(r"bytes \*/(\d+)")


class _Action(Struct, frozen=True):
    href: str
    header: dict[str, str] = {}


class _Actions(Struct, frozen=True):
    download: _Action | None = None


class _Object(Struct, frozen=True):
    oid: str
    actions: _Actions = _Actions()


class _Batch(Struct, frozen=True):
    objects: list[_Object]


def located(url: str, headers: dict[str, str], objects: Mapping[str, int]) -> dict[str, str]:
    """The signed addresses of what git LFS has, by SHA-256; what needs more than an address is left out.

    Args:
        url: Of its batch API.
        headers: The token, and who asks.
        objects: Sizes by SHA-256.

    Raises:
        Exception: Whatever the client raises; ValueError for an answer that is none.
    """
    from huggingface_hub.utils import hf_raise_for_status

    wanted = [{"oid": oid, "size": size} for oid, size in objects.items()]
    asked = {"operation": "download", "transfers": ["basic"], "hash_algo": "sha256", "objects": wanted}
    response = bound_session().post(url, headers={**headers, "Accept": _LFS, "Content-Type": _LFS}, json=asked)
    hf_raise_for_status(response)
    answer = from_json(response.content, _Batch)
    found = {one.oid: one.actions.download for one in answer.objects}
    return {oid: action.href for oid, action in found.items() if action and not action.header and oid in objects}


class Body:
    """A file whose bytes come in pieces; close it.

    Args:
        url: Of the file on the Hub.
        headers: The token, and who asks.
        call: Which bounds it.
        start: The first byte that is wanted.
        end: The byte after the last one; None is the end of the file.

    Attributes:
        named: What the Hub calls the file's contents: a Xet hash, or an ETag; empty where it says nothing.
        digest: Git's digest of the contents, or their SHA-256 where git LFS holds them; empty where that is not said.
        elsewhere: The signed address that the Hub sent us to, which serves other ranges for a while, and without the
            token; empty where the Hub itself answered.

    Raises:
        RemoteError: It is none of the Hub's: a page of a proxy, or of a login.
        Exception: Whatever the client raises.
    """

    def __init__(self, url: str, headers: dict[str, str], call: Call, start: int = 0, end: int | None = None) -> None:
        from huggingface_hub.utils import hf_raise_for_status

        self._call, self._start, self._end = call, start, end
        headers = {**headers, "Accept-Encoding": "identity"}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-" + ("" if end is None else f"{end - 1}")
        with entered(call):
            session = bound_session()
            if hasattr(session, "build_request"):  # httpx, httpx2
                request = session.build_request("GET", url, headers=headers)
                self._response = session.send(request, stream=True, follow_redirects=True)
            else:
                self._response = session.get(url, headers=headers, stream=True, allow_redirects=True)
            try:
                if self._response.status_code != 416:  # noqa: PLR2004
                    hf_raise_for_status(self._response)
                self._check()
            except BaseException:
                self.close()
                raise
        linked = self._said("X-Linked-Etag").strip('"')
        self.named = self._said("X-Xet-Hash") or linked
        digest = linked or self._said("ETag").removeprefix("W/").strip('"')
        self.digest = digest if _DIGEST.fullmatch(digest) else ""
        self.elsewhere = str(self._response.url) if self._response.history else ""

    def chunks(self) -> Iterator[bytes]:
        """The bytes that are wanted, or an error.

        Raises:
            RemoteError: It is shorter than was announced, or than `start`; it is packed; the range is another one.
            Exception: Whatever the client raises.
        """
        at, size = self._bounds()
        if at is None:
            return
        for piece in paced(self._pieces(), self._call.limits.read, self._call.host or "the Hub"):
            first, at = at, at + len(piece)
            if size is not None and at > size:
                raise RemoteError(f"a file has more than the {size} bytes that were announced")
            if wanted := piece[max(0, self._start - first) : None if self._end is None else max(0, self._end - first)]:
                yield wanted
            if self._end is not None and at >= self._end:
                return
        if at < (self._start if size is None else size):
            raise RemoteError(f"a file ended after {at} bytes" + (f" of {size}" if size is not None else ""))

    def close(self) -> None:
        """Give the connection back."""
        self._response.close()

    def _check(self) -> None:
        """The Hub names the contents of each file in one of three ways, and serves none as a page."""
        page = self._response.headers.get("Content-Type", "").startswith("text/html")
        own = urlsplit(str(self._response.url)).netloc == self._call.host
        if page or (own and not any(map(self._said, ("ETag", "X-Linked-Etag", "X-Xet-Hash")))):
            raise RemoteError(
                f"{self._call.host or 'the Hub'} did not send the file that was asked for",
                cause="a web page came instead"
                if page
                else "an answer came that does not name the contents, as the Hub's do",
                hint="check the network, HF_ENDPOINT, proxies",
            )

    def _said(self, header: str) -> str:
        """What the Hub, or where it sent us, says first of the file."""
        hops = (*self._response.history, self._response)
        return next((hop.headers[header] for hop in hops if hop.headers.get(header)), "")

    def _bounds(self) -> tuple[int | None, int | None]:
        """Where the body begins in the file, and ends at the latest; no beginning where nothing is to come."""
        status, headers = self._response.status_code, self._response.headers
        if status == 416:  # noqa: PLR2004
            past = _PAST_END.fullmatch(headers.get("Content-Range") or "")
            if past and int(past[1]) == self._start:
                return None, self._start
            raise RemoteError(f"a file has no bytes from {self._start} on")
        at = 0  # of a server that takes no ranges
        length = headers.get("Content-Length") or ""
        end = int(length) if length.isdigit() else None
        if status == 206:  # noqa: PLR2004
            given = _RANGE.fullmatch(headers.get("Content-Range") or "")
            if not given or int(given[1]) > self._start:
                raise RemoteError(f"the server did not send the range from byte {self._start} on")
            at = int(given[1])
            end = int(given[3]) if given[3].isdigit() else int(given[2]) + 1
        linked = self._said("X-Linked-Size")
        end = int(linked) if linked.isdigit() else end
        return at, end if end is None or self._end is None or status == 200 else min(end, self._end)  # noqa: PLR2004

    def _pieces(self) -> Iterator[bytes]:
        """The body as it was sent, piece by piece."""
        if self._response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RemoteError("the server compressed a file that was asked for uncompressed")
        if hasattr(self._response, "iter_raw"):  # httpx
            body: Iterator[bytes] = self._response.iter_raw()
        else:  # what has come: `stream` waits for a whole piece, however slowly that comes
            read = partial(self._response.raw.read1, PIECE, decode_content=False)
            body = iter(read, b"")
        while True:
            with entered(self._call):
                piece = next(body, None)
            if piece is None:
                return
            yield piece
