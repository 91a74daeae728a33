"""The list of remotes, where one is named by its address and a table says something of that place."""

from __future__ import annotations

import pytest

from cachekit import config
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.remotes.address import make, parse
from cachekit.remotes.remotes import remotes_of

pytestmark = pytest.mark.feature("T2")


def test_an_address_takes_what_the_table_of_that_place_says():
    for url, address in [
        ("hf://team/x", "hf://team/x"),
        ("hf://team/x", "hf://Team/x@main"),
        ("hf://models/team/x/", "hf://team/x"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("/mnt/cache", "/mnt/cache/"),
        ("/mnt/cache", "file:///mnt/other/../cache"),
    ]:
        (_, link) = parse(["local:rw", f"{address}:r"], {"team": {"url": url, "trust": "signed"}})
        assert (link.name, link.address, link.trust) == (address, url, "signed")


def test_another_place_takes_nothing_of_it():
    for address in ("hf://team/y", "hf://datasets/team/x", "hf://team/x@old", "s3://team/x", "/team/x"):
        (_, link) = parse(["local:rw", address], {"team": {"url": "hf://team/x", "trust": "all"}})
        assert (link.address, link.trust) == (address, "")


SPELLINGS = [
    (
        "hf://team/cache",
        ["hf://team/cache/", "hf://models/team/cache", "hf://team/cache@main", "hf://Team/Cache@main/"],
    ),
    ("hf://datasets/team/cache", ["hf://datasets/Team/cache@main/"]),
    ("hf://buckets/team/cache/P", ["hf://buckets/Team/cache/P/", "hf://buckets/team/CACHE//P"]),
    ("s3://bucket/prefix", ["s3://bucket/prefix/", "s3://bucket//prefix"]),
    ("gs://bucket", ["gs://bucket/", "gs://bucket//"]),
    ("az://container/p/q", ["az://container//p/q//"]),
    ("/mnt/cache", ["/mnt/cache/", "file:///mnt/cache", "/tmp/../mnt//cache", "file:///mnt/./cache"]),
    ("~/cache", ["~/cache/", "~/other/../cache"]),
]


def test_no_spelling_lifts_what_the_users_file_asks_of_a_place():
    for said in ["", "all", "owner"]:
        for url, other in [(url, other) for url, others in SPELLINGS for other in others]:
            for mine, theirs in ((url, other), (other, url)):
                user = {"x": {"url": mine, "trust": "signed"}}
                project = {"y": {"url": theirs, **({"trust": said} if said else {})}}
                assert parse(["local:rw", "y:r"], project, [user])[1].trust == "signed"
                assert parse(["local:rw", f"{theirs}:r"], project, [user])[1].trust == "signed"
                assert parse(["local:rw", f"{theirs}:r"], {}, [user])[1].trust == "signed"


def test_a_folder_behind_a_link_is_the_same_place(tmp_path):
    (tmp_path / "place" / "cache").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "place")
    straight, linked = str(tmp_path / "place" / "cache"), str(tmp_path / "link" / "cache")
    for mine, theirs in ((straight, linked), (linked, straight)):
        (_, link) = parse(
            ["local:rw", "y"], {"y": {"url": theirs, "trust": "all"}}, [{"x": {"url": mine, "trust": "signed"}}]
        )
        assert link.trust == "signed"
    (tmp_path / "cache").mkdir()
    above = str(tmp_path / "link" / ".." / "place" / "cache")
    assert (
        parse(["local:rw", "y"], {"y": {"url": above}}, [{"x": {"url": straight, "trust": "signed"}}])[1].trust
        == "signed"
    )
    (tmp_path / "far" / "cache").mkdir(parents=True)
    (tmp_path / "far" / "below").mkdir()
    (tmp_path / "away").symlink_to(tmp_path / "far" / "below")
    above = str(tmp_path / "away" / ".." / "cache")  # in `far`, for whoever opens it
    for mine, asked in ((tmp_path / "far" / "cache", "signed"), (tmp_path / "cache", "")):
        (_, link) = parse(["local:rw", "y"], {"y": {"url": above}}, [{"x": {"url": str(mine), "trust": "signed"}}])
        assert link.trust == asked
    other = {"x": {"url": str(tmp_path / "place"), "trust": "signed"}}
    assert parse(["local:rw", "y"], {"y": {"url": linked, "trust": "all"}}, [other])[1].trust == "all"


