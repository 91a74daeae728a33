"""Google Cloud Storage.

`obstore` finds credentials itself: GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT, what `gcloud auth
application-default login` wrote, and the machine's own account. Documents are compared by generation, not by ETag.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cachekit.disk import check_ends
from cachekit.errors import UsageError
from cachekit.remotes.objectstore.connect import ObjectService
from cachekit.remotes.objectstore.remote import ObjectStorage

# Files of credentials, by their variables; obstore reads the first of them that is set.
_FILES = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")


class GCS(ObjectService):
    """Google Cloud Storage, by its XML API."""

    scheme = "gs"
    service = "Google Cloud Storage"
    store = "GCSStore"
    skips = "GOOGLE_SKIP_SIGNATURE"
    own = "account"
    login = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
    needs = "the account needs storage.objects.get, .create, .delete and .list there (roles/storage.objectUser)"
    check = "check the network, and GOOGLE_APPLICATION_CREDENTIALS"

    def settings(self, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
        """See that obstore comes to the end of the files that it reads while a client is made.

        Raises:
            UsageError: One is not there, or is a pipe, which would be waited for without end.
        """
        for variable in _FILES:
            if named := os.environ.get(variable):
                if not os.path.lexists(named):
                    raise UsageError(f"{variable} names a file that is not there", cause=named, hint=self.login)
                check_ends(Path(named), variable)
        return super().settings(bucket, options)


def opened(address: str, options: Mapping[str, str]) -> ObjectStorage:
    """The remote at `gs://bucket/prefix`; it has no options."""
    return ObjectStorage(GCS(), address, options)
