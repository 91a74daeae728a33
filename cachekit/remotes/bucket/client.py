"""The requests behind a Storage Bucket of the Hugging Face Hub, each in bounded time.

What is written goes through `HfApi.batch_bucket_files`. What is read is asked for here, with the client's own session,
headers and routes (those of its `get_bucket_paths_info`, `list_bucket_tree`, and of `HfFileSystem` for bytes): its
methods wait without end, try again for a minute on a dead Hub, and swallow a 429, whose wait whoever retries must know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from cachekit import __version__
from cachekit.errors import AuthError, CachekitError, RemoteError, UsageError
from cachekit.remotes.budget import Calls
from cachekit.remotes.hub_client.call import Call, LostError, run
from cachekit.remotes.hub_client.habits import ask_for_no_registry
from cachekit.remotes.hub_client.session import bound_session
from cachekit.remotes.port import BusyError, Limits

BATCH = 1000  # paths in one question, operations in one batch: the Hub's limit
SLOWEST = 512 << 10  # bytes a second below which an upload counts as stuck: its progress cannot be seen
_ANSWER = 16 << 20  # bytes of the largest answer that is taken: a thousand entries have 300 KB
_NEEDS = 'pip install "huggingface_hub>=1.5"'
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came, whole."""

    status_code: int
    headers: Any
    links: Any
    body: bytes