@pytest.mark.parametrize("state", ["@v1", "@0123456789abcdef0123456789abcdef01234567", "@refs/pr/1"])
def test_signatures_that_are_asked_of_a_repo_are_asked_of_all_its_states(state):
    user = {"x": {"url": "hf://team/cache", "trust": "signed"}}
    project = {"y": {"url": f"hf://Team/cache{state}", "trust": "all"}}
    assert parse(["local:rw", "y:r"], project, [user])[1].trust == "signed"
    assert parse(["local:rw", f"hf://team/cache{state}:r"], user)[1].trust == "signed"
    trusting = {"x": {"url": "hf://team/cache", "trust": "all"}}
    assert parse(["local:rw", f"hf://team/cache{state}:r"], trusting)[1].trust == ""


def test_paths_and_branches_are_told_apart_by_their_case():
    for url, other in (("hf://buckets/team/b/P", "hf://buckets/team/b/p"), ("hf://team/c@Dev", "hf://team/c@dev")):
        (_, link) = parse(["local:rw", f"{other}:r"], {"x": {"url": url, "trust": "all"}})
        assert (link.address, link.trust) == (other, "")


def test_of_the_users_word_and_the_projects_the_stricter_one_counts():
    for user, project, counts in [
        ("owner", "", "owner"),
        ("owner", "all", "owner"),
        ("owner", "signed", "signed"),
        ("all", "", "all"),
        ("all", "owner", "owner"),
        ("", "all", "all"),
        ("", "owner", "owner"),
    ]:

        def table(said):
            return {"url": "s3://bucket/p", **({"trust": said} if said else {})}

        (_, link) = parse(["local:rw", "y"], {"y": table(project)}, [{"x": table(user)}])
        assert link.trust == counts


def test_the_users_word_vouches_for_no_other_server():
    user = {"x": {"url": "s3://bucket", "endpoint": "https://minio.example", "trust": "owner"}}
    assert parse(["local:rw", "y"], {"y": {"url": "s3://bucket"}}, [user])[1].trust == ""
    assert parse(["local:rw", "y"], {"y": {"url": "s3://bucket", "trust": "all"}}, [user])[1].trust == "owner"


@pytest.mark.feature("T7")
def test_a_projects_endpoint_gets_no_token(monkeypatch):
    """The server's own word would be that the repo is private, and this user's."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    project = {"x": {"url": "hf://me/cache", "endpoint": "https://e.test/"}}
    with pytest.raises(UsageError, match=r"your token would be sent to https://e\.test") as told:
        parse(["local:rw", "x"], project, [{}, project])
    assert "export HF_ENDPOINT=https://e.test" in told.value.hint
    with pytest.raises(UsageError):
        parse(["local:rw", "hf://me/cache"], project, [{}, project])
    azure = {"x": {"url": "az://box/cache", "account": "me", "endpoint": "https://e.test"}}
    with pytest.raises(UsageError, match="your token would be sent to"):
        parse(["local:rw", "x"], azure, [{}, azure])
    own = {"mine": {"url": "hf://me/other", "endpoint": "https://e.test"}}
    assert parse(["local:rw", "x"], project, [own, project])
    assert parse(["local:rw", "x"], project, [project, project])
    assert parse(["local:rw", "x"], project, [project])
    monkeypatch.setenv("HF_ENDPOINT", "https://e.test")
    assert parse(["local:rw", "x"], project, [{}, project])


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


def test_a_list_that_cannot_be_is_refused():
    for listed, tables, told in [
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
        ("local:rw,hub:r", {"hub": "$HOME/cache"}, "[remotes.hub]: $HOME/cache is not the address of a remote"),
        ("local:rw,a:r,b:rw", {"a": "hf://team/cache", "b": "hf://team/cache"}, "cannot be used"),
    ]:
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
