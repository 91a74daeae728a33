"""Attacks on which settings are found: files that others wrote, moved or can give their name, and caches."""

import os
from pathlib import Path

import pytest

from cachekit import config
from cachekit import files as opens
from cachekit.api import Cache
from cachekit.errors import UsageError
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ONE, allow, as_user
from tests.trust.trust_cases import line

pytestmark = pytest.mark.feature("T2")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ANYBODY = 'cache = ["local", "evil"]\n[remotes.evil]\nurl = "/tmp/evil"\ntrust = "all"\n'


@ROOT_ONLY
@pytest.mark.parametrize("name", ["cachekit.toml", "pyproject.toml"])
def test_another_users_settings_above_the_working_directory_are_not_read(tmp_path, name):
    tmp, work = tmp_path / "tmp", tmp_path / "tmp" / "work"
    work.mkdir(parents=True)
    tmp.chmod(0o1777)
    path = tmp / name
    path.write_text(ANYBODY if name == "cachekit.toml" else '[tool.cachekit]\ncache = ["local", "/tmp/evil"]\n')
    os.chown(path, ONE, ONE)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=work)
    assert raised.value.cause.startswith(f"{path} belongs to another user")


@ROOT_ONLY
def test_settings_in_a_folder_of_everybody_are_not_read_where_its_owner_is_another_user(tmp_path, monkeypatch):
    shared, path = tmp_path / "shared", tmp_path / "shared" / "cachekit.toml"
    (shared / "work").mkdir(parents=True)
    path.write_text(ANYBODY)
    for place in (shared, path):
        os.chown(place, ONE, ONE)
    monkeypatch.chdir(shared / "work")
    assert config.load().cache == ("local", "evil")
    shared.chmod(0o1777)
    with pytest.raises(UsageError, match="is not read"):
        config.load()


@pytest.mark.parametrize("name", ["cachekit.toml", "pyproject.toml"])
@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("works", ["there", "below"])
def test_settings_of_ones_own_are_not_read_where_others_can_give_a_file_their_name(
    tmp_path, monkeypatch, name, mode, works
):
    """A blob of a shared store, or the card of a remote, is this user's file with bytes that a stranger chose."""
    scratch, path = tmp_path / "scratch", tmp_path / "scratch" / name
    (scratch / "project").mkdir(parents=True)
    path.write_text(ANYBODY if name == "cachekit.toml" else '[tool.cachekit]\ncache = ["local", "evil"]\n')
    work = scratch if works == "there" else scratch / "project"
    assert config.load(cwd=work).cache == ("local", "evil")
    scratch.chmod(mode)
    with pytest.raises(UsageError, match="is not read: settings say whose code runs here") as raised:
        config.load(cwd=work)
    told = f"every user of this machine can write to {scratch} (mode {mode:o})"
    assert raised.value.cause == f"{told}, so another user could have put the file there"
    assert ("chmod" in raised.value.hint) == (mode == 0o777)
    (scratch / "project" / "cachekit.toml").write_text("")
    monkeypatch.chdir(scratch / "project")
    assert config.load(cwd=scratch / "project").cache == ("local:rw",), "what lies below is this user's own"


@ROOT_ONLY
@pytest.mark.parametrize("works", ["there", "below"])
def test_a_blob_that_another_user_renames_to_settings_is_not_read(public, works):
    blobs, scratch = public / "store" / "v1" / "blobs" / "1c", public / "scratch"
    (scratch / "project").mkdir(parents=True)
    blobs.mkdir(parents=True)
    for folder in blobs.parents[:3]:  # whatever the umask is
        folder.chmod(0o755)
    for folder, mode in ((blobs, 0o777), (scratch, 0o1777)):
        folder.chmod(mode)
    blob = blobs / ("1c" * 32)
    blob.write_text(ANYBODY)
    blob.chmod(0o444)
    as_user(ONE, lambda: blob.rename(scratch / "cachekit.toml"))
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=scratch if works == "there" else scratch / "project")


def test_where_an_access_list_lets_others_write_settings_are_not_read(tmp_path):
    path = tmp_path / "project" / "cachekit.toml"
    path.parent.mkdir()
    path.write_text(ANYBODY)
    allow(path.parent, os.getegid())
    assert config.load(cwd=path.parent).cache == ("local", "evil")
    allow(path.parent, ONE)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=path.parent)
    assert "the group" in raised.value.cause


@pytest.mark.parametrize("lies", ["in a folder of everybody", "behind a link there"])
def test_what_a_link_of_ones_own_leads_to_stays_what_it_is(tmp_path, lies):
    """The sticky bit keeps a file that is there; it keeps nobody from making a link."""
    everybodys, own = tmp_path / "everybodys", tmp_path / "own"
    for folder in (everybodys, own):
        folder.mkdir()
    lying, link = (everybodys, own) if lies == "in a folder of everybody" else (own, everybodys)
    (lying / "settings.toml").write_text(ANYBODY)
    (link / "cachekit.toml").symlink_to(lying / "settings.toml")
    everybodys.chmod(0o1777)
    if link == own:
        assert config.load(cwd=link).cache == ("local", "evil")
        everybodys.chmod(0o777)
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=link)


@pytest.mark.parametrize("way", ["link", "links", "link to a folder"])
def test_each_folder_that_a_chain_of_links_leads_through_is_asked(tmp_path, way):
    """Whoever can write to the one in the middle can have the chain lead to another file of this user's."""
    start, middle, own = (tmp_path / name for name in ("start", "middle", "own"))
    for folder in (start, middle, own):
        folder.mkdir()
    (own / "cachekit.toml").write_text(ANYBODY)
    if way == "link to a folder":
        (middle / "own").symlink_to(own)
        (start / "cachekit.toml").symlink_to("../middle/own/cachekit.toml")
    else:
        (middle / "b").symlink_to("../own/cachekit.toml")
        (start / "between").symlink_to(middle / "b")
        (start / "cachekit.toml").symlink_to(middle / "b" if way == "link" else "between")
    assert config.load(cwd=start).cache == ("local", "evil")
    middle.chmod(0o777)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=start)
    assert "middle" in raised.value.cause


