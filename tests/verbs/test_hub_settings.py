"""`cachekit hub use` and `create` add a cache to a project's settings, and spoil none of them."""

import pytest
from msgspec import structs

from cachekit import config
from cachekit.errors import UsageError
from cachekit.remotes.port import Repo
from cachekit.verbs.hub import write_settings

PLACE = Repo("team/cache", "model", "https://huggingface.co/team/cache", private=True)


def settings(folder):
    found = config.load({}, environ={}, cwd=folder)
    return found.cache, found.remotes, found.wait_seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wait_seconds = 7\n",
        "wait_seconds = 7",
        "# cache = 1\nwait_seconds = 7\n",
        'wait_seconds = 7\r\n[remotes.other]\r\nurl = "/efs"\r\n',
        '[remotes]\nother = {url = "/efs"}\n',
    ],
)
def test_a_cache_is_added_and_the_rest_stays(tmp_path, text):
    path = tmp_path / "cachekit.toml"
    path.write_text(text, newline="")
    write_settings(path, PLACE, "rw")
    cache, storages, seconds = settings(tmp_path)
    assert cache == ("local:rw", "hub:rw")
    assert storages["hub"] == {"url": "hf://team/cache"}
    assert ("other" in storages) == ("other" in text)
    assert seconds == (7 if "7" in text else 3600)
    before = path.read_bytes()
    write_settings(path, PLACE, "rw")
    assert path.read_bytes() == before
    with pytest.raises(UsageError, match="names a remote already"):
        write_settings(path, PLACE, "r")


@pytest.mark.parametrize(
    "text",
    [
        "broken = [",
        '"cache" = "local:rw"\n',
        '[remotes]\nhub = {url = "/efs"}\n',
        'remotes.hub.url = "/efs"\n',
        'remotes = {other = {url = "/efs"}}\n',
    ],
)
def test_what_cannot_be_added_to_stays_as_it_is(tmp_path, text):
    path = tmp_path / "cachekit.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        write_settings(path, PLACE, "rw")
    assert caught.value.hint
    assert path.read_text() == text


@pytest.mark.parametrize(("name", "text"), [("pyproject.toml", "[tool.cachekit]\n"), ("../cachekit.toml", "")])
def test_a_projects_settings_are_not_hidden(tmp_path, name, text):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / name).write_text(f"{text}wait_seconds = 7\n")
    with pytest.raises(UsageError, match="settings are in"):
        write_settings(folder / "cachekit.toml", PLACE, "rw")
    assert settings(folder)[2] == 7


def test_a_name_that_no_repo_can_have_is_refused_before_the_file(tmp_path):
    with pytest.raises(UsageError, match="not a valid repo name"):
        write_settings(tmp_path / "cachekit.toml", structs.replace(PLACE, repo="team"), "rw")
    assert not (tmp_path / "cachekit.toml").exists()
