"""A folder that nobody else can change: made, closed or refused, by what every step of its path allows to whom."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import struct
import subprocess
from inspect import unwrap
from pathlib import Path

import pytest

from cachekit import private
from cachekit.private import (
    NotPrivateError,
    new_folder,
    obstacle,
    open_judged,
    opened,
    private_folder,
    standing,
    write,
)
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ANOTHER, ONE, allow, as_user, known

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def refused(path):
    with pytest.raises(NotPrivateError) as caught:
        private_folder(path)
    assert standing(path).whose != "own"
    return caught.value.standing


def test_a_missing_folder_is_made_closed_and_those_above_it_open(tmp_path):
    before = os.umask(0)
    try:
        assert private_folder(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    finally:
        os.umask(before)
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "b" / "c")] == [0o755, 0o755, 0o700]


@pytest.mark.parametrize("before", [0o755, 0o777, 0o2775, 0o1777])
def test_a_folder_of_this_user_is_closed(tmp_path, before):
    folder = tmp_path / "cache_dirs"
    folder.mkdir()
    folder.chmod(before)
    assert mode(private_folder(folder)) == 0o700


@pytest.mark.parametrize(("wrong", "who"), [(0o777, "every user of this machine"), (0o775, "the group")])
def test_what_others_can_write_to_is_no_way_to_a_private_folder_until_the_hint_is_run(tmp_path, wrong, who):
    above = tmp_path / "above"
    above.mkdir()
    if os.geteuid() == 0:
        os.chown(above, 0, ANOTHER)
    elif wrong == 0o775:
        pytest.skip("only root can give a folder to a group that it is not in")
    above.chmod(wrong)
    found = refused(above / "cache_dirs")
    assert found.why.startswith(f"{who}")
    assert str(above) in found.why
    assert not (above / "cache_dirs").exists()
    assert obstacle(above / "cache_dirs") == found, "what is found without trying"
    subprocess.run(["sh", "-c", found.mend], check=True)
    assert obstacle(above / "cache_dirs") is None
    assert private_folder(above / "cache_dirs").is_dir()
    assert standing(above).whose == "own"


@ROOT_ONLY
def test_a_folder_of_another_user_is_refused_on_the_way_and_at_the_end(public):
    theirs = public / "theirs"
    theirs.mkdir()
    os.chown(theirs, ONE, ONE)
    assert "belongs to another user" in refused(theirs).why
    assert "belongs to another user" in refused(theirs / "below").why
    assert not [*theirs.iterdir()]
    assert "belongs to another user" in as_user(ANOTHER, lambda: standing(theirs).why)
    assert as_user(ONE, lambda: mode(private_folder(theirs / "below"))) == str(0o700)


@ROOT_ONLY
def test_root_may_own_what_lies_above_but_not_a_private_folder_itself(public):
    roots = public / "roots"
    roots.mkdir()
    assert "own" in as_user(ONE, lambda: standing(roots).whose)

    def closes():
        with pytest.raises(NotPrivateError, match="belongs to another user"):
            private_folder(roots)

    as_user(ONE, closes)


def test_a_folder_for_everybody_may_be_on_the_way_if_it_is_sticky(tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    tmp.chmod(0o1777)
    assert private_folder(tmp / "mine").is_dir()
    assert standing(tmp / "mine").whose == standing(tmp / "not yet").whose == "own"
    assert standing(tmp).why.startswith("every user")


def test_a_link_is_followed_where_nobody_else_can_replace_it(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert private_folder(tmp_path / "link" / "cache_dirs")
    assert mode(tmp_path / "real" / "cache_dirs") == 0o700
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="link"):
        private_folder(tmp_path / "round" / "cache_dirs")


def test_a_link_in_a_folder_for_everybody_is_refused(tmp_path):
    tmp, real = tmp_path / "tmp", tmp_path / "real"
    tmp.mkdir()
    tmp.chmod(0o1777)
    real.mkdir()
    (tmp / "link").symlink_to(real)
    assert "is a link" in refused(tmp / "link").why
    assert "is a link" in refused(tmp / "link" / "cache_dirs").why
    assert not [*real.iterdir()]


@ROOT_ONLY
def test_a_link_that_another_user_made_is_refused_wherever_it_lies(public):
    (public / "real").mkdir()
    link = public / "link"
    link.symlink_to("real")
    os.chown(link, ONE, ONE, follow_symlinks=False)
    assert "is a link" in refused(link / "cache_dirs").why


@ROOT_ONLY
def test_a_group_of_this_user_alone_is_nobody_else(public, monkeypatch):
    folder = public / "folder"
    folder.mkdir()
    folder.chmod(0o775)  # root's group, in which nobody else is
    assert standing(folder).whose == "own"
    os.chown(folder, 0, ANOTHER)
    assert standing(folder).whose == "others"
    monkeypatch.setattr(os, "getgroups", lambda: [ANOTHER])
    assert standing(folder).whose == "group", "this user's, but not this user's alone"
    os.chown(folder, ONE, ANOTHER)
    assert standing(folder).why.endswith(f"who is not in the group {ANOTHER}")
    known(monkeypatch, {ONE: [ANOTHER]})
    assert standing(folder).whose == "group", "another member made it"
    folder.chmod(0o755)
    assert standing(folder).whose == "others", "and lets nobody write to it"


@ROOT_ONLY
@pytest.mark.parametrize("gid", [0, ONE])
def test_a_group_that_is_another_users_first_one_is_somebody_else(public, monkeypatch, gid):
    """`useradd -g ann mallory` makes mallory no member of the group that the database names."""
    me = pwd.struct_passwd(("ann", "x", gid and ONE, gid, "", "/", ""))
    mallory = pwd.struct_passwd(("mallory", "x", ANOTHER, gid, "", "/", ""))
    monkeypatch.setattr(private, "_alone", unwrap(private._alone))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group(("ann", "x", number, [])))
    folder = public / "folder"
    folder.mkdir()
    os.chown(folder, me.pw_uid, gid)
    folder.chmod(0o775)

    def whose():
        return as_user(ONE, lambda: standing(folder).whose) if gid else standing(folder).whose

    monkeypatch.setattr(pwd, "getpwall", lambda: [me])
    assert whose() == "own"
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, mallory])
    assert whose() == "group"


@ROOT_ONLY
def test_an_access_list_can_let_others_write(public):
    folder = public / "folder"
    folder.mkdir()
    # user::rwx user:ONE:rwx group::r-x mask::rwx other::r-x
    entries = [(1, 7, -1), (2, 7, ONE), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_access", raw)
    except OSError as error:
        pytest.skip(f"this file system keeps no access lists: {error.strerror}")
    assert standing(folder).whose == "others"
    found = refused(folder / "cache_dirs")
    subprocess.run(["sh", "-c", found.mend], check=True)
    assert private_folder(folder / "cache_dirs").is_dir()


@ROOT_ONLY
def test_an_access_list_for_a_group_of_this_user_makes_nobody_a_member(public, monkeypatch):
    """Anybody may name any group in the access list of an own folder, or leave one that was made in a group's."""
    monkeypatch.setattr(os, "getgroups", lambda: [ANOTHER])
    eves = public / "eve" / "cache"
    eves.mkdir(parents=True)
    os.chown(eves.parent, ONE, ONE)
    os.chown(eves, ONE, ONE)
    allow(eves, ANOTHER)
    assert "belongs to another user" in standing(eves).why
    os.chown(eves, ONE, ANOTHER)
    assert "belongs to another user" in standing(eves).why
    known(monkeypatch, {ONE: []})
    assert standing(eves).whose == "others", "whom the machine knows, and who is not in the group"
    known(monkeypatch, {ONE: [ANOTHER]})
    assert standing(eves).whose == "group", "a member"
    os.chown(eves, ONE, ONE)
    assert standing(eves).whose == "others", "what a member lets a group do by a list says nothing of the member"


