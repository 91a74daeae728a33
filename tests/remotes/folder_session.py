"""Fixtures and helpers for tests of shared folders: used by `pytest_plugins = ["tests.remotes.folder_session"]`.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

import pytest

from cachekit.remotes.folder import FolderTier


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def tier(shared):
    return FolderTier(shared)


def read(tier, path):
    return tier.read(path, "", 1 << 20)


def listed(tier, folder=""):
    return sorted(entry.path for entry in tier.list(folder, ""))


def own(shared):
    """Files that cachekit keeps for itself."""
    return sorted(
        path for path in shared.rglob("*") if path.is_file() and ".cachekit-" in str(path.relative_to(shared))
    )
