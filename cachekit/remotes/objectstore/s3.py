"""S3, or what speaks its protocol with conditional writes (MinIO, SeaweedFS, R2, Ceph, the Hub's gateway).

`obstore` reads the usual variables itself (keys, region, web identity, container) and asks the instance's metadata
last. The files that `aws configure` writes are unknown to it: `aws_profile` reads them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cachekit.errors import AuthError, CachekitError, RemoteError
from cachekit.remotes.objectstore.aws_profile import credentials
from cachekit.remotes.objectstore.connect import ObjectService, endpoint_of
from cachekit.remotes.objectstore.remote import ObjectStorage

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_METADATA = "169.254.169.254"  # where an instance asks for its role
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}


class S3(ObjectService):
    """Amazon S3 and its like; documents are compared by ETag."""

    scheme = "s3"
    service = "S3"
    store = "S3Store"
    name = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
    needs = "the credentials need s3:GetObject, s3:PutObject and s3:ListBucket there"
    check = "check the network, AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE"

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Keys of a profile, the region, and the address of a server that is not AWS's."""
        given = options.get("endpoint") or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
        endpoint = endpoint_of(given, self, bucket, "AWS_ENDPOINT_URL")
        found = credentials()
        told = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = {"region": told} if told else {}
        return {**found, **region, **endpoint}

    def fault(self, message: str, status: int, code: str, text: str) -> CachekitError | None:
        """Missing credentials, and another region."""
        answer = f"{status} {code}".strip()
        if _METADATA in text:
            return AuthError(
                f"{message}: no credentials",
                cause="the environment has no credentials, and this machine has no role",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the instance a role",
            )
        if region := re.search(r"<Region>([a-z0-9-]{4,30})</Region>", text):
            return RemoteError(f"{message}: wrong region", cause=answer, hint=f"export AWS_REGION={region[1]}")
        if status in {301, 307}:
            return RemoteError(
                f"{message}: the bucket is in another region", cause=answer, hint="set AWS_REGION to the bucket's"
            )
        return AuthError(f"{message}: not allowed", cause=answer, hint=self.needs) if code in _DENIED else None

    def e_tag_of(self, pieces: Callable[[], Iterator[bytes]], like: str) -> str:
        """The MD5 of the whole, or of the MD5s of our parts; not so with encryption by KMS, which nobody can tell."""
        parts = [hashlib.md5(piece, usedforsecurity=False).digest() for piece in pieces()] if "-" in like else []
        if parts:
            return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
        whole = hashlib.md5(usedforsecurity=False)
        for piece in pieces():
            whole.update(piece)
        return whole.hexdigest()


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `s3://bucket/prefix`; options: `endpoint`, `region`."""
    return ObjectStorage(S3(), address, options)