@ROOT_ONLY
def test_a_team_may_share_roots_folder_by_an_access_list(public, monkeypatch):
    monkeypatch.setattr(os, "getgroups", lambda: [ANOTHER])
    known(monkeypatch, {ONE: [ANOTHER]})
    team = public / "team" / "members"
    team.mkdir(parents=True)
    allow(team.parent, ANOTHER)
    os.chown(team, ONE, ONE)
    assert standing(team).whose == "group"
    assert standing(team).groups == {ANOTHER}
    os.chown(team, ONE + 1, ONE + 1)
    assert standing(team).whose == "others"


@ROOT_ONLY
def test_a_file_is_asked_of_itself_and_of_each_folder_on_the_way(tmp_path):
    file, link = tmp_path / "folder" / "file", tmp_path / "link"
    file.parent.mkdir()
    file.write_bytes(b"bytes")
    link.symlink_to("folder/file")

    def whose(path):
        handle, found = open_judged(path)
        with os.fdopen(handle, "rb") as source:
            assert source.read() == b"bytes"
        return found.whose

    assert whose(file) == whose(link) == "own"
    with pytest.raises(OSError, match="symbolic links"):
        open_judged(link, os.O_NOFOLLOW)
    for path, wrong, right in ((file, 0o666, 0o644), (file.parent, 0o777, 0o755)):
        path.chmod(wrong)
        assert whose(file) == whose(link) == "others"
        path.chmod(right)
        os.chown(path, ONE, ONE)
        assert whose(file) == whose(link) == "others"
        os.chown(path, 0, 0)
    os.chown(link, ONE, ONE, follow_symlinks=False)
    assert (whose(file), whose(link)) == ("own", "others")


def test_every_folder_below_is_looked_at(tmp_path):
    for number in range(300):
        (tmp_path / str(number)).mkdir()
    with os.scandir(tmp_path) as found:
        *_, last = found
    Path(last.path).chmod(0o777)
    assert standing(tmp_path, depth=1).whose == "others"


def test_folders_below_are_looked_at_as_far_as_asked(tmp_path):
    deep = tmp_path / "records" / "inductor" / "bert"
    deep.mkdir(parents=True)
    deep.chmod(0o777)
    assert standing(tmp_path / "records", depth=1).whose == "own"
    assert standing(tmp_path / "records", depth=2).whose == "others"


def test_the_hint_makes_a_private_folder():
    line = f'{new_folder("WHERE")}; printf %s "$WHERE"'
    made = Path(subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True).stdout)
    assert standing(made).whose == "own"
    made.rmdir()


def test_a_file_is_closed_and_nothing_is_followed_to_it(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    path.chmod(0o644)
    with open(path, "a", opener=opened) as log:
        log.write("after\n")
    assert (path.read_text(), mode(path)) == ("before\nafter\n", 0o600)
    write(path, b"anew")
    assert (path.read_bytes(), mode(path)) == (b"anew", 0o600)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link"):
        opened(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        opened(tmp_path / "pipe")
    if os.geteuid() == 0:
        os.chown(path, ONE, ONE)
        with pytest.raises(NotPrivateError):
            opened(path)
        assert path.read_bytes() == b"anew"
