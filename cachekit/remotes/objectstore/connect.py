"""How a bucket of an object store is reached: the service's settings, time limits, and its errors as cachekit's."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit import redact
from cachekit.config import FALSE_WORDS
from cachekit.errors import AuthError, BusyError, CachekitError, MissingRemoteError, RemoteError, UsageError
from cachekit.remotes.port import Limits

if TYPE_CHECKING:
    from obstore.store import ObjectStore

INSTALL = 'pip install "cachekit-neuron[objectstore]"'
LONGEST = timedelta(days=1)  # for a whole request where its pieces are watched instead
UNREACHED = "it cannot be reached"  # the cause where nothing was sent
_DENIED = {401, 403}
_BUSY = {429, 503}
_PASSING = {408, 409, 412}  # of a question: another one soon may be answered
# Where a machine in a cloud asks for credentials of its own: obstore does so last, where it has found no others.
_METADATA = ("169.254.169.254", "metadata.google.internal")
# What obstore makes a server's name of, unlooked at: `x.test/` as an account would be a server of that name.
_FORMS = {"account_name": r"[a-z0-9]{3,24}", "region": r"[A-Za-z0-9_-]{1,63}"}
_KINDS_OF_FAILURE = {"Connect": UNREACHED, "Timeout": "no answer in time"}


class Stores(Struct, frozen=True):
    """The same bucket with different time limits and retries.

    Attributes:
        asks: For small answers: one try, as `patience` repeats questions.
        reads: The same for bytes: an answer has to begin in time, its body may take long.
        sends: For artifacts, whose writing may be repeated: tries again, a request may take long.
        writes: For documents: one try, as a second one could not tell its own first success from a conflict.
        server: Its address, where the settings name one.
    """

    asks: ObjectStore
    reads: ObjectStore
    sends: ObjectStore
    writes: ObjectStore
    server: str = ""


class ObjectService:
    """What one service does differently.

    Attributes:
        scheme: Of its addresses.
        service: As people call it.
        holder: What it calls a place for objects.
        store: The name of obstore's class.
        skips: The variable that makes this class send no credentials; empty where it has none. Each service says it:
            what is read without credentials is a stranger's.
        name: A regular expression for the names of its holders.
        resumes_lists: The server begins a listing after a name; elsewhere all that is before is listed too.
        md5_tags: An ETag is the MD5 of the whole, or of the MD5s of our parts. With encryption by KMS it is not, which
            nobody can tell.
        absent: Its codes for a holder that is not there.
        denied: Its codes for refused credentials, beside the statuses 401 and 403.
        endpoints: Variables with the address of a server that is not the service's own, the first one first.
        own: What gives a machine in its cloud credentials, for a hint.
        login: How a user gets credentials, for a hint.
        needs: What a user's credentials must allow, for a hint.
        check: What to check where it cannot be reached, for a hint.
    """

    scheme = ""
    service = ""
    holder = "bucket"
    store = ""
    skips: str
    name = r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
    resumes_lists = True
    md5_tags = False
    absent = frozenset({"NoSuchBucket"})
    denied: frozenset[str] = frozenset()
    endpoints: tuple[str, ...] = ()
    own = "role"
    login = ""
    needs = ""
    check = "check the network"

    @property
    def unsigned(self) -> str:
        """The variable that makes obstore send no credentials now; empty where none does.

        obstore reads its variables in any case, and `AWS_Skip_Signature` beside `AWS_SKIP_SIGNATURE`.
        """
        set_ = (one for one, said in os.environ.items() if said.strip().lower() not in FALSE_WORDS)
        return next((one for one in set_ if self.skips and one.upper() == self.skips), "")

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Settings for obstore that it does not find in the environment itself: the options, and an endpoint.

        Args:
            bucket: The holder's name.
            options: Of the remote's table in cachekit.toml.

        Raises:
            UsageError: A setting cannot be used. With an endpoint that is no URL obstore would panic at the first
                request.
        """
        said = next((name for name in self.endpoints if os.environ.get(name)), "")
        endpoint = options.get("endpoint") or os.environ.get(said, "")
        if not endpoint:
            return dict(options)
        if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", endpoint):
            place = "endpoint in its table" if options.get("endpoint") else said
            raise UsageError(
                f"{self.scheme}://{bucket} has an endpoint that is not a URL",
                cause="it begins with neither http:// nor https://",
                hint=f"correct {place}: http://HOST:PORT",
            )
        return {**options, "endpoint": endpoint.rstrip("/")}

    def fault(self, message: str, status: int, code: str, text: str) -> CachekitError | None:
        """The error for an answer that only this service gives; None for all others.

        Args:
            message: The error's first line: what failed, where.
            status: The HTTP status; 0 where there was no answer.
            code: The service's own, or nothing.
            text: All that obstore says. It has the request and the answer in it: not to be shown.
        """
        return None

    def e_tag_of(self, pieces: Callable[[], Iterator[bytes]], like: str) -> str:
        """The ETag that these bytes would have; empty where the service's ETags do not depend on contents.

        Args:
            pieces: The bytes, in parts as this adapter sends them.
            like: An ETag of the same service.
        """
        if not self.md5_tags:
            return ""
        parts = [hashlib.md5(piece, usedforsecurity=False).digest() for piece in pieces()] if "-" in like else []
        if parts:
            return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
        whole = hashlib.md5(usedforsecurity=False)
        for piece in pieces():
            whole.update(piece)
        return whole.hexdigest()

    def connect(self, bucket: str, prefix: str, options: Mapping[str, str], limits: Limits) -> Stores:
        """Prepare the clients for a bucket; nothing is sent yet.

        Raises:
            UsageError: obstore is not installed, or the settings cannot be used.
        """
        try:
            import obstore.store
        except ImportError as error:
            raise UsageError(
                f"a remote in {self.service} needs the package obstore", cause=str(error), hint=INSTALL
            ) from None
        make: Callable[..., ObjectStore] = getattr(obstore.store, self.store)
        settings = self.settings(bucket, options)
        for name, form in _FORMS.items():
            if name in settings and not re.fullmatch(form, settings[name]):
                word = name.removesuffix("_name")
                raise UsageError(
                    f"{self.scheme}://{bucket} is not used: its {word} is not in the form of a name",
                    cause=f"the {word} is part of the name of the server that gets your credentials",
                    hint=f"correct {word} in its table in cachekit.toml, or the variable that names it",
                )

        def store(answer: float, whole: timedelta, tries: int) -> ObjectStore:
            client = {
                "connect_timeout": timedelta(seconds=limits.connect),
                "read_timeout": timedelta(seconds=answer),  # waiting for the beginning of the answer counts as reading
                "timeout": whole,
                "allow_http": str(settings.get("endpoint", "")).startswith("http://"),
            }
            retry = {
                "max_retries": tries,
                "retry_timeout": timedelta(seconds=limits.connect),  # none begins after that
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=1),
                    "base": 2.0,
                },
            }
            for known in (client, {name: value for name, value in client.items() if name != "read_timeout"}):
                try:
                    return make(bucket, prefix=prefix or None, client_options=known, retry_config=retry, **settings)
                except Exception as error:  # noqa: BLE001 - obstore raises ValueError and classes of its own
                    if "read_timeout" not in str(error):  # which obstore has known since 0.10
                        raise UsageError(
                            f"{self.scheme}://{bucket} cannot be used with these settings",
                            cause=type(error).__name__,
                            hint=self.login,
                        ) from None
            raise AssertionError("unreachable")

        seconds = timedelta(seconds=limits.connect + limits.read)
        whole = timedelta(seconds=limits.connect + limits.commit)
        return Stores(
            asks=store(limits.read, seconds, 0),
            reads=store(limits.read, LONGEST, 0),
            sends=store(limits.commit, whole, 3),
            writes=store(limits.read, seconds, 0),
            server=str(settings.get("endpoint", "")),
        )


