"""A shared folder of this user, or of a group of this user: nothing in it is read that somebody else can have made."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from cachekit import whose
from cachekit.errors import RemoteError, UntrustedError
from cachekit.remotes.folder import FolderStorage
from tests.remotes.storage_calls import QUIET, upload_of, write
from tests.support.users import known

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "above" / "shared"
    folder.mkdir(parents=True)
    return folder


def why(folder):
    return FolderStorage(folder).stranger()


def test_a_folder_of_ones_own_is_trusted(shared):
    assert why(shared) == ""
    shared.chmod(0o2775)
    assert why(shared) == "", "shared with a group that this user is in"


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777, 0o702])
def test_a_folder_that_everybody_can_write_to_is_not(shared, mode):
    shared.chmod(mode)
    assert why(shared) == f"every user of this machine can write to {shared} (mode {mode:o})"


def test_what_counts_is_the_folder_behind_a_link(shared, tmp_path):
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared)
    assert "every user" in why(tmp_path / "link")
    shared.chmod(0o755)
    tmp_path.chmod(0o777)
    assert str(tmp_path) in why(tmp_path / "link"), "everybody can put another link there"


def test_a_folder_in_whose_place_everybody_can_put_another_is_not(shared):
    shared.parent.chmod(0o777)
    assert why(shared).startswith(f"every user of this machine can write to {shared.parent}")
    shared.parent.chmod(0o1777)
    assert why(shared) == "", "as /tmp is: nobody but its owner can move what lies there"


@ROOT_ONLY
def test_owners(shared):
    os.chown(shared, 65534, 65534)
    assert why(shared).startswith(f"{shared} belongs to another user (")
    shared.chmod(0o2775)
    assert why(shared).startswith(f"{shared} belongs to another user ("), "and to a group that this user is not in"


def test_a_folder_that_is_gone_could_not_be_asked(tmp_path):
    with pytest.raises(RemoteError):
        why(tmp_path / "nowhere")


@ROOT_ONLY
def test_a_group_counts_if_this_user_is_in_it_and_owners_above_if_they_share_it(shared, monkeypatch):
    shared.chmod(0o2775)
    os.chown(shared, os.geteuid(), 65534)
    assert re.match(rf"the group \w+ can write to {shared}", why(shared))
    group = whose._group(65534)
    monkeypatch.setattr(os, "getgroups", lambda: [65534])
    assert why(shared) == "", "a group that this user is in"
    os.chown(shared, 65533, 65534)
    assert why(shared) == f"{shared} belongs to another user (65533), who is not in the group {group}"
    known(monkeypatch, {65533: [65534]})
    assert why(shared) == "", "another member's"
    os.chown(shared.parent, 65532, 65534)
    assert why(shared).startswith(f"{shared.parent} belongs to another user ("), "who can put another in its place"
    os.chown(shared.parent, 65533, 65534)
    assert why(shared) == "", "the member's who shares it"


@ROOT_ONLY
def test_what_lies_in_a_groups_folder_is_a_members(shared, monkeypatch):
    monkeypatch.setattr(os, "getgroups", lambda: [65534])
    known(monkeypatch, {65533: [65534]})
    shared.chmod(0o2775)
    os.chown(shared, os.geteuid(), 65534)
    storage = FolderStorage(shared)
    assert storage.stranger() == ""
    for owner in (65533, 65532):
        (shared / "file").write_bytes(b"bytes")
        os.chown(shared / "file", owner, owner)
        if owner == 65532:
            with pytest.raises(UntrustedError, match="is not used"):
                b"".join(storage.chunks("file", ""))
        else:
            assert b"".join(storage.chunks("file", "")) == b"bytes"


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


@ROOT_ONLY
@pytest.mark.feature("T2")
def test_nothing_is_written_where_another_users_link_leads(shared, tmp_path, monkeypatch):
    """Records would lie where that user can read them, or in a folder that only this user may write to."""
    tmp_path.chmod(0o1777)
    link, path = tmp_path / "link", "cachekit/v1/records/a.json"
    link.symlink_to(shared.parent)
    write(FolderStorage(link / "shared"), path, b"mine", "")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    theirs = FolderStorage(link / "shared")
    calls = [
        lambda: write(theirs, path, b"more", theirs.read(path, "", 100).token),
        lambda: theirs.upload([upload_of("modules/a", b"x")], "", QUIET),
    ]
    for call in calls:
        with pytest.raises(UntrustedError, match="is not written to") as raised:
            call()
        assert raised.value.cause == f"{link} is a link that another user made or can replace"
        assert raised.value.hint.endswith(f": {shared}")
    (shared / path).unlink()  # the copy for people, which a reader makes anew where it may
    assert theirs.read(path, "", 100).data == b"mine", "what is read needs a signature"
    assert not (shared / path).exists()
    write(FolderStorage(shared), "cachekit/v1/records/b.json", b"more", "")
    tmp_path.chmod(0o777)
    os.chown(link, 0, 0, follow_symlinks=False)
    (tmp_path / "folder").mkdir()
    (inside := tmp_path / "folder" / "link").symlink_to(shared.parent)
    for mode, group in ((0o777, 0), (0o775, 65534)):
        tmp_path.chmod(mode)
        os.chown(tmp_path, 0, group)
        for own in (link, inside):
            with pytest.raises(UntrustedError):
                write(FolderStorage(own / "shared"), "cachekit/v1/records/c.json", b"more", "")
    monkeypatch.setattr(os, "getgroups", lambda: [65534])
    known(monkeypatch, {65533: [65534]})
    tmp_path.chmod(0o2775)
    os.chown(tmp_path, 0, 65534)
    os.chown(link, 65533, 65533, follow_symlinks=False)
    write(FolderStorage(link / "shared"), "cachekit/v1/records/c.json", b"more", "")
