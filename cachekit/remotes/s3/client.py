"""The way to a bucket of S3, or of what speaks its protocol: addresses, credentials, time limits, and its errors.

`obstore` reads the usual variables itself (keys, region, web identity, container) and asks the instance's metadata
last. The files that `aws configure` writes are unknown to it: they are read here, for keys that stand in them; what
needs a service first (a role to assume, single sign-on) is left to boto3 where that is installed.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.errors import AuthError, CachekitError, RemoteError, UsageError
from cachekit.remotes.port import BusyError, Limits
from cachekit.text import redact

if TYPE_CHECKING:
    from obstore.store import S3Store

INSTALL = 'pip install "cachekit-neuron[s3]"'
LONGEST = timedelta(days=1)  # for a whole request where its pieces are watched instead
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# With any of these obstore knows what to do; the first two go before a profile, as in AWS's own tools.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
UNREACHED = "it cannot be reached"  # the cause where nothing was sent
_DENIED = {401, 403}
_BUSY = {429, 503}
_DENIED_CODES = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}


@dataclass(frozen=True, slots=True)
class Stores:
    """The same place with different patience.

    Attributes:
        asks: For small answers: tries again by itself, a little.
        reads: The same for bytes: an answer has to begin in time, its body may take long.
        sends: For artifacts, whose writing may be repeated: tries again, a request may take long.
        writes: For documents: one try, as a second one could not tell its own first success from a conflict.
    """

    asks: S3Store
    reads: S3Store
    sends: S3Store
    writes: S3Store


def parse(name: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`.

    Raises:
        UsageError: It is no such address.
    """
    found = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", name)
    prefix = (found[2] or "").strip("/") if found else ""
    if not found or any(part in {"", ".", ".."} for part in prefix.split("/")[bool(not prefix) :]):
        raise UsageError(f"{redact(name)!r} is no S3 bucket", hint="write it as s3://bucket or s3://bucket/prefix")
    return found[1], prefix


def connect(bucket: str, prefix: str, limits: Limits, *, endpoint: str, region: str) -> Stores:
    """Make ready what talks to a bucket; nothing is sent yet.

    Raises:
        UsageError: obstore is not installed, or a profile, an endpoint or a region that cannot be used.
    """
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise UsageError("a cache in S3 needs the package obstore", cause=str(error), hint=INSTALL) from None
    endpoint = endpoint or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    if endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", endpoint):  # obstore would panic, at the first request
        raise UsageError(
            f"s3://{bucket} has an endpoint that is no address",
            cause="it begins with neither http:// nor https://",
            hint="correct AWS_ENDPOINT_URL, or endpoint in its table: http://HOST:PORT",
        )
    options: dict[str, Any] = _credentials()
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or options.pop("region", "")
    options |= {"region": region} if region else {}
    options |= {"endpoint": endpoint.rstrip("/")} if endpoint else {}

    def store(answer: float, whole: timedelta, tries: int) -> S3Store:
        client = {
            "connect_timeout": timedelta(seconds=limits.connect),
            "read_timeout": timedelta(seconds=answer),  # waiting for the beginning of the answer counts as reading
            "timeout": whole,
            "allow_http": endpoint.startswith("http://"),
        }
        retry = {
            "max_retries": tries,
            "retry_timeout": timedelta(seconds=limits.connect),  # none begins after that
            "backoff": {
                "init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=1), "base": 2.0
            },
        }  # fmt: skip
        make: Callable[..., S3Store] = S3Store  # whose types know only the regions and the options of their own version
        for known in (client, {name: value for name, value in client.items() if name != "read_timeout"}):
            try:
                return make(bucket, prefix=prefix or None, client_options=known, retry_config=retry, **options)
            except Exception as error:  # noqa: BLE001 - obstore raises ValueError and classes of its own
                if "read_timeout" not in str(error):  # which obstore has known since 0.10
                    raise UsageError(
                        f"s3://{bucket} cannot be used with these settings", cause=type(error).__name__,
                        hint="look at AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE",
                    ) from None  # fmt: skip
        raise AssertionError("unreachable")

    seconds = timedelta(seconds=limits.connect + limits.read)
    whole = timedelta(seconds=limits.connect + limits.commit)
    return Stores(
        asks=store(limits.read, seconds, 3),
        reads=store(limits.read, LONGEST, 3),
        sends=store(limits.commit, whole, 3),
        writes=store(limits.read, seconds, 0),
    )


