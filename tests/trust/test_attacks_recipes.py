"""Attacks by recipes and checkpoints: what a recipe sets in the environment runs, and a checkpoint is unpickled."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachekit import config
from cachekit.api import Cache, load_recipe, zoo_entry
from cachekit.errors import UsageError
from cachekit.recipe import variant
from cachekit.store import lock_file
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ANOTHER, ONE, known
from tests.trust.attack_cases import (
    tmp,  # noqa: F401 - a fixture
    written,
)

pytestmark = [
    pytest.mark.feature("T2"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
]


@pytest.mark.parametrize("name", ["mine", "bert.yaml", "./bert", "recipes/bert.yaml", "recipes/bert"])
def test_another_users_recipe_in_a_folder_of_everybody_is_not_read(tmp, name):
    written(tmp / name, ONE)
    with pytest.raises(UsageError, match="is not read: a recipe says what runs here") as raised:
        load_recipe(name)
    assert f"{tmp / Path(name).parts[0]} belongs to another user" in raised.value.cause
    with pytest.raises(UsageError, match="is not read"):
        zoo_entry(name)
    with pytest.raises(UsageError, match="is not read"):
        variant.read_matrix(written(tmp / "list.yaml", ONE, text="- bert\n"))


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("way", ["folder", "deeper", "link to a folder", "link to a file", "link from elsewhere"])
def test_another_users_folder_in_a_folder_of_everybody_gives_no_recipe_by_its_whole_path(tmp, tmp_path, mode, way):
    """A path that a script, a message or a page names."""
    tmp.chmod(mode)
    own = written(tmp_path / "own" / "x.yaml")
    path = {"deeper": tmp / "job" / "below" / "x.yaml", "link to a folder": tmp / "job" / "x.yaml"}.get(way)
    if way in {"folder", "deeper", "link from elsewhere"}:
        (tmp / "job").mkdir()
        os.chown(tmp / "job", ONE, ONE)
        path = written(path or tmp / "job" / "x.yaml", ONE)
    else:
        path = path or tmp / "x.yaml"
        link = path if way == "link to a file" else tmp / "job"
        link.symlink_to(own if way == "link to a file" else own.parent)
        if mode == 0o1777:  # else others can make it lead elsewhere
            assert load_recipe(path).name == "x"
        os.chown(link, ONE, ONE, follow_symlinks=False)
    if way == "link from elsewhere":
        (tmp_path / "jobs").symlink_to(tmp / "job")
        path = tmp_path / "jobs" / "x.yaml"
    with pytest.raises(UsageError, match="is not read: a recipe says what runs here") as raised:
        load_recipe(path)
    assert "another user" in raised.value.cause


@pytest.mark.parametrize(("owner", "mode"), [(ONE, 0o644), (0, 0o666)])
def test_a_lock_file_that_another_user_made_or_can_change_is_not_read(tmp, monkeypatch, owner, mode):
    """It is looked for in each folder above the project."""
    (tmp / "project").mkdir()
    monkeypatch.chdir(tmp / "project")
    written(tmp / lock_file.NAME, text=lock_file.text([]))
    tmp.chmod(0o755)
    assert lock_file.read(lock_file.nearest()) == []
    tmp.chmod(0o1777)
    written(tmp / lock_file.NAME, owner, mode, text=lock_file.text([]))
    for act in (lambda: lock_file.read(lock_file.nearest()), lambda: Cache(home=tmp / "home").pull_locked()):
        with pytest.raises(UsageError, match="is not read: a lock file says which artifacts run here"):
            act()


@pytest.mark.parametrize("works", ["there", "below"])
def test_a_lock_file_is_not_read_where_others_can_give_a_file_its_name_but_by_name(tmp, monkeypatch, works):
    (tmp / "project").mkdir()
    monkeypatch.chdir(tmp if works == "there" else tmp / "project")
    path = written(tmp / lock_file.NAME, text=lock_file.text([]))
    with pytest.raises(UsageError, match="is not read: a lock file says which artifacts run here"):
        lock_file.read(lock_file.nearest())
    assert lock_file.read(path.rename(tmp / "bert.lock")) == []


@pytest.mark.parametrize("way", ["folder", "link", "folder of a link"])
def test_no_recipe_is_read_by_a_way_that_others_can_exchange(tmp, tmp_path, way):
    own, open_ = written(tmp_path / "own" / "x.yaml"), tmp_path / "open"
    open_.mkdir()
    path = {"folder": open_ / "mine" / "x.yaml", "link": tmp_path / "link.yaml"}.get(way, tmp_path / "link" / "x.yaml")
    if way == "folder":
        written(path)
    else:
        (open_ / "between").symlink_to(own if way == "link" else own.parent)
        (path if way == "link" else path.parent).symlink_to(open_ / "between")
    assert load_recipe(path).name == "x"
    open_.chmod(0o777)
    with pytest.raises(UsageError, match="is not read: a recipe says what runs here") as raised:
        load_recipe(path)
    assert "another user" in raised.value.cause
    open_.chmod(0o1775)  # with the sticky bit others make links, and rename none of this user's
    os.chown(open_, 0, ONE)
    assert load_recipe(path).name == "x"
    planted = open_ / ("mine" if way == "folder" else "between")
    os.chown(planted, ONE, ONE, follow_symlinks=False)
    with pytest.raises(UsageError, match="is not read: a recipe says what runs here"):
        load_recipe(path)


def test_where_one_works_was_chosen_whoever_made_it(tmp, monkeypatch):
    """As in a container, whose checkout below `/tmp` is mounted from outside."""
    (tmp / "job").mkdir()
    path = written(tmp / "job" / "x.yaml", ONE)
    os.chown(tmp / "job", ONE, ONE)
    monkeypatch.chdir(tmp / "job")
    assert load_recipe("x.yaml").name == load_recipe(path).name == "x"


def test_a_name_of_the_zoo_is_no_file_of_somebody_else(tmp):
    written(tmp / "bert", ONE)
    assert load_recipe("bert").name == "bert"


def test_a_recipe_that_everybody_can_write_to_is_not_read_until_that_ends(tmp):
    """As GitLab's runner checks out in a container: it has a umask of 0000, and all is root's."""
    path = written(tmp / "mine.yaml", mode=0o666)
    with pytest.raises(UsageError, match="is not read") as raised:
        load_recipe("mine.yaml")
    assert raised.value.hint.endswith("chmod go-w mine.yaml")
    tmp.chmod(0o777)
    with pytest.raises(UsageError, match="is not read") as raised:
        load_recipe(path)
    assert raised.value.hint.endswith(f"chmod -R o-w {tmp}")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="is not read") as raised:  # another file may have got its name
        load_recipe(path)
    assert raised.value.hint.endswith(f"chmod go-w {tmp}")
    tmp.chmod(0o1777)  # there a file stays what it is
    assert load_recipe(path).name == load_recipe("mine.yaml").name == "x"


def test_recipes_of_those_with_whom_one_works_are_read(tmp_path, monkeypatch):
    """A checkout that a service made for root in a container, and one that a group shares (umask 002)."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    os.chown(checkout, ONE, ONE)
    monkeypatch.chdir(checkout)
    written(checkout / "recipes" / "x.yaml", ONE)
    assert load_recipe("recipes/x.yaml").name == load_recipe(checkout / "recipes" / "x.yaml").name == "x"
    team, member = 64321, ONE - 7
    known(monkeypatch, {ONE: [team], member: [team]})
    os.chown(checkout, ANOTHER, team)
    checkout.chmod(0o2775)
    own = written(checkout / "mine.yaml", member, 0o664)
    monkeypatch.setattr(os, "getgroups", lambda: [team])
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("mine.yaml")  # the folder's owner is no member
    os.chown(checkout, 0, team)
    assert load_recipe("mine.yaml").name == "x"
    os.chown(own, ANOTHER, team)
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("mine.yaml")