def parse(kind: ObjectService, address: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`.

    Raises:
        UsageError: It is not such an address.
    """
    found = re.fullmatch(rf"{kind.scheme}://({kind.name})(?:/(.*))?", address)
    prefix = (found[2] or "").strip("/") if found else ""
    if not found or any(part in {"", ".", ".."} for part in prefix.split("/")[bool(not prefix) :]):
        raise UsageError(
            f"{redact.address(address)!r} is not a {kind.holder} of {kind.service}",
            hint=f"write it as {kind.scheme}://{kind.holder} or {kind.scheme}://{kind.holder}/prefix",
        )
    return found[1], prefix


def status_of(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the service's code in an error of obstore; 0 and nothing where there was no answer."""
    text = str(error)
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", text)
    return int(status[1]) if status else 0, code[1] if code else ""


def is_missing(kind: ObjectService, error: BaseException) -> bool:
    """Whether the error says that there is no such object in an existing bucket."""
    return isinstance(error, FileNotFoundError) and status_of(error)[1] not in kind.absent


def is_past_the_end(error: BaseException) -> bool:
    """Whether the error says that the wanted range begins past the end of the file."""
    return status_of(error)[0] == 416 or "StartTooLarge" in str(error)  # noqa: PLR2004 - the second: obstore's memory


def translated(kind: ObjectService, error: BaseException, remote: str, what: str) -> CachekitError:
    """An error of obstore in our words. Its own text is not shown: it has the request and the answer in it."""
    if isinstance(error, CachekitError):
        return error
    status, code = status_of(error)
    answer = f"{status} {code}".strip() if status else ""
    message = f"{remote}: {what}"
    if code in kind.absent:
        return MissingRemoteError(
            f"{message}: there is no such {kind.holder}", cause=answer, hint="create it, or correct its name"
        )
    if any(address in str(error) for address in _METADATA):
        return AuthError(
            f"{message}: no credentials",
            cause=f"the environment has no credentials, and this machine has no {kind.own}",
            hint=kind.login,
        )
    if told := kind.fault(message, status, code, str(error)):
        return told
    if (
        status in _DENIED
        or code in kind.denied
        or type(error).__name__ in {"UnauthenticatedError", "PermissionDeniedError"}
    ):
        return AuthError(f"{message}: not allowed", cause=answer, hint=kind.needs)
    if status in _BUSY:
        return BusyError(f"{message}: the service asks for fewer requests", cause=answer)
    if answer:
        lasting = status < 500 and status not in _PASSING  # noqa: PLR2004
        return RemoteError(f"{message}: the request failed", cause=answer, lasting=lasting)
    failure = re.search(r"kind: (Connect|Timeout|Request|Decode|Interrupted|Unknown)\b", str(error))
    cause = _KINDS_OF_FAILURE.get(failure[1], "the line was cut") if failure else type(error).__name__
    return RemoteError(f"{message}: the request failed", cause=cause, hint=kind.check if cause == UNREACHED else "")