def _credentials() -> dict[str, Any]:
    """What to tell obstore beside what it finds itself."""
    profile = os.environ.get("AWS_PROFILE", "")
    if any(os.environ.get(name) for name in (_KEYS if profile else _KEYS + _ROLES)):
        return {}
    home = Path.home() / ".aws"
    keys = _section(Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), profile or "default")
    settings = _section(
        Path(os.environ.get("AWS_CONFIG_FILE") or home / "config"), f"profile {profile}" if profile else "default"
    )
    found = settings | keys
    region = {"region": found["region"]} if found.get("region") else {}
    if found.get("aws_access_key_id") and found.get("aws_secret_access_key") and "role_arn" not in found:
        names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
                 "aws_session_token": "session_token"}  # fmt: skip
        return region | {name: found[ours] for ours, name in names.items() if found.get(ours)}
    if not profile:
        return region  # the instance's role, then
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider

        return region | {"credential_provider": Boto3CredentialProvider(Session(profile_name=profile))}
    except ImportError:
        raise UsageError(
            f"the AWS profile {profile!r} has no keys in it", hint="pip install boto3, which can assume its role"
        ) from None
    except Exception as error:  # noqa: BLE001 - botocore's many
        raise UsageError(f"the AWS profile {profile!r} cannot be used", cause=type(error).__name__) from None


def _section(path: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeError):
        return {}
    return dict(parser.items(name)) if parser.has_section(name) else {}


def status_of(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the code of S3 in an error of obstore; 0 and nothing where there was no answer."""
    text = str(error)
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", text)
    return int(status[1]) if status else 0, code[1] if code else ""


def is_missing(error: BaseException) -> bool:
    """Whether it says that there is no such object, in a bucket that is there."""
    return isinstance(error, FileNotFoundError) and status_of(error)[1] != "NoSuchBucket"


def translated(error: BaseException, name: str, what: str) -> CachekitError:
    """An error of obstore in our words. Its own text is not shown: it has the request and the answer in it."""
    if isinstance(error, CachekitError):
        return error
    status, code = status_of(error)
    answer = f"{status} {code}".strip() if status else ""
    message = f"{name}: {what}"
    if "169.254.169.254" in str(error):
        return AuthError(
            f"{message}: no credentials", cause="none in the environment, and this machine has no role",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the instance a role",
        )  # fmt: skip
    if code == "NoSuchBucket":
        return AuthError(f"{message}: there is no such bucket", cause=answer, hint="create it, or correct its name")
    if region := re.search(r"<Region>([a-z0-9-]{4,30})</Region>", str(error)):
        return RemoteError(f"{message}: wrong region", cause=answer, hint=f"export AWS_REGION={region[1]}")
    if status in {301, 307}:
        return RemoteError(f"{message}: it is in another region", cause=answer, hint="set AWS_REGION to the bucket's")
    if status in _DENIED or code in _DENIED_CODES or type(error).__name__ in {
        "UnauthenticatedError", "PermissionDeniedError"
    }:  # fmt: skip
        return AuthError(
            f"{message}: not allowed", cause=answer,
            hint="the credentials need s3:GetObject, s3:PutObject and s3:ListBucket there",
        )  # fmt: skip
    if status in _BUSY:
        return BusyError(f"{message}: it asks for fewer requests", cause=answer)
    if answer:
        return RemoteError(f"{message}: it failed", cause=answer)
    kind = re.search(r"kind: (Connect|Timeout|Request|Decode|Interrupted|Unknown)\b", str(error))
    reasons = {"Connect": UNREACHED, "Timeout": "no answer in time"}
    cause = reasons.get(kind[1], "the line was cut") if kind else type(error).__name__
    hint = "check the network, AWS_ENDPOINT_URL and AWS_REGION" if cause == UNREACHED else ""
    return RemoteError(f"{message}: it failed", cause=cause, hint=hint)
