"""What the client raises, in the words of the port. No token and no signed address gets into a text.

Statuses and texts are the Hub's as its users report them: 412 for a stale parent, 409 while another commit is in
progress, a 429 with `RateLimit: "api";r=0;t=55` where the window is used up, and one with `r` above 0 and the text
"rate limit for repository commits" where the hour's commits are, in which case the header says nothing.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any
from urllib.parse import urlsplit

from cachekit import redact
from cachekit.errors import (
    AuthError,
    BusyError,
    CachekitError,
    ConflictError,
    MissingRemoteError,
    RemoteError,
    UncertainError,
    chain_of,
)
from cachekit.remotes.hub.call import Call, LostError
from cachekit.text import cut

_CHECK = "check HF_ENDPOINT, proxies"
LOGIN = "hf auth login, or set HF_TOKEN to a token that may"
QUOTA_WAIT = 600.0  # seconds; about 128 commits an hour are allowed, and nothing says when the next one is
BUSY_WAIT = 5.0  # another commit takes a few seconds, 60 at most
TEXT_LIMIT = 300
_PASSING = frozenset({408, 409, 412, 425})  # of a question: another one soon may be answered
_CUT = frozenset({"ReadError", "RemoteProtocolError", "ProtocolError"})  # httpx's, and urllib3's
_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")
_USER = re.compile(r"(https?://)[^/@\s]*@")
_XET_REFUSED = re.compile(r"(401 Unauthorized|403 Forbidden).*xet-write-token")  # hf_xet has no class for it
_WINDOW = re.compile(r"r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)")


def clean(text: str, token: str | None) -> str:
    """One short line without secrets, the queries of addresses or names of users."""
    text = redact.printed(text, [token] if token else ())
    return cut(" ".join(_USER.sub(r"\1", _QUERY.sub(r"\1", text)).split()), TEXT_LIMIT)


def is_missing(error: BaseException, call: Call) -> bool:
    """Whether this says that there is no such file or folder, and nothing else is wrong."""
    from huggingface_hub.errors import EntryNotFoundError

    if call.committing:
        return False
    if isinstance(error, EntryNotFoundError):
        return True
    for one in chain_of(error):  # the headers say so, whatever became of the answer's body
        response: Any = getattr(one, "response", None)
        if response is not None and response.status_code == 404:  # noqa: PLR2004
            code = response.headers.get("X-Error-Code") or ""
            return code == "EntryNotFound" or (call.missing and not code)
    return False


def translated(error: BaseException, place: str, call: Call, token: str | None = None) -> CachekitError:
    """The error of the port that this one of the client is.

    Args:
        error: What the client raised.
        place: The remote's name.
        call: In which it happened.
        token: Not to be shown.
    """
    if isinstance(error, CachekitError):
        return error
    chain = chain_of(error)  # the client wraps what happens in its threads
    if failures := getattr(error, "failures", None):  # of a bucket's batch
        return RemoteError(f"{place} gave an unexpected answer", cause=f"{len(failures)} operations failed")
    names = {cls.__name__ for e in chain for cls in type(e).__mro__}
    if "TooManyRedirects" in names:
        cause = "each address that it names redirects to another one"
        return RemoteError(f"{place} gave no answer", cause=cause, hint=_CHECK, lasting=True)
    answered = next((e for e in chain if getattr(getattr(e, "response", None), "status_code", None)), None)
    if answered is not None:
        return _by_status(answered, place, call, token)
    lost = next((e for e in chain if isinstance(e, LostError)), None)
    # What the client says of an answer of another shape is about its own code.
    said = "" if isinstance(error, (TypeError, AttributeError, LookupError)) else f": {error}"
    unread = f"its client cannot read it ({type(error).__name__}{said})"
    cause = clean(str(lost) if lost else "it is not JSON" if "JSONDecodeError" in names else unread, token)
    if "OfflineModeIsEnabled" in names:
        return RemoteError(f"{place} is not asked: HF_HUB_OFFLINE is set", hint="unset HF_HUB_OFFLINE", lasting=True)
    if "LocalTokenNotFoundError" in names:
        return AuthError(f"no token for {place}", hint=LOGIN)
    if _XET_REFUSED.search(cause):
        return AuthError(f"{place} rejected this token", cause=cause, hint=f"{LOGIN} write to this repo")
    if call.committing and (lost is None or lost.sent):
        return UncertainError(f"the answer to a commit to {place} was lost", cause=cause)
    if lost is not None:
        what = "stopped answering" if lost.sent else "cannot be reached"
        return RemoteError(f"{place} {what}", cause=cause, hint="check the network, HF_ENDPOINT, proxies")
    late = any("Timeout" in name for name in names)
    if late or names & _CUT:  # a file's body is read outside of the session
        cause = (
            f"nothing came for {call.limits.read:g} s" if late else clean(f"the connection was cut ({error})", token)
        )
        return RemoteError(f"{place} stopped answering", cause=cause, hint="check the network, HF_ENDPOINT, proxies")
    return RemoteError(f"{place} gave an unexpected answer", cause=cause, hint=_CHECK)


def _by_status(error: BaseException, place: str, call: Call, token: str | None) -> CachekitError:
    response: Any = error.response  # type: ignore[attr-defined]
    status, headers = int(response.status_code), response.headers
    said = getattr(error, "server_message", None) or headers.get("X-Error-Message") or ""
    cause = clean(f"{status} {said or responses.get(status, '')}", token)
    code = headers.get("X-Error-Code") or ""
    if code == "RepoNotFound":
        create = "hf buckets create" if place.startswith("hf://buckets/") else "cachekit hub create"
        hint = f"create it with `{create}`, or log in: {LOGIN} read it"
        # Without a token, the Hub answers 401: then nobody knows.
        missing = MissingRemoteError if status == 404 else AuthError  # noqa: PLR2004
        return missing(f"{place} does not exist, or this token may not see it", cause=cause, hint=hint)
    where = urlsplit(str(getattr(response, "url", ""))).netloc
    if status in {401, 403} and where not in {"", call.host}:  # no token goes there: the address was too old, say
        return RemoteError(f"{place} redirected to an address that refuses access", cause=cause)
    if status in {401, 403}:
        return AuthError(f"{place} rejected this token", cause=cause, hint=f"{LOGIN} read and write this repo")
    if status == 429:  # noqa: PLR2004
        return BusyError(f"{place} accepts no more requests for now", cause=cause, wait=_wait(headers, said))
    if code == "RevisionNotFound":
        hint = "its history may have been squashed"
        return RemoteError(f"{place} has no such revision", cause=cause, hint=hint, lasting=True)
    if call.committing:
        if status == 412 or code == "EntryNotFound":  # noqa: PLR2004 - what is to be deleted is gone
            return ConflictError(f"somebody else wrote to {place} in the meantime", cause=cause)
        if status == 409:  # noqa: PLR2004
            return BusyError(f"another commit to {place} is in progress", cause=cause, wait=BUSY_WAIT)
        if status >= 500 or status == 408:  # noqa: PLR2004
            wait = _wait(headers, said)
            return UncertainError(f"a commit to {place} failed, or its answer was lost", cause=cause, wait=wait)
    lasting = status < 500 and status not in _PASSING  # noqa: PLR2004
    return RemoteError(f"{place} answers with an error", cause=cause, wait=_wait(headers, said), lasting=lasting)


def _wait(headers: Any, said: str) -> float:
    """Seconds after which the Hub wants to be asked again; 0 where it does not say."""
    window = _WINDOW.search(headers.get("RateLimit") or "")
    if window and int(window[1]) == 0:
        return float(window[2]) + 1
    if "repository commits" in said:
        return QUOTA_WAIT
    after = (headers.get("Retry-After") or "").strip()
    if re.fullmatch("[0-9]+", after):
        return float(after)
    until = _date(after)
    now = _date(headers.get("Date") or "") or time.time()  # by the server's clock, where it tells that
    return until - now if until else 0.0


def _date(said: str) -> float:
    """Seconds since the epoch; 0 where it is no date."""
    try:
        return parsedate_to_datetime(said).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
