"""S3, or what speaks its protocol with conditional writes (MinIO, SeaweedFS, R2, Ceph, the Hub's gateway).

`obstore` reads the usual variables itself (keys, region, web identity, container) and asks the instance's metadata
last; see `aws_profile` for what it does not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from cachekit.errors import AuthError, CachekitError, RemoteError
from cachekit.remotes.objectstore import aws_profile
from cachekit.remotes.objectstore.connect import ObjectService
from cachekit.remotes.objectstore.remote import ObjectStorage


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
        return {**aws_profile.settings(), **({"region": told} if told else {}), **super().settings(bucket, options)}

    def fault(self, message: str, status: int, code: str, text: str) -> CachekitError | None:
        """A clock or keys that are wrong, and another region."""
        if code in {"SignatureDoesNotMatch", "InvalidAccessKeyId"}:
            return AuthError(f"{message}: the keys are wrong", cause=f"{status} {code}", hint=self.login)
        if code == "RequestTimeTooSkewed":
            hint = "set it: sudo chronyc makestep, or timedatectl set-ntp true"
            return AuthError(f"{message}: this host's clock is wrong", cause=f"{status} {code}", hint=hint)
        region = re.search(r"<Region>([a-z0-9-]{4,30})</Region>", text)
        if not region and status not in {301, 307}:
            return None
        hint = f"export AWS_REGION={region[1]}" if region else "set AWS_REGION to the bucket's"
        return RemoteError(f"{message}: the bucket is in another region", cause=f"{status} {code}".strip(), hint=hint)


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `s3://bucket/prefix`; options: `endpoint`, `region`."""
    return ObjectStorage(S3(), address, options)
