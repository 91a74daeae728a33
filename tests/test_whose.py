"""Whose a folder or a file is, by what every step of its path allows to whom."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from inspect import unwrap
from pathlib import Path

import pytest

from cachekit import path_steps, private
from cachekit.whose import open_judged, open_to_write, standing
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ANOTHER, ONE, allow, as_user, known

MEMBER = 64001  # of no account
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")


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
@pytest.mark.parametrize(("mode", "mend"), [(0o777, "sudo chmod go-w"), (0o2775, "")])
def test_no_command_closes_a_folder_that_others_share_to_them(public, mode, mend):
    (team := public / "team").mkdir()
    os.chown(team, 0, ANOTHER)
    team.chmod(mode)
    assert as_user(ONE, lambda: standing(team).mend) == (mend and f"{mend} {team}")
    assert standing(team).mend == f"chmod go-w {team}", "its owner may"


@ROOT_ONLY
@pytest.mark.parametrize("gid", [0, ONE])
def test_a_group_that_is_another_users_first_one_is_somebody_else(public, monkeypatch, gid):
    """`useradd -g ann mallory` makes mallory no member of the group that the database names."""
    me = pwd.struct_passwd(("ann", "x", gid and ONE, gid, "", "/", ""))
    mallory = pwd.struct_passwd(("mallory", "x", ANOTHER, gid, "", "/", ""))
    monkeypatch.setattr(path_steps, "_alone", unwrap(path_steps._alone))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group(("ann", "x", number, [])))
    folder = public / "folder"
    folder.mkdir()
    os.chown(folder, me.pw_uid, gid)
    folder.chmod(0o775)

    def found():
        return as_user(ONE, lambda: standing(folder).whose) if gid else standing(folder).whose

    monkeypatch.setattr(pwd, "getpwall", lambda: [me])
    assert found() == "own"
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, mallory])
    assert found() == "group"


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


@pytest.mark.parametrize("targets", [["one"], ["two", "one"], ["./one/../one"]])
def test_a_link_that_leads_to_itself_is_followed_to_an_end(tmp_path, targets):
    for name, target in zip(["one", "two"], targets, strict=False):
        (tmp_path / name).symlink_to(target)
    folder = tmp_path / "one" / "folder"
    assert "more links" in standing(folder).why
    assert private.obstacle(folder)
    for opens in (open_judged, open_to_write, private.private_folder):
        with pytest.raises(OSError, match=r"symbolic links|can replace"):
            opens(folder)


@ROOT_ONLY
def test_where_a_user_namespace_has_no_number_for_root_only_what_holds_the_python_that_runs_is_roots(public):
    """All others look alike there, strangers and root: as in a container of a user's without fakeroot."""

    def unshared():
        me, libc = os.geteuid(), ctypes.CDLL(None)
        libc.prctl(4, 1)  # PR_SET_DUMPABLE: what was root's a moment ago may not write below /proc/self
        if libc.unshare(0x10000000):  # CLONE_NEWUSER, of linux/sched.h
            return "none"
        path_steps.nobody.cache_clear()
        path_steps._above_python.cache_clear()
        Path("/proc/self/uid_map").write_text(f"{me} {me} 1")
        return [standing(one).whose for one in (Path("/"), public, mine)]

    (mine := public / "mine").mkdir()
    os.chown(mine, MEMBER, MEMBER)
    said = as_user(MEMBER, unshared)
    if said == "none":
        pytest.skip("no user namespace can be made here")
    assert said == "['own', 'others', 'others']"
    assert as_user(MEMBER, lambda: [standing(one).whose for one in (public, mine)]) == "['own', 'own']"
