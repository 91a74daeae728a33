"""A secret in the address of a remote, or in what was meant as one, is redacted wherever it is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit import redact
from cachekit.compilers.neuron import root
from cachekit.remotes import address as addresses

pytest_plugins = ["tests.support.cli_session"]

S = "sEcReT/w+1"  # keys of S3 have slashes in them
PLAIN = S.replace("/", "")
TOKEN = "hf_" + "sEcReT" * 6

# Known schemes, mistyped ones, and some that nobody knows.
SECRET = [
    f"s3://team-bucket/x?secret={PLAIN}",
    f"s3://b/x?{PLAIN}",
    f"s3://AKIDNAME:{S}@team-bucket/x",
    f"s3:/name:{PLAIN}@bucket/x",
    f"s3:name:{PLAIN}@bucket/x",
    f"S3://team-bucket/x?X-Amz-Signature={PLAIN}",
    f"hf://ann:{PLAIN}@team/cache",
    f"hf://{PLAIN}@team/cache",
    f"hf://team/cache?token={PLAIN}",
    f"hf://buckets/team/cache?token={PLAIN}",
    f"hf://team/{TOKEN}",
    f"https://{PLAIN}@host/x",
    f"https://host/x?a=1&sig={PLAIN}",
    f"foo://user:{PLAIN}@host/",
    f"foo://host/#access_token={PLAIN}",
    f"user:{PLAIN}@host/x",
    f"bucket?X-Amz-Signature={PLAIN}",
    f"file:///mnt/x?secret={PLAIN}",
    TOKEN,
]
# What verbs and the library show is what `redact` gives: a key before the host, one in the query, and a bare token.
SOME = [f"s3://AKIDNAME:{S}@team-bucket/x", f"https://host/x?a=1&sig={PLAIN}", TOKEN]
FINE = [
    "hf://team/cache",
    "hf://team/cache@v2.1",
    "hf://datasets/team/cache@refs/pr/1",
    "hf://buckets/team/cache/below",
    "s3://team-bucket/some/prefix",
    "s3://team-bucket/c#",
    "file:///mnt/c#/cache",
    "file:///mnt/what?/cache",
    "/mnt/a@c/cache?no",
    "/mnt/efs/cache",
    "~/caches/a@b",
    "./here",
]


def bare(text: str) -> bool:
    """Nothing of a secret is in it."""
    return not any(part in text for part in ("sEcReT", "w+1"))


def test_what_may_be_a_secret_is_hidden_and_the_rest_is_not():
    for policy in ["", ":rw"]:
        for address in SECRET:
            shown = redact.address(address + policy)
            assert bare(shown)
            assert "***" in shown
            assert shown.endswith(policy or shown[-1])
            assert redact.has_secret(address)
            assert shown[:2] == address[:2] or TOKEN in address or address[0] == "b"


def test_an_address_without_one_is_shown_as_it_is():
    for address in FINE:
        assert redact.address(address) == address
        assert not redact.has_secret(address)
        assert [link.address for link in addresses.parse(["local:rw", f"{address}:rw"], {})][1:] == [address]


@given(st.lists(st.sampled_from(SECRET + FINE), min_size=1, max_size=4), st.sampled_from(["", "r", "w", "rw"]))
def test_several_with_commas_are_hidden_each(addresses, policy):
    """As a list of remotes is written."""
    words = [f"{address}:{policy}" if policy else address for address in addresses]
    assert redact.address(",".join(words)) == ",".join(map(redact.address, words))


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_whatever_it_is_hiding_twice_is_hiding_once(text):
    once = redact.address(text)
    assert redact.address(once) == once


@pytest.mark.parametrize("address", SOME)
def test_no_verb_repeats_it(command, monkeypatch, address):
    """Neither by itself nor through a table; neither on the screen, nor in a journal, nor in settings."""
    tables = f'cache = "local:rw,team:rw"\n[remotes.team]\nurl = {json.dumps(address)}\n'
    for by in ("flag", "variable", "table", "name of a table"):
        if by == "flag":
            words = ["--cache", f"local:rw,{address}:rw"]
        else:
            words = []
            monkeypatch.setenv("CACHEKIT_CACHE", f"local:rw,{address}:rw") if by == "variable" else (
                monkeypatch.delenv("CACHEKIT_CACHE", raising=False)
            )
        if by == "table":
            (command.work / "cachekit.toml").write_text(tables)
        if by == "name of a table":
            key = json.dumps(address)
            (command.work / "cachekit.toml").write_text(
                f'cache = ["local:rw", {json.dumps(address + ":rw")}]\n[remotes.{key}]\nurl = "/mnt/x"\n'
            )
        answer = command("pull", "tiny.yaml", *words, "--format", "json", "-vv", code=2)
        assert bare(answer.out + answer.err), by
        assert "must not contain a token" in answer.err
        if by != "flag":
            for form in ("human", "json", "quiet"):
                printed = command("config", "--format", form).out
                assert bare(printed), by
                assert "***" in printed
            findings = command("doctor", "--format", "json", code=1)
            assert bare(findings.out + findings.err), by
    for path in command.work.parent.rglob("*.jsonl"):
        assert bare(path.read_text()), path


def test_options_of_a_cache_are_shown_without_one():
    """A mirror behind a proxy may want a password in its address, which works, and is not refused."""
    table = {"url": "hf://team/cache", "endpoint": f"https://ann:{PLAIN}@mirror"}
    (_, link) = addresses.parse(["local:rw", "team:r"], {"team": table})
    assert link.options["endpoint"] == table["endpoint"]
    assert bare(repr(link))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CACHEKIT_REMOTES", f"https://{PLAIN}@host/x"),
        ("CACHEKIT_REMOTES", f"one=/mnt/x,foo://u:{PLAIN}@host"),
        ("CACHEKIT_CACHE", f"local:rw,,https://{PLAIN}@host/x"),
    ],
)
def test_a_setting_that_cannot_be_read_is_told_without_one(command, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    answer = command("config", "-vv", code=2)
    assert "is not usable" in answer.err
    assert "Traceback" in answer.err
    assert bare(answer.err)


def test_a_list_of_remotes_that_was_written_as_a_table_is_shown_without_one(command, monkeypatch):
    """What stands before the first `=` is a remote's name then, and a query ends there."""
    monkeypatch.setenv("CACHEKIT_REMOTES", f'{{"x": {{"url": "s3://bucket/x?sig={PLAIN}"}}}}')
    assert bare(command("config").out)


