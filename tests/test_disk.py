"""Paths as people name them."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from cachekit import disk
from cachekit.errors import UsageError


def test_a_tilde_is_a_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    assert disk.named("~/x") == Path("/home/ann/x")
    assert disk.named("~root") == Path(pwd.getpwnam("root").pw_dir)
    assert [disk.named(text) for text in ("x", "./~/x", "/y/~", "")] == [Path("x"), Path("./~/x"), Path("/y/~"), Path()]


@pytest.mark.parametrize("text", ["~no-such-user/x", "~no-such-user", "~\0/x", "~\ud800/x"])
def test_a_home_that_nobody_has_is_told_with_the_way_out(text):
    with pytest.raises(UsageError, match="is not a path") as raised:
        disk.named(text)
    assert "no home directory of a user" in raised.value.cause
    assert "./~" in raised.value.hint


@pytest.mark.parametrize("home, why", [(None, "HOME is not set"), ("relative", "HOME='relative'")])
def test_a_user_without_a_home_is_told_why(monkeypatch, home, why):
    def unknown(_):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(UsageError, match="~/x is not a path") as raised:
        disk.named("~/x")
    assert raised.value.cause.startswith(why)
    assert "HOME" in raised.value.hint
