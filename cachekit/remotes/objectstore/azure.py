"""Azure Blob Storage.

`obstore` finds credentials itself: AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, AZURE_CLIENT_ID with its secret
or its federated token, `az login` with AZURE_USE_AZURE_CLI, and the machine's own identity. Documents are compared by
ETag, which says nothing of a blob's contents.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cachekit.errors import UsageError
from cachekit.remotes.objectstore.connect import ObjectService
from cachekit.remotes.objectstore.remote import ObjectStorage

_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")


class Azure(ObjectService):
    """Azure Blob Storage."""

    scheme = "az"
    service = "Azure Blob Storage"
    holder = "container"
    store = "AzureStore"
    skips = "AZURE_SKIP_SIGNATURE"
    name = r"[a-z0-9](?:-?[a-z0-9]){2,62}"
    resumes_lists = False
    absent = frozenset({"ContainerNotFound", "ContainerBeingDeleted"})
    endpoints = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    own = "identity"
    login = "set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_USE_AZURE_CLI=true after `az login`"
    needs = "the identity needs the role Storage Blob Data Contributor there"
    check = "check the network, and AZURE_STORAGE_ACCOUNT_NAME"

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """The account, and the address of a server that is not Azure's."""
        settings = super().settings(bucket, options)
        account = settings.pop("account", "") or next(
            (os.environ[name] for name in _ACCOUNTS if os.environ.get(name)), ""
        )
        if not account:
            raise UsageError(
                f"az://{bucket} names no account",
                cause="a container belongs to a storage account",
                hint='export AZURE_STORAGE_ACCOUNT_NAME=…, or account = "…" in its table in cachekit.toml',
            )
        return {**settings, "account_name": account}


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `az://container/prefix`; options: `account`, `endpoint`."""
    return ObjectStorage(Azure(), address, options)
