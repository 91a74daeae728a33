"""The client for one repo: who asks, where, and how long a question may take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from cachekit import __version__
from cachekit.errors import CachekitError, UsageError
from cachekit.remotes.budget import Calls
from cachekit.remotes.hub.errors import translated
from cachekit.remotes.hub_client.call import Call, entered, run
from cachekit.remotes.hub_client.habits import ask_for_no_registry
from cachekit.remotes.hub_client.session import bound_session
from cachekit.remotes.port import Limits, Tell
from cachekit.text import redact

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class Client:
    """The real client, bounded, with its errors in our words.

    Args:
        repo: `team/cache`.
        kind: `model` or `dataset`.
        endpoint: Of the Hub; `HF_ENDPOINT` where None.
        token: Where None, as the client finds one: `HF_TOKEN`, or what `hf auth login` kept.
        limits: For each request.

    Raises:
        UsageError: No repo can have this name, or the endpoint is no address.
    """

    def __init__(self, repo: str, kind: str, endpoint: str | None, token: str | None, limits: Limits) -> None:
        if not _NAME.fullmatch(repo) or ".." in repo or "--" in repo:
            raise UsageError(f"no repo can have this name: {redact(repo)!r}", hint="name it as team/cache")
        address = endpoint or os.environ.get("HF_ENDPOINT") or ""
        if address and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", address):
            raise UsageError(
                "the Hub's endpoint is no address",
                cause="it begins with neither http:// nor https://",
                hint="correct HF_ENDPOINT, or endpoint in its table: https://HOST; unset it for huggingface.co",
            )
        self.repo, self.kind, self.limits = repo, kind, limits
        self._endpoint, self._token = endpoint.rstrip("/") if endpoint else None, token
        self.place = f"hf://{'datasets/' if kind == 'dataset' else ''}{repo}"
        self._made: Any = None
        self._calls = Calls(self.place, hanging=1000)  # the client ends what hangs by itself, mostly: none is refused

    @property
    def api(self) -> Any:
        """An `HfApi` with our endpoint, token and name."""
        if self._made is None:
            from huggingface_hub import HfApi

            ask_for_no_registry()
            self._made = HfApi(
                endpoint=self._endpoint, token=self._token, library_name="cachekit", library_version=__version__
            )
        return self._made

    @property
    def page(self) -> str:
        """Its address for people."""
        return f"{redact(self.api.endpoint)}/{'datasets/' if self.kind == 'dataset' else ''}{self.repo}"

    def address(self, path: str, revision: str) -> str:
        """Where a file is fetched from."""
        from huggingface_hub import hf_hub_url

        url: str = hf_hub_url(
            self.repo, path, repo_type=self.kind, revision=revision, endpoint=self._endpoint or self.api.endpoint
        )
        return url

    def headers(self) -> dict[str, str]:
        """What a request needs: the token, and who asks."""
        from huggingface_hub.utils import build_hf_headers

        ask_for_no_registry()
        headers: dict[str, str] = build_hf_headers(
            token=self._token, library_name="cachekit", library_version=__version__
        )
        return headers

    def identity(self) -> tuple[str, str]:
        """The Hub's endpoint, and the token that is used there; empty where there is none."""
        from huggingface_hub import get_token

        return str(self.api.endpoint), self._token or get_token() or ""

    def ask(self, question: Callable[[Any], T], call: Call | None = None) -> T:
        """What the client answers, in bounded time.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file or folder.
        """
        call = call or Call(self.limits)
        with self.failing(call):
            seconds = self.limits.connect + 2 * self.limits.read
            return run(self._calls, call, lambda: question(self._bound()), seconds=seconds)

    def send(self, job: Callable[[Any], T], call: Call, tell: Tell | None = None, seconds: float | None = None) -> T:
        """As `ask`, for what may take long: as long as it moves, or as the call is given.

        Raises:
            CachekitError: Of the port.
            OSError: A local file cannot be read.
        """
        call.tell = tell
        with self.failing(call):
            return run(self._calls, call, lambda: job(self._bound()), seconds=seconds)

    def each(self, question: Callable[[Any], Iterator[T]], call: Call | None = None) -> Iterator[T]:
        """What the client lists, page by page.

        Raises:
            CachekitError: Of the port.
            FileNotFoundError: The Hub says that there is no such file or folder.
        """
        call = call or Call(self.limits)
        with self.failing(call):
            items: Iterator[T] | None = None
            while True:
                with entered(call):
                    items = items if items is not None else iter(question(self._bound()))
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item

    @contextmanager
    def failing(self, call: Call) -> Iterator[None]:
        """Errors of the client become those of the port."""
        from huggingface_hub.errors import EntryNotFoundError

        try:
            yield
        except (CachekitError, FileNotFoundError, GeneratorExit):
            raise
        except EntryNotFoundError as error:
            if call.committing:
                raise self.error(error, call) from None
            raise FileNotFoundError(f"{self.place} has no such file") from None
        except OSError as error:
            if type(error).__module__ == "builtins" and not isinstance(error, (ConnectionError, TimeoutError)):
                raise  # of a local file; the client's own errors are OSErrors too
            raise self.error(error, call) from None
        except Exception as error:  # noqa: BLE001 - what it makes of a broken answer: KeyError, TypeError, …
            raise self.error(error, call) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of hf_xet's Rust: no Exception, and it must end no run
                raise
            raise self.error(error, call) from None

    def error(self, error: BaseException, call: Call) -> CachekitError:
        """The error of the port for one of the client."""
        return translated(error, self.place, call, self._token)

    def _bound(self) -> Any:
        bound_session()
        return self.api
