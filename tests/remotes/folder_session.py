"""Fixtures and helpers for tests of shared folders: used by `pytest_plugins = ["tests.remotes.folder_session"]`.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

import pytest

from cachekit.remotes.folder import FolderStorage


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def storage(shared):
    return FolderStorage(shared)


def read(storage, path):
    return storage.read(path, "", 1 << 20)


def listed(storage, folder=""):
    return sorted(entry.path for entry in storage.list(folder, ""))


def own(shared):
    """Files that cachekit keeps for itself."""
    return sorted(
        path for path in shared.rglob("*") if path.is_file() and ".cachekit-" in str(path.relative_to(shared))
    )