@pytest.mark.parametrize("verb", ["import", "export"])
@pytest.mark.parametrize("address", [f"s3://AKIDNAME:{S}@bucket/x", f"foo://host/x?sig={PLAIN}"])
def test_what_is_no_local_folder_is_told_without_one(command, verb, address):
    words = ["store", verb, address, *(["--all"] if verb == "export" else [])]
    assert bare(command(*words, code=2).err)


@pytest.mark.parametrize("verb", ["use", "create"])
def test_what_is_no_repo_is_told_without_one(command, verb):
    (command.work / "cachekit.toml").write_text('cache = "local:rw"\n')
    assert bare(command("hub", verb, f"https://{PLAIN}@huggingface.co/team/cache", code=2).err)
    (command.work / "cachekit.toml").unlink()
    assert bare(command("hub", verb, f"https://{PLAIN}@huggingface.co/team/cache", code=2).err)


@pytest.mark.parametrize("address", [f"s3://AKIDNAME:{S}@bucket/x", f"foo://host/x?sig={PLAIN}"])
def test_neurons_own_cache_elsewhere_is_told_without_one(command, machine, monkeypatch, address):
    found = root.resolve({"NEURON_COMPILE_CACHE_URL": address, "NEURON_CC_FLAGS": f"--cache_dir={address}&more"})
    assert (found.path, bare(repr(found))) == (None, True)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", address)
    assert bare(command("doctor", "--format", "json", code=1).out)


def test_a_value_looks_drawn_by_lot_in_json_too():
    """Its name leaves that to the value."""
    assert redact.document({"bot_token": "aB3dE5gH7jK9", "user_token": "<user>"}) == {
        "bot_token": "***",
        "user_token": "<user>",
    }
