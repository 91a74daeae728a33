"""Azure Blob Storage: Azurite, Microsoft's emulator, a package of npm. Run by `make test-s3`."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cachekit.remotes.objectstore import ObjectStorage
from cachekit.remotes.objectstore.azure import Azure
from cachekit.remotes.port import Storage
from tests.remotes.server_program import listening

AZURITE = os.environ.get("CACHEKIT_AZURITE") or shutil.which("azurite-blob")  # before the environment is cleaned
ACCOUNT = "devstoreaccount1"
# Azurite's own, which its documentation names; no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Its endpoint."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    if not AZURITE:
        pytest.skip("azurite is not installed (npm install azurite; CACHEKIT_AZURITE=…/azurite-blob)")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [AZURITE, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
               "--skipApiVersionCheck", "--disableTelemetry", "--silent"]  # fmt: skip
    with listening(command, folder, port):
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


def make_container(endpoint: str, name: str) -> None:
    """As `az storage container create`: obstore makes none, so the request is signed here."""
    import base64
    import hashlib
    import hmac
    import urllib.request
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    form = "application/octet-stream"
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Type": form}
    # Verb, eleven lines of which one is not empty, headers, and the resource; the emulator's path has the account, too.
    text = "\n".join(["PUT", *[""] * 4, form, *[""] * 6, f"x-ms-date:{date}", "x-ms-version:2021-08-06",
                      f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])  # fmt: skip
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", b"", headers, method="PUT")
    request.add_header("Content-Length", "0")
    urllib.request.urlopen(request).close()


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[], Storage]]:
    with azurite(folder) as endpoint, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AZURE_")]:
            patch.delenv(name)
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        patch.setenv("NO_PROXY", "127.0.0.1")
        make_container(endpoint, "cache")
        yield partial(opened, endpoint)


def opened(endpoint: str) -> ObjectStorage:
    return ObjectStorage(Azure(), "az://cache/team/x", {"account": ACCOUNT, "endpoint": endpoint})
