"""A folder that nobody else can change: made, closed or refused, by what every step of its path allows to whom."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from cachekit.private import NotPrivateError, new_folder, obstacle, opened, private_folder, write
from cachekit.whose import standing
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ANOTHER, ONE, as_user

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


@pytest.mark.feature("T8")
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


@pytest.mark.feature("T8")
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


@pytest.mark.feature("T8")
def test_a_link_in_a_folder_for_everybody_is_refused(tmp_path):
    tmp, real = tmp_path / "tmp", tmp_path / "real"
    tmp.mkdir()
    tmp.chmod(0o1777)
    real.mkdir()
    (tmp / "link").symlink_to(real)
    assert "is a link" in refused(tmp / "link").why
    assert "is a link" in refused(tmp / "link" / "cache_dirs").why
    assert not [*real.iterdir()]


@pytest.mark.feature("T8")
@ROOT_ONLY
def test_a_link_that_another_user_made_is_refused_wherever_it_lies(public):
    (public / "real").mkdir()
    link = public / "link"
    link.symlink_to("real")
    os.chown(link, ONE, ONE, follow_symlinks=False)
    assert "is a link" in refused(link / "cache_dirs").why


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
