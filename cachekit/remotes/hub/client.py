"""The real client of the Hub (0.35 to 2.x), bounded in time, with its errors in the words of the port.

Repos and buckets share it. What the client itself would do with a request (wait without end, try five times, swallow
the wait that a 429 asks for) does not happen in a `Call`: see `session`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cachekit import __version__
from cachekit.calls import Calls
from cachekit.errors import AuthError, CachekitError, MissingRemoteError, TooLargeError, UsageError
from cachekit.remotes.hub import download
from cachekit.remotes.hub.account import check_token_file, is_own
from cachekit.remotes.hub.call import Call, entered, run
from cachekit.remotes.hub.download import Body
from cachekit.remotes.hub.errors import is_missing, translated
from cachekit.remotes.hub.send import abandon, watched
from cachekit.remotes.hub.session import bound_session
from cachekit.remotes.port import Entry, Limits, Tell, in_clear

T = TypeVar("T")
LOCATED = 100  # files in one question to git LFS, as its own client asks
LINES = 8  # connections for one large file
STAGING = "HF_HOME (~/.cache/huggingface)"  # where the client keeps what it sends
SLOW = 1 << 20  # bytes a second that a document may take


class Client:
    """One repo or bucket on the Hub.

    The client itself is imported with the first question.

    Args:
        place: For people: `hf://team/cache`.
        endpoint: Of the Hub; `HF_ENDPOINT` where None.
        token: Where None, as the client finds one: `HF_TOKEN`, or what `hf auth login` kept.
        limits: For each request.

    Raises:
        UsageError: The endpoint is not an address, or the token's file holds no token.
    """

    def __init__(self, place: str, endpoint: str | None, token: str | None, limits: Limits) -> None:
        address = endpoint or os.environ.get("HF_ENDPOINT") or ""
        if address and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", address):
            raise UsageError(
                "the Hub's endpoint is not a URL",
                cause="it begins with neither http:// nor https://",
                hint="correct HF_ENDPOINT, or endpoint in its table: https://HOST; unset it for huggingface.co",
            )
        if token is None:
            check_token_file()
        self.place, self.limits = place, limits
        self._endpoint, self._token = address.rstrip("/") or None, token
        self._made: Any = None
        self._elsewhere: dict[str, str] = {}  # signed addresses of large files, by their addresses here
        self._finding = threading.Lock()
        self._calls = Calls(place, hanging=1000)  # the client ends what hangs by itself, mostly: none is refused

    @property
    def api(self) -> Any:
        """An `HfApi` with our endpoint, token and name."""
        if self._made is None:
            from huggingface_hub import HfApi

            _ask_for_no_registry()
            self._made = HfApi(
                endpoint=self._endpoint, token=self._token, library_name="cachekit", library_version=__version__
            )
        return self._made

    @property
    def endpoint(self) -> str:
        """Of the Hub: given, of the environment, or the client's own."""
        return str(self.api.endpoint)

    def stranger(self, name: str, memory: Path | None, *, private: bool, asks: bool = True) -> str:
        """Why others than this user may write to a repo or a bucket; empty where they may not. One request a day.

        Args:
            name: `OWNER/NAME`, as the Hub itself calls it.
            memory: A folder of the store for what is remembered between runs; None remembers nothing.
            private: What the Hub says of that.
            asks: Ask the Hub whose the token is, where that is not known of today. Else what it said last counts, and
                nothing is said where it was never asked.

        Raises:
            RemoteError, AuthError: The Hub cannot be asked.
        """
        if not private:
            return "it is public"
        if clear := in_clear(self.endpoint):
            return clear
        owner = name.partition("/")[0]
        if self.owns(owner, memory, asks=asks):
            return ""
        return f"it belongs to {owner}, which is neither this token's user nor an organisation of this user"

    def owns(self, owner: str, memory: Path | None = None, *, asks: bool = True) -> bool:
        """Whether a namespace is the token's user, or an organisation of this user; see `account.is_own`."""
        from huggingface_hub import get_token

        token = self._token or get_token() or ""
        return is_own(owner, memory, self.endpoint, token, self.account if asks else None)

    def account(self) -> Any:
        """What the Hub says of the token's user: `whoami`."""
        return self.ask(lambda api: api.whoami(), self.call(whose=True))

    def call(self, **options: Any) -> Call:
        """A call whose token goes to this Hub only; options: fields of `Call`."""
        return Call(self.limits, host=urlsplit(self.endpoint).netloc, **options)

    def ask(self, question: Callable[[Any], T], call: Call | None = None, seconds: float | None = None) -> T:
        """What the client answers, in bounded time.

        Args:
            question: What is asked of the `HfApi`.
            call: What its requests may do; else a small question.
            seconds: How long all of it may take; else as long as three requests.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file or folder.
        """
        call = call or self.call()
        seconds = seconds or self.limits.connect + 2 * self.limits.read
        with self._failing(call):
            return run(self._calls, call, lambda: question(self._bound()), seconds=seconds)

    def send(self, job: Callable[[Any], T], call: Call, tell: Tell | None = None) -> T:
        """As `ask`, for what sends files: it may take as long as it moves.

        Raises:
            CachekitError: Of the port.
            OSError: A local file cannot be read.
        """

        def sending() -> T:
            with watched(call):
                return job(self._bound())

        call.tell = tell
        try:
            with self._failing(call):
                return run(self._calls, call, sending)
        finally:
            if call.over:
                abandon()

    def each(self, question: Callable[[Any], Iterator[T]], call: Call | None = None) -> Iterator[T]:
        """What the client lists, page by page.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file or folder.
        """
        call = call or self.call()

        def items() -> Iterator[T]:
            with entered(call):
                yield from question(self._bound())

        with self._failing(call):
            yield from self._calls.stream(items, self.limits.connect + 2 * self.limits.read, "list")

    def chunks(self, url: str, call: Call, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes of a file from `start` to before `end`, or to its end.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file.
        """
        with self._failing(call), closing(self._opened(url, call, start, end)) as body:
            yield from body.chunks()

    def download(self, options: dict[str, Any], size: int) -> Path:
        """A file as the client itself downloads it: over Xet where the Hub and this host have that.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file.
        """
        call = self.call(streams=True)

        def downloading(api: Any) -> Path:
            with watched(call):
                return Path(api.hf_hub_download(force_download=True, **options))

        return self.ask(downloading, call, self.limits.commit + size / SLOW)

    def locate(self, files: Mapping[str, Entry], repo_id: str, repo_type: str) -> None:
        """Learn the signed addresses of files, by their addresses and digests, from git LFS.

        The Hub answers so to clients of git itself [git-lfs, docs/api/batch.md; hub docs, xet/legacy-git-lfs]. Where it
        does not, each file is asked for by its own address.
        """
        folder = "" if repo_type == "model" else f"{repo_type}s/"
        url = f"{self.endpoint}/{folder}{repo_id}.git/info/lfs/objects/batch"
        waiting = list(files.items())
        while waiting:
            batch, waiting = waiting[:LOCATED], waiting[LOCATED:]
            objects = {file.digests["sha256"]: file.size for _, file in batch}
            try:
                found = self.ask(partial(self._located, url, objects))
            except (CachekitError, FileNotFoundError):
                return
            places = {address: found.get(file.digests["sha256"]) for address, file in batch}
            self._elsewhere |= {address: place for address, place in places.items() if place}

    def _located(self, url: str, objects: Mapping[str, int], _: Any) -> dict[str, str]:
        return download.located(url, self._headers(), objects)

    def document(self, url: str, path: str, limit: int, call: Call) -> tuple[bytes, str, str]:
        """A small file whole; the name that the Hub gives its contents, and their digest, as `Body` has them.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file.
            TooLargeError: It has more than `limit` bytes; the error's token is that name.
        """
        opened = self.ask(lambda _: Body(url, self._headers(), call), call)  # as any answer, it has to begin soon

        def whole(_: Any) -> tuple[bytes, str, str]:
            with closing(opened) as body:
                data = bytearray()
                for piece in body.chunks():
                    data += piece
                    if len(data) > limit:
                        cause = f"more than {limit} bytes"
                        raise TooLargeError(f"{path} on {self.place} is too large", cause=cause, token=body.named)
                return bytes(data), body.named, body.digest

        return self.ask(whole, call, 2 * self.limits.read + limit / SLOW)

    def _opened(self, url: str, call: Call, start: int, end: int | None) -> Body:
        """A file, or a range of it: by the address that the Hub gave for an earlier range, as long as that serves."""

        def opened() -> Body:
            if end is None:  # what is fetched whole a second time came wrong: by the Hub's own way then
                return elsewhere(self._elsewhere.pop(url, "")) or Body(url, self._headers(), call, start)
            if body := elsewhere(self._elsewhere.get(url, "")):
                return body
            if self._elsewhere.get(url) == "":  # the Hub itself has it
                return Body(url, self._headers(), call, start, end)
            with self._finding:  # one of several ranges asks the Hub, and the others go where that was sent
                if body := elsewhere(self._elsewhere.get(url, "")):
                    return body
                body = Body(url, self._headers(), call, start, end)
                self._elsewhere[url] = body.elsewhere
                return body

        def elsewhere(place: str) -> Body | None:
            if not place:
                return None
            bare = {name: value for name, value in self._headers().items() if name.lower() != "authorization"}
            try:
                return Body(place, bare, call, start, end)
            except Exception:  # noqa: BLE001 - whatever it is, the Hub gives another one
                if self._elsewhere.get(url) == place:
                    self._elsewhere.pop(url, None)
                return None

        return run(self._calls, call, opened, seconds=self.limits.connect + 2 * self.limits.read)

    def _headers(self) -> dict[str, str]:
        """What a request of ours needs: the token, and who asks."""
        from huggingface_hub.utils import build_hf_headers

        _ask_for_no_registry()
        headers: dict[str, str] = build_hf_headers(
            token=self._token, library_name="cachekit", library_version=__version__
        )
        return headers

    @contextmanager
    def _failing(self, call: Call) -> Iterator[None]:
        """Errors of the client become those of the port."""
        try:
            yield
        except (CachekitError, FileNotFoundError, GeneratorExit):
            raise
        except OSError as error:
            if type(error).__module__ == "builtins" and not isinstance(error, (ConnectionError, TimeoutError)):
                raise  # of a local file; the client's own errors are OSErrors too
            raise self._error(error, call) from None
        except Exception as error:  # noqa: BLE001 - what it makes of a broken answer: KeyError, TypeError, …
            raise self._error(error, call) from None

    def _error(self, error: BaseException, call: Call) -> Exception:
        if is_missing(error, call):
            return FileNotFoundError(f"{self.place} has no such file")
        found = translated(error, self.place, call, self._token)
        if isinstance(found, MissingRemoteError) and (call.whose or not self._is_own_place()):
            return AuthError(found.message, cause=found.cause, hint=found.hint)
        return found

    def _is_own_place(self) -> bool:
        """Whether it is the token's user's or an organisation's of this user: from them the Hub hides nothing there."""
        found = re.match(r"hf://(?:(?:datasets|models|buckets)/)?([^/]+)/", self.place)
        with suppress(CachekitError):
            return found is not None and self.owns(found[1])
        return False

    def _bound(self) -> Any:
        bound_session()
        return self.api


def _ask_for_no_registry() -> None:
    """Keep the client of this process from asking which agents there are.

    Since 2.x it fetches `/api/agent-harnesses` before the first request of a process whose HF_HOME has no copy of the
    last 24 hours, to name an agent in its user agent (`utils/_detect_agent.py`). On a Hub that is away that waits as
    long as the request itself. An empty registry is what it takes when it got none.
    """
    try:
        from huggingface_hub.utils import _detect_agent as module
    except ImportError:  # before 2.x
        return
    if getattr(module, "_registry", module) is None:
        module._registry = getattr(module, "_EMPTY_REGISTRY", {})  # noqa: SLF001