class BucketClient:
    """One bucket.

    Args:
        bucket: `namespace/name`.
        limits: How long a request may take.
        endpoint: Of the Hub; else the client's, from HF_ENDPOINT.
        token: Else the one that the client finds.

    Raises:
        UsageError: The installed client has no buckets.
    """

    def __init__(self, bucket: str, limits: Limits, *, endpoint: str = "", token: str | None = None) -> None:
        import huggingface_hub as hub

        if not hasattr(hub.HfApi, "batch_bucket_files"):
            raise UsageError(
                f"hf://buckets/{bucket} needs huggingface_hub 1.5 or newer",
                cause=f"{hub.__version__} is installed, which knows no buckets", hint=_NEEDS,
            )  # fmt: skip
        try:
            import hf_xet  # noqa: F401 - buckets have no other way to send bytes
        except ImportError as error:
            raise UsageError(
                f"hf://buckets/{bucket} needs hf_xet", cause=str(error), hint="pip install hf_xet"
            ) from None
        self.bucket = bucket
        self.name = f"hf://buckets/{bucket}"
        self._limits = limits
        self.calls = Calls(self.name, hanging=1000)  # the client ends what hangs by itself, mostly: none is refused
        ask_for_no_registry()
        self._api = hub.HfApi(endpoint=endpoint or None, token=token)
        self._token = token
        self._headers: Callable[[], dict[str, str]] = lambda: hub.utils.build_hf_headers(
            token=token, library_name="cachekit", library_version=__version__
        )
        self._session: Callable[[], Any] = hub.utils.get_session
        self._seconds = limits.connect + limits.read

    def identity(self) -> tuple[str, str]:
        """The Hub's endpoint, and the token that is used there; empty where there is none."""
        from huggingface_hub import get_token

        return str(self._api.endpoint), self._token or get_token() or ""

    def whoami(self) -> dict[str, Any]:
        """Whose token it is, as the Hub says it."""
        return self._document("/api/whoami-v2")

    def info(self) -> dict[str, Any]:
        """What the Hub says of the bucket: `id`, `private`."""
        return self._document(f"/api/buckets/{self.bucket}")

    def _document(self, path: str) -> dict[str, Any]:
        answer = self._ask("GET", path)
        try:
            info = json.loads(answer.body) if answer else None
        except (ValueError, RecursionError):
            info = None
        if not isinstance(info, dict):
            raise RemoteError(f"{self.name}: it answers what no Hub would", hint="check HF_ENDPOINT and proxies")
        return info

    def paths_info(self, paths: Sequence[str]) -> list[dict[str, Any]]:
        """What is known of those of the paths that exist: `path`, `size`, `xetHash`."""
        found: list[dict[str, Any]] = []
        for at in range(0, len(paths), BATCH):
            part = {"paths": list(paths[at : at + BATCH])}
            answer = self._ask("POST", f"/api/buckets/{self.bucket}/paths-info", json=part)
            found += [entry for entry in self._list_in(answer) if entry.get("type", "file") == "file"]
        return found

    def tree(self, folder: str) -> Iterator[dict[str, Any]]:
        """The same of all files below a folder, a page at a time."""
        url = f"/api/buckets/{self.bucket}/tree" + (f"/{quote(folder, safe='')}" if folder else "") + "?recursive=true"
        while url:
            if (answer := self._ask("GET", url, missing=True)) is None:
                return
            yield from (entry for entry in self._list_in(answer) if entry.get("type") == "file")
            following = str(answer.links.get("next", {}).get("url", ""))
            # A server may not send the token elsewhere.
            url = following.removeprefix(self._api.endpoint) if following.startswith(self._api.endpoint + "/") else ""

    @contextmanager
    def opened(self, path: str, start: int = 0) -> Iterator[tuple[Any, str]]:
        """The answer with a file's bytes, not yet read, and the file's Xet hash as far as it says.

        Raises:
            FileNotFoundError: There is no such file.
        """
        url = f"{self._api.endpoint}/buckets/{self.bucket}/resolve/{quote(path, safe='')}"
        headers = self._headers() | {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})

        def send() -> Any:
            session = self._session()
            request = session.build_request("GET", url, headers=headers, timeout=self._timeout())
            return session.send(request, stream=True, follow_redirects=True)

        response = self._sent(send, "read")
        with closing(response):
            self._judge(response, "read", allowed=(416,))
            hops = [*response.history, response]
            hashes = (hop.headers.get("X-Xet-Hash") or hop.headers.get("X-Linked-Etag", "").strip('"') for hop in hops)
            yield response, next(filter(None, hashes), "")

    def batch(
        self, add: Sequence[tuple[Path | bytes, str]], delete: Sequence[str], size: int, *, patience: int = 0
    ) -> None:
        """Send files and documents, and remove others: in one request, after their bytes.

        Nothing of it is sent any more once this has raised: a document that somebody else has written by then would be
        written over.

        Args:
            add: Sources and paths.
            delete: Paths.
            size: Bytes of all, which say how long it may take.
            patience: How often a request that failed may be sent again meanwhile: none for what others may write too.

        Raises:
            TimeoutError: No answer came, or the line was cut: it may have happened, or happen still.
            CachekitError: The Hub refused.
        """
        self._quiet()
        seconds = self._limits.connect + self._limits.commit + size / SLOWEST
        call = Call(self._limits, patience=patience, again=frozenset({"POST"}))

        def send() -> None:
            bound_session()
            self._api.batch_bucket_files(self.bucket, add=list(add), delete=list(delete))

        try:
            run(self.calls, call, send, seconds=seconds)
        except LostError as error:
            raise TimeoutError(str(error)) from None
        except OSError as error:
            if getattr(error, "response", None) is None and error.filename is not None:
                raise  # a source
            self._refused(error)
        except Exception as error:  # noqa: BLE001 - of the client and of its transport
            self._refused(error)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of hf_xet's Rust: no Exception, and it must end no run
                raise
            self._refused(error)

    def _refused(self, error: BaseException) -> None:
        found = self.translated(error, "send")
        if type(found) is RemoteError and not getattr(error, "failures", None):
            raise TimeoutError(found.cause or found.message) from None
        raise found from None

    def xet_hashes(self, paths: Sequence[Path]) -> list[str] | None:
        """What the Hub would call the contents of these files; None where the client cannot tell."""
        import hf_xet

        if not hasattr(hf_xet, "hash_files"):
            return None
        return [str(info.hash) for info in hf_xet.hash_files([str(path) for path in paths])] if paths else []

    # Requests.

    def _timeout(self) -> tuple[float, float, float, float]:
        return (self._limits.connect, self._limits.read, self._limits.read, self._limits.connect)

    def _ask(self, method: str, path: str, *, missing: bool = False, **arguments: Any) -> _Answer | None:
        """A whole, small answer; None for a missing entry where that is allowed."""

        def send() -> _Answer:
            session = self._session()
            request = session.build_request(
                method, self._api.endpoint + path, headers=self._headers(), timeout=self._timeout(), **arguments
            )
            response, body = session.send(request, stream=True, follow_redirects=True), bytearray()
            with closing(response):
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _ANSWER:
                        raise RemoteError(f"{self.name}: its answer has no end")
            return _Answer(response.status_code, response.headers, response.links, bytes(body))

        response = self._sent(send, "look")
        try:
            self._judge(response, "look")
        except FileNotFoundError:
            if missing:
                return None
            raise AuthError(f"{self.name}: it is not there, or this token may not see it", cause="404") from None
        return response

    def _sent(self, send: Callable[[], T], what: str) -> T:
        try:
            return self.calls.run(send, self._seconds, what)
        except Exception as error:  # noqa: BLE001 - httpx of one or the other version, and what lies below it
            raise self.translated(error, what) from None

    def _judge(self, response: Any, what: str, allowed: tuple[int, ...] = ()) -> None:
        status = response.status_code
        if status < 300 or status in allowed:  # noqa: PLR2004 - redirects were followed
            return
        if status == 404 and response.headers.get("X-Error-Code") != "RepoNotFound":  # noqa: PLR2004
            raise FileNotFoundError
        raise self._refusal(status, response.headers, what)

    def _refusal(self, status: int, headers: Any, what: str) -> CachekitError:
        message = f"{self.name}: {what}"
        if status in {401, 403, 404}:
            return AuthError(
                f"{message}: it is not there, or this token may not do that", cause=f"status {status}",
                hint="log in (hf auth login) with a token that may, or create it: hf buckets create",
            )  # fmt: skip
        if status == 429:  # noqa: PLR2004
            return BusyError(f"{message}: too many requests", cause="status 429", wait=_wait(headers))
        return RemoteError(f"{message}: it failed", cause=f"status {status}")

    def _list_in(self, answer: _Answer | None) -> list[dict[str, Any]]:
        try:
            entries = json.loads(answer.body) if answer else None
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("path"), str) for entry in entries
        ):
            raise RemoteError(f"{self.name}: it answers what no Hub would")
        return entries

    def translated(self, error: BaseException, what: str) -> CachekitError:
        """An error of the client, or of what lies below it, in our words; its own text may quote a request."""
        if isinstance(error, CachekitError):
            return error
        kind = type(error).__name__
        if kind == "OfflineModeIsEnabled":
            return RemoteError(
                f"{self.name}: {what}: offline", cause="HF_HUB_OFFLINE is set", hint="unset HF_HUB_OFFLINE"
            )
        if failures := getattr(error, "failures", None):
            return RemoteError(f"{self.name}: {what}: {len(failures)} operations failed")
        response: Any = getattr(error, "response", None)
        if response is not None:
            return self._refusal(response.status_code, response.headers, what)
        reasons = {"Connect": "it cannot be reached", "Timeout": "no answer in time"}
        cause = next((reason for word, reason in reasons.items() if word in kind), f"the line was cut ({kind})")
        return RemoteError(f"{self.name}: {what}: it failed", cause=cause)

    def _quiet(self) -> None:
        """No bars of the client's on somebody's terminal."""
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars

        if not are_progress_bars_disabled():
            disable_progress_bars()


def _wait(headers: Any) -> float:
    """Seconds to wait after a 429, as far as it says; 0 where the window is not what is full."""
    window = re.search(r"r=(\d+)\s*;\s*t=(\d+)", headers.get("RateLimit") or "")
    if window:
        return float(window[2]) if window[1] == "0" else 0.0
    after = headers.get("Retry-After") or ""
    return float(after) if after.isdecimal() else 0.0
