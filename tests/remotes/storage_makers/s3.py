"""S3: moto's server. The remotes find it by the usual variables of AWS, which processes started meanwhile inherit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cachekit.remotes.port import Storage
from tests.remotes.s3_server import s3_server, use
from tests.remotes.s3_storage import open_s3


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[], Storage]]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        use(patch, server.environment())
        yield partial(open_s3, f"s3://{server.bucket}/team/cache")
