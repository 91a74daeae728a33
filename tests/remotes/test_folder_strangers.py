"""A shared folder of this user, or of a group of this user: nothing in it is read that somebody else can have made."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from cachekit.errors import UntrustedError
from cachekit.remotes.folder import FolderStorage
from tests.remotes.storage_calls import write

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "above" / "shared"
    folder.mkdir(parents=True)
    return folder


def why(folder):
    return FolderStorage(folder).stranger()


@ROOT_ONLY
def test_a_group_counts_if_this_user_is_in_it_and_owners_above_if_they_share_it(shared, monkeypatch):
    shared.chmod(0o2775)
    os.chown(shared, os.geteuid(), 65534)
    assert re.match(rf"the group \w+ can write to {shared}", why(shared))
    monkeypatch.setattr(os, "getgroups", lambda: [65534])
    assert why(shared) == "", "a group that this user is in"
    os.chown(shared, 65533, 65534)
    assert why(shared) == "", "another member's"
    os.chown(shared.parent, 65532, 65534)
    assert why(shared).startswith(f"{shared.parent} belongs to another user ("), "who can put another in its place"
    os.chown(shared.parent, 65533, 65534)
    assert why(shared) == "", "the member's who shares it"


@ROOT_ONLY
@pytest.mark.parametrize("what", ["folder", "document", "plain document"])
def test_no_document_is_read_that_somebody_else_can_have_made(shared, what):
    path = "cachekit/v1/records/a.json"
    mine = FolderStorage(shared)
    write(mine, path, b"mine", "")
    assert (mine.stranger(), mine.read(path, "", 100).data) == ("", b"mine")
    plain = shared / path
    generation = next(found for found in shared.rglob("*") if found.is_file() and found.name.endswith("1"))
    if what == "folder":
        plain.parent.chmod(0o777)
    elif what == "document":
        os.chown(generation, 65534, 65534)
    else:
        shutil.rmtree(generation.parent)
        plain.chmod(0o666)
    with pytest.raises(UntrustedError) as caught:
        mine.read(path, "", 100)
    assert caught.value.cause.startswith(("every user", str(shared / "cachekit")))
    unasked = FolderStorage(shared)
    assert unasked.read(path, "", 100).data == b"mine", "who trusts everybody there does not ask"
    assert unasked.stranger() == caught.value.cause, "who asks later is told of what was read before"
    assert unasked.read(path, "", 100).data == b"mine", "and judges it by its signature"