def test_a_file_of_another_user_that_is_mounted_where_only_this_one_writes_is_read(tmp_path, monkeypatch):
    """A file that `docker run -v` puts into a folder of root, and not what a link of this user's leads to elsewhere."""
    work = tmp_path / "work"
    work.mkdir(0o755)
    monkeypatch.chdir(work)
    path = written(work / "x.yaml", ONE)
    assert load_recipe("x.yaml").name == load_recipe(path).name == "x"
    elsewhere = written(tmp_path / "theirs" / "x.yaml", ONE)
    (work / "link.yaml").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("link.yaml")
    work.chmod(0o775)
    os.chown(work, 0, ONE)
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("x.yaml")  # others can put files there


def test_what_is_mounted_to_be_read_is_read_whatever_its_mode(tmp, monkeypatch):
    """As a ConfigMap of Kubernetes, whose folder is root's, of mode 0777, on a file system that nobody writes to."""
    tmp.chmod(0o777)
    written(tmp / "x.yaml")
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("x.yaml")
    found = os.statvfs(tmp)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=found.f_flag | os.ST_RDONLY))
    assert load_recipe("x.yaml").name == "x"


def test_settings_of_another_user_in_ones_own_folder_are_read_only_where_they_are_mounted(tmp_path, monkeypatch):
    """They decide trust, and whoever owns the file can add to it later. What is mounted is on another device."""
    path, state = written(tmp_path / "cachekit.toml", ONE), os.fstat
    path.write_text('cache = ["local", "/mnt/x"]')
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=tmp_path)

    def mounted(handle):
        found = state(handle)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if found.st_uid == ONE else found

    monkeypatch.setattr(os, "fstat", mounted)
    monkeypatch.setattr(os.path, "samestat", lambda one, other: one.st_ino == other.st_ino)
    assert config.load(cwd=tmp_path).cache == ("local", "/mnt/x")


def test_a_strangers_settings_above_where_one_works_are_told_and_do_not_count_beside_own_ones(tmp, monkeypatch):
    written(tmp / "cachekit.toml", ONE, text='cache = "local"\n')
    (tmp / "project").mkdir()
    monkeypatch.chdir(tmp / "project")
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load()
    assert "a cachekit.toml of your own, which may be empty" in raised.value.hint
    Path("cachekit.toml").touch()
    config.load()


def test_a_folder_that_root_made_in_a_runners_checkout_may_hold_the_runners_files(tmp_path, monkeypatch):
    """A job in a container works as root in a checkout of the uid 1001, and steps outside of it add files."""
    checkout = tmp_path / "checkout"
    (checkout / "made").mkdir(parents=True)
    os.chown(checkout, ONE, ONE)
    monkeypatch.chdir(checkout)
    written(checkout / "made" / "x.yaml", ONE)
    assert load_recipe("made/x.yaml").name == "x"
    written(checkout / "made" / "x.yaml", ANOTHER)
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("made/x.yaml")
