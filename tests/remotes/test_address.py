"""The list of remotes, where one is named by its address and a table says something of that place."""

from __future__ import annotations

import pytest

from cachekit import config
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.remotes.address import make, parse
from cachekit.remotes.remotes import remotes_of

pytestmark = pytest.mark.feature("T2")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("hf://team/x", "hf://team/x"),
        ("hf://team/x", "hf://Team/x@main"),
        ("hf://models/team/x/", "hf://team/x"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("/mnt/cache", "/mnt/cache/"),
        ("/mnt/cache", "file:///mnt/other/../cache"),
    ],
)
def test_an_address_takes_what_the_table_of_that_place_says(url, address):
    (_, link) = parse(["local:rw", f"{address}:r"], {"team": {"url": url, "trust": "signed"}})
    assert (link.name, link.address, link.trust) == (address, url, "signed")


def test_another_place_takes_nothing_of_it():
    for address in ("hf://team/y", "hf://datasets/team/x", "hf://team/x@old", "s3://team/x", "/team/x"):
        (_, link) = parse(["local:rw", address], {"team": {"url": "hf://team/x", "trust": "all"}})
        assert (link.address, link.trust) == (address, "")


def test_of_several_tables_of_one_place_the_one_that_asks_most_counts():
    tables = {
        "any": {"url": "s3://b/p", "trust": "all", "region": "any"},
        "sure": {"url": "s3://b/p", "trust": "signed", "region": "sure"},
        "own": {"url": "s3://b/p", "region": "own"},
    }
    (_, link) = parse(["local:rw", "s3://b/p"], tables)
    assert (link.trust, dict(link.options)) == ("signed", {"region": "sure"})
    del tables["sure"]
    assert parse(["local:rw", "s3://b/p"], tables)[1].options == {"region": "own"}


def test_a_place_that_stands_in_the_list_twice_is_refused():
    with pytest.raises(UsageError, match="cannot be used"):
        parse(["local:rw", "team:r", "hf://team/x/:rw"], {"team": {"url": "hf://team/x", "endpoint": "https://e.test"}})


@pytest.mark.parametrize(
    ("listed", "tables", "told"),
    [
        ("", {}, "local"),
        ("hub:rw", {}, "local"),
        ("local:r", {}, "local"),
        ("local,local", {}, "local"),
        ("local:rw,nobody:r", {}, "'nobody'"),
        ("local:rw,hub:x", {"hub": "hf://team/cache"}, "'x' is not a permission"),
        ("local:rw,hf://team/cache:ro", {}, "'ro' is not a permission"),
        ("local:ro", {}, "'ro' is not a permission"),
        ("local:rw,https://huggingface.co/team/cache:r", {}, "https:// is not the address of a remote"),
        ("local:rw,hub:r", {"hub": "ftp://host/cache"}, "[remotes.hub]: ftp://host/cache is not the address of a"),
        ("local:rw,a:r,b:rw", {"a": "hf://team/cache", "b": "hf://team/cache"}, "cannot be used"),
    ],
)
def test_a_list_that_cannot_be_is_refused(listed, tables, told):
    with pytest.raises(UsageError) as raised:
        parse([entry for entry in listed.split(",") if entry], {name: {"url": url} for name, url in tables.items()})
    assert told in " ".join(raised.value.lines())


@pytest.mark.parametrize("place", ["hf://one-word", "s3://"])
def test_an_address_that_names_no_place_is_refused(place):
    with pytest.raises(UsageError):
        make(parse(["local:rw", f"{place}:r"], {})[1])


def test_the_command_line_does_not_take_a_signature_off(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "cachekit.toml").write_text(f'[remotes.team]\nurl = "{place}"\ntrust = "signed"\n')
    said = config.load({"cache": f"local:rw,{place}:r", "home": str(tmp_path / "home")}, environ={}, cwd=tmp_path)
    (remote,) = remotes_of(said, Journal(None, "")).readable
    assert "ask for signatures" in remote.demands()
