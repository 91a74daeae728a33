"""A Storage Bucket on the test Hub, through the installed huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from cachekit.remotes import additions
from cachekit.remotes.hub import BucketStorage
from cachekit.remotes.port import Limits, Storage
from tests.remotes.one_hub import one_hub
from tests.support.hubserver import HubServer

BUCKET = "team/cache"


@contextmanager
def bucket_hub(folder: Path) -> Iterator[HubServer]:
    """A test Hub with an empty bucket, and the client in this process online."""
    import huggingface_hub
    import huggingface_hub.constants
    import huggingface_hub.errors

    if not hasattr(huggingface_hub.HfApi, "batch_bucket_files"):
        pytest.skip(f"huggingface_hub {huggingface_hub.__version__} has no buckets")
    with one_hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "0")
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # which it read when it was imported
        api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
        with suppress(huggingface_hub.errors.HfHubHTTPError):  # a test may have left it, offline or behind faults
            api.delete_bucket(BUCKET)
        api.create_bucket(BUCKET, private=True)
        hub.log.clear()
        yield hub


def make_storage(hub: HubServer, *, limits: Limits | None = None, token: str | None = None) -> BucketStorage:
    return open_storage(hub.endpoint, token or hub.token, limits)


def open_storage(endpoint: str, token: str, limits: Limits | None = None) -> BucketStorage:
    return BucketStorage(f"hf://buckets/{BUCKET}/some/where", limits=limits, endpoint=endpoint, token=token)


def grow_old(hub: HubServer, seconds: float = additions.KEPT + 1) -> None:
    """Let all files of the bucket have been there for longer."""
    for file in hub.buckets.known[BUCKET]["files"].values():
        file["at"] -= seconds


def open_elsewhere(endpoint: str, token: str) -> BucketStorage:
    """The same in a process that inherited a variable which keeps the client offline."""
    import huggingface_hub.constants

    huggingface_hub.constants.HF_HUB_OFFLINE = False
    return open_storage(endpoint, token)


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[], Storage]]:
    with bucket_hub(folder) as hub:
        yield partial(open_elsewhere, hub.endpoint, hub.token)