@pytest.mark.parametrize("works", ["in the project", "below", "elsewhere", "beside it"])
def test_settings_are_read_below_a_folder_of_everybody_where_one_works_there_alone(tmp_path, monkeypatch, works):
    """As GitLab's checkout, of which only the project is closed (`chmod -R o-w .`): to work there is to choose it."""
    project, work = tmp_path / "builds" / "project", tmp_path / "elsewhere"
    beside = tmp_path / "builds" / "another"
    for folder in (project / "below", work, beside):
        folder.mkdir(parents=True)
    (project / "cachekit.toml").write_text(ANYBODY)
    (tmp_path / "builds").chmod(0o777)
    monkeypatch.chdir({"in the project": project, "below": project / "below", "elsewhere": work}.get(works, beside))
    if "project" in works or works == "below":
        assert config.load(cwd=Path.cwd()).cache == ("local", "evil")
        return
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=project)
    assert raised.value.hint.endswith(f"chmod go-w {tmp_path / 'builds'}")


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_no_settings_are_begun_where_they_would_not_be_read(tmp_path, monkeypatch, mode):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(mode)
    monkeypatch.chdir(tmp_path / "tmp")
    with pytest.raises(UsageError, match="is not read"):
        Cache(home=tmp_path / "home").trust_add("alice", line(1))
    assert not list((tmp_path / "tmp").iterdir())


@ROOT_ONLY
def test_settings_in_another_users_project_are_read(tmp_path, monkeypatch):
    """Whoever works there, as root in a container does, has chosen so."""
    path = tmp_path / "cachekit.toml"
    path.write_text(ANYBODY)
    for place in (tmp_path, path):
        os.chown(place, ONE, ONE)
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    assert config.load().cache == ("local", "evil")


@ROOT_ONLY
def test_a_link_of_another_user_is_not_followed_to_settings(tmp_path):
    """It leads to a file of this user's own, which says what the other user wants."""
    tmp, own = tmp_path / "tmp", tmp_path / "own.toml"
    (tmp / "work").mkdir(parents=True)
    tmp.chmod(0o1777)
    own.write_text(ANYBODY)
    link = tmp / "cachekit.toml"
    link.symlink_to(own)
    os.chown(link, ONE, ONE, follow_symlinks=False)
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=tmp / "work")


@ROOT_ONLY
def test_whose_the_file_is_that_is_read_counts_and_not_whose_the_name_is_by_then(tmp_path, monkeypatch):
    """Another user's file is there only while it is opened: before and after, a file of this user's has the name."""
    tmp, own, theirs = tmp_path / "tmp", tmp_path / "own.toml", tmp_path / "theirs.toml"
    (tmp / "work").mkdir(parents=True)
    tmp.chmod(0o777)
    path = tmp / "cachekit.toml"
    path.write_text("")
    theirs.write_text(ANYBODY)
    os.chown(theirs, ONE, ONE)
    opened = opens.opened

    def exchanged(name, **words):
        path.rename(own)
        theirs.rename(path)
        source = opened(name, **words)
        path.rename(theirs)
        own.rename(path)
        return source

    monkeypatch.setattr(opens, "opened", exchanged)
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=tmp / "work")


@pytest.mark.parametrize("name", ["cachekit.toml", "pyproject.toml"])
@pytest.mark.parametrize("mine", [True, False])
def test_a_file_in_a_cache_is_no_projects_settings(tmp_path, name, mine):
    """What others put into a remote, this user fetches with it, and may work there."""
    remote, below = tmp_path / "remote", tmp_path / "remote" / "work"
    below.mkdir(parents=True)
    (remote / name).write_text('[tool.cachekit]\ncache = ["local"]\n' if name == "pyproject.toml" else "")
    assert config.load(cwd=below).cache
    made = remote / "cachekit" / "v1" if mine else remote / "v1" / "records"
    made.mkdir(parents=True)
    remote.chmod(0o755 if mine else 0o777)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=below)
    assert (f"{remote} is a remote" if mine else "can write to") in raised.value.cause


@pytest.mark.parametrize("within", ["cachekit", "cachekit/v1/records/inductor-2.13.0", "other"])
def test_a_file_deeper_in_a_clone_of_a_cache_is_no_projects_settings(tmp_path, within):
    """Whoever looks at a record there stands below it."""
    clone = tmp_path / "clone"
    for folder in (clone / "cachekit" / "v1", clone / ".git", clone / within):
        folder.mkdir(parents=True, exist_ok=True)
    (clone / within / "cachekit.toml").write_text(ANYBODY)
    with pytest.raises(UsageError, match="is not read"):
        config.load(cwd=clone / within)
    (clone / ".git").rmdir()
    if within == "other":
        assert config.load(cwd=clone / within).cache == ("local", "evil"), "a folder beside a remote of one's own"


def test_a_project_may_have_its_own_store_or_remote_in_its_folder(tmp_path):
    path = tmp_path / "project" / "cachekit.toml"
    (path.parent / "v1" / "records").mkdir(parents=True)
    (path.parent / "cache" / "cachekit" / "v1").mkdir(parents=True)
    path.parent.chmod(0o755)
    path.write_text(ANYBODY)
    assert config.load(cwd=path.parent).cache == ("local", "evil")
