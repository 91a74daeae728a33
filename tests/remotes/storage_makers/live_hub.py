"""The real Hub, for people who have a token.

    CACHEKIT_LIVE_HUB=1 HF_TOKEN=… pytest tests/remotes/test_port.py -k live_hub

Makes a private repo under the token's own name for each run, and deletes it afterwards. Never run by default.
"""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from functools import partial

import pytest

from cachekit.remotes.hub import HubStorage, create

from .hub import online

WANTED = bool(os.environ.get("CACHEKIT_LIVE_HUB"))  # read before the tests' environment is cleaned
ENDPOINT, TOKEN = os.environ.get("HF_ENDPOINT") or "https://huggingface.co", os.environ.get("HF_TOKEN")


@contextmanager
def serve(folder):
    from huggingface_hub import HfApi

    if not TOKEN:
        pytest.skip("CACHEKIT_LIVE_HUB needs HF_TOKEN, of a token that may write")
    with online():
        api = HfApi(endpoint=ENDPOINT, token=TOKEN)
        name = f"{api.whoami()['name']}/cachekit-test-{uuid.uuid4().hex[:8]}"
        create(name, endpoint=ENDPOINT, token=TOKEN)
        try:
            yield partial(HubStorage, name, endpoint=ENDPOINT, token=TOKEN)
        finally:
            api.delete_repo(name)
