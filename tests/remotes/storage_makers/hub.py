"""Repos on a test Hub (`hubserver`), through the real client in this process."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import count

import huggingface_hub.constants
import pytest

from cachekit.remotes.hub import HubStorage
from cachekit.remotes.port import Limits
from tests.remotes.one_hub import one_hub

NAMES = count()
LIMITS = Limits(connect=10.0, read=60.0, commit=60.0)  # a loaded machine must not look like a Hub that is away


@contextmanager
def online():
    """The client reads its environment when it is imported, and the tests' environment says that it is offline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        _forget_sessions()
        yield
    _forget_sessions()


def _forget_sessions():
    from huggingface_hub.utils import _http

    getattr(_http, "reset_sessions", None) and _http.reset_sessions()
    getattr(_http, "close_session", None) and _http.close_session()


class Opener:
    """Opens a repo of a test Hub, also in a process that this object is sent to; that has no `hub` and no `repo`."""

    def __init__(self, hub, repo):
        self.hub, self.repo = hub, repo
        self._open = partial(_opened, repo.name, hub.endpoint, hub.token)

    def __call__(self):
        return self._open()

    def __reduce__(self):
        return partial, (self._open,)


def _opened(repo, endpoint, token):
    """It is open in a process, too, that inherited a variable which keeps the client offline."""
    huggingface_hub.constants.HF_HUB_OFFLINE = False
    return HubStorage(repo, endpoint=endpoint, token=token, limits=LIMITS)


@contextmanager
def serve(folder):
    """A Hub with one new private repo; every remote is of that one."""
    with online(), one_hub() as hub:
        yield Opener(hub, hub.repo(f"team/made-{next(NAMES)}"))  # no other fixture's: all share one Hub
