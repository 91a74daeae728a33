"""Azure Blob Storage.

`obstore` finds credentials itself: AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, AZURE_CLIENT_ID with its secret
or its federated token, `az login` with AZURE_USE_AZURE_CLI, and the machine's own identity. Documents are compared by
ETag, which says nothing of a blob's contents.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cachekit.errors import AuthError, CachekitError, UsageError
from cachekit.remotes.objectstore.connect import ObjectService, endpoint_of
from cachekit.remotes.objectstore.remote import ObjectStorage

_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_METADATA = "169.254.169.254"  # where a machine asks for its identity


class Azure(ObjectService):
    """Azure Blob Storage."""

    scheme = "az"
    service = "Azure Blob Storage"
    holder = "container"
    store = "AzureStore"
    name = r"[a-z0-9](?:-?[a-z0-9]){2,62}"
    resumes_lists = False
    absent = frozenset({"ContainerNotFound", "ContainerBeingDeleted"})
    needs = "the identity needs the role Storage Blob Data Contributor there"
    check = "check the network, and AZURE_STORAGE_ACCOUNT_NAME"

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """The account, and the address of a server that is not Azure's."""
        account = options.get("account") or next((os.environ[name] for name in _ACCOUNTS if os.environ.get(name)), "")
        if not account:
            raise UsageError(
                f"az://{bucket} names no account",
                cause="a container belongs to a storage account",
                hint='export AZURE_STORAGE_ACCOUNT_NAME=…, or account = "…" in its table in cachekit.toml',
            )
        given = options.get("endpoint") or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
        return {"account_name": account, **endpoint_of(given, self, bucket, "AZURE_STORAGE_ENDPOINT")}

    def fault(self, message: str, status: int, code: str, text: str) -> CachekitError | None:
        """Missing credentials."""
        if _METADATA not in text:
            return None
        return AuthError(
            f"{message}: no credentials",
            cause="the environment has no credentials, and this machine has no identity",
            hint="set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_USE_AZURE_CLI=true after `az login`",
        )


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `az://container/prefix`; options: `account`, `endpoint`."""
    return ObjectStorage(Azure(), address, options)
