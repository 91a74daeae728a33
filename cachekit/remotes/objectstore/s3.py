"""S3, or what speaks its protocol with conditional writes (MinIO, SeaweedFS, R2, Ceph, the Hub's gateway).

`obstore` reads the usual variables itself (keys, region, web identity, container) and asks the instance's metadata
last. The files that `aws configure` writes are unknown to it, and read here. What needs a service first (a role to
assume, single sign-on) is left to boto3 where that is installed.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit.disk import check_ends
from cachekit.errors import AuthError, CachekitError, RemoteError, UsageError
from cachekit.remotes.objectstore.connect import ObjectService
from cachekit.remotes.objectstore.remote import ObjectStorage

# With any of these obstore knows what to do; the first two go before a profile, as in AWS's own tools.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_ROLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", *_CONTAINER)
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


class S3(ObjectService):
    """Amazon S3 and its like; documents are compared by ETag."""

    scheme = "s3"
    service = "S3"
    store = "S3Store"
    skips = "AWS_SKIP_SIGNATURE"
    name = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
    md5_tags = True
    denied = frozenset({"ExpiredToken", "InvalidToken"})
    endpoints = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    login = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the instance a role"
    needs = "the credentials need s3:GetObject, s3:PutObject and s3:ListBucket there"
    check = "check the network, AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE"

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Keys and region of a profile, and the address of a server that is not AWS's."""
        told = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return {**_profile(), **({"region": told} if told else {}), **super().settings(bucket, options)}

    def fault(self, message: str, status: int, code: str, text: str) -> CachekitError | None:
        """A clock that is wrong, and another region."""
        if code == "RequestTimeTooSkewed":
            hint = "set it: sudo chronyc makestep, or timedatectl set-ntp true"
            return AuthError(f"{message}: this host's clock is wrong", cause=f"{status} {code}", hint=hint)
        region = re.search(r"<Region>([a-z0-9-]{4,30})</Region>", text)
        if not region and status not in {301, 307}:
            return None
        hint = f"export AWS_REGION={region[1]}" if region else "set AWS_REGION to the bucket's"
        return RemoteError(f"{message}: the bucket is in another region", cause=f"{status} {code}".strip(), hint=hint)


def _profile() -> dict[str, Any]:
    """Settings of a profile, or of the default one: keys, a region, a provider of both.

    Raises:
        UsageError: The profile that the environment names, or a file, cannot be used.
    """
    profile = os.environ.get("AWS_PROFILE", "")
    if any(os.environ.get(name) for name in (_KEYS if profile else _KEYS + _ROLES)):
        return {}
    parser = configparser.RawConfigParser()
    for variable, usual in _FILES.items():
        path = Path(os.environ.get(variable) or os.path.expanduser(usual))  # noqa: PTH111
        if path.parts[:1] != ("~",):  # a user without a home directory has no such files
            check_ends(path, variable)
            with suppress(configparser.Error, OSError, UnicodeError):
                parser.read(path, encoding="utf-8")
    found: dict[str, str] = {}
    for section in filter(parser.has_section, (f"profile {profile}", profile or "default")):
        found |= parser.items(section)
    usable = found.get("aws_access_key_id") and found.get("aws_secret_access_key") and "role_arn" not in found
    wanted = ("region", *(("aws_access_key_id", "aws_secret_access_key", "aws_session_token") if usable else ()))
    settings: dict[str, Any] = {name.removeprefix("aws_"): found[name] for name in wanted if found.get(name)}
    if usable or not profile:  # without keys, the instance's role
        return settings
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider

        return {**settings, "credential_provider": Boto3CredentialProvider(Session(profile_name=profile))}
    except ImportError:
        hint = "pip install boto3, which can assume its role"
        raise UsageError(f"the AWS profile {profile!r} has no keys in it", hint=hint) from None
    except Exception as error:  # noqa: BLE001 - botocore's many
        raise UsageError(f"the AWS profile {profile!r} cannot be used", cause=type(error).__name__) from None


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `s3://bucket/prefix`; options: `endpoint`, `region`."""
    return ObjectStorage(S3(), address, options)
