"""`cachekit trust`: a key is made, signers are named and revoked, records are vouched for, a remote is looked at."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import stat
from pathlib import Path

import pytest
from msgspec import structs

from cachekit import config_files
from cachekit.trust.sshsig import public_key
from tests.support.cli_session import publish, publish_record, small_record, the_error
from tests.trust.trust_cases import key_file, line

pytest_plugins = ["tests.support.cli_session"]
MARKET = "local:rw,market:rw"
KEY = f"'{line(1)}'"


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    """The user's own settings, as no other test has them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "cachekit" / "config.toml"


@pytest.fixture
def market(work):
    """A remote of this project whose records need signatures, with nothing on it."""
    place = work / "market"
    place.mkdir(mode=0o777)
    (work / "cachekit.toml").write_text(f'cache = "{MARKET}"\n\n[remotes.market]\nurl = "{place}"\ntrust = "signed"\n')
    return place


@pytest.mark.feature("T1")
def test_a_key_is_made_once_for_this_user_alone(command, own_settings):
    assert command("trust", "init", "--dry-run", "--format", "json").json["made"]
    assert not own_settings.exists()
    made = command("trust", "init", "--format", "json").json
    key = Path(made["key"])
    assert (made["made"], stat.S_IMODE(key.stat().st_mode)) == (True, 0o600)
    assert public_key(made["public"]).fingerprint == made["fingerprint"]
    assert config_files.read_toml(own_settings) == {"trust": {"key": str(key)}}
    again = command("trust", "init", "--format", "json").json
    assert (again["made"], again["fingerprint"]) == (False, made["fingerprint"])
    assert command("trust", "ls", "--format", "json").json["key"] == made["fingerprint"]


@pytest.mark.feature("T1")
def test_what_the_key_before_signed_is_used_as_before(command, market, home, work, own_settings):
    record = publish(home)
    before = command("trust", "init", "--format", "json").json
    command("push")
    new = key_file(work, 2, "new")
    dry = command("trust", "init", "--key", new, "--dry-run", "--format", "json").json
    assert config_files.read_toml(own_settings) == {"trust": {"key": before["key"]}}
    said = command("trust", "init", "--key", new).out
    (signer,) = command("trust", "ls", "--format", "json").json["signers"]
    assert (signer["name"], signer["fingerprint"]) == (dry["former"], before["fingerprint"])
    assert f"that key is the signer {dry['former']} there" in " ".join(said.split())
    assert command("trust", "check", "--format", "quiet").out.split() == [record.key]
    command("trust", "revoke", dry["former"])
    assert "revoked" in command("trust", "check", code=5).out


@pytest.mark.feature("T1")
def test_the_key_before_is_that_of_the_users_own_settings(command, work, own_settings, monkeypatch):
    """Whatever a variable says, which holds in one place: what the user's own key signed is believed on."""
    mine, other, new = (key_file(work, seed, name) for seed, name in enumerate(("mine", "other", "new")))
    command("trust", "init", "--key", mine)
    monkeypatch.setenv("CACHEKIT_TRUST_KEY", str(other))
    refused = the_error(command("trust", "init", code=2))
    assert refused[1] == "CACHEKIT_TRUST_KEY already says which key signs"
    assert config_files.read_toml(own_settings) == {"trust": {"key": str(mine)}}
    told = " ".join(command("trust", "init", "--key", new).out.split())
    assert f"named the key {new}" in told
    assert "CACHEKIT_TRUST_KEY is set, and until you unset it, the key that it names signs" in told
    assert "what you publish" not in told
    table = config_files.read_toml(own_settings)["trust"]
    assert table["key"] == str(new)
    assert [public_key(one["key"]) for one in table["signers"].values()] == [public_key(line(0))]


@pytest.mark.feature("T1")
def test_a_project_that_names_the_key_before_does_not_keep_it_from_other_projects(command, work, own_settings):
    (work / "cachekit.toml").write_text(f'[trust.signers.me]\nkey = "{line(0)}"\n')
    for seed, name in enumerate(("mine", "new")):
        command("trust", "init", "--key", key_file(work, seed, name))
    (signer,) = config_files.read_toml(own_settings)["trust"]["signers"].values()
    assert public_key(signer["key"]) == public_key(line(0))


@pytest.mark.feature("T1")
@pytest.mark.parametrize("words", [("--key", "new"), ()])
def test_the_key_before_is_believed_where_its_public_half_is_left(command, work, own_settings, words):
    mine = key_file(work, 1, "mine")
    key_file(work, 2, "new")
    command("trust", "init", "--key", mine)
    mine.unlink()
    before = Path(f"{mine}.pub").read_text()
    former = command("trust", "init", *words, "--format", "json").json["former"]
    signer = config_files.read_toml(own_settings)["trust"]["signers"][former]
    assert public_key(signer["key"]) == public_key(before)


def test_a_key_before_that_cannot_be_read_is_told(command, work):
    mine = key_file(work, 1, "mine")
    command("trust", "init", "--key", mine)
    mine.unlink()
    Path(f"{mine}.pub").unlink()
    told = " ".join(command("trust", "init", "--key", key_file(work, 2, "new")).out.split())
    assert f"the key {mine} is gone: what it signed elsewhere is no longer used" in told


@pytest.mark.parametrize("said", ["$MINE/id", "~/id", "${MINE}/id"])
def test_the_settings_name_a_key_as_they_name_folders(command, work, own_settings, monkeypatch, said):
    """What signs is what `trust init` finds: it makes no other one."""
    monkeypatch.setenv("MINE", str(work))
    monkeypatch.setenv("HOME", str(work))
    key = key_file(work, 1)
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text(f'[trust]\nkey = "{said}"\n')
    made = command("trust", "init", "--format", "json").json
    assert (made["made"], made["key"], made["former"]) == (False, str(key), "")
    assert command("trust", "ls", "--format", "json").json["key"] == made["fingerprint"]


def test_a_key_that_others_may_read_is_not_taken(command, work, own_settings):
    """ssh-keygen takes none: the next push would fail."""
    key = key_file(work, 1)
    key.chmod(0o644)
    refused = the_error(command("trust", "init", "--key", key, code=2))
    assert refused[1:] == (
        f"the signing key {key} cannot sign",
        "others can read it (mode 644)",
        f"chmod 600 {key}",
    )
    assert not own_settings.exists()
    assert command("trust", "init", "--key", f"{key}.pub").out, "an agent may have it"


@pytest.mark.feature("T5")
def test_a_revoked_key_signs_nothing_more(command, market, home, work, own_settings):
    """Whoever signs again without a word with a key that leaked signs what nobody uses."""
    record = publish(home)
    key, fingerprint = key_file(work, 1), public_key(line(1)).fingerprint
    command("trust", "init", "--key", key)
    command("trust", "revoke", fingerprint)
    before = own_settings.read_text()
    for words in (("init", "--key", key), ("init",), ("sign", record.key[:8])):
        message, _, hint = the_error(command("trust", *words, code=2))[1:]
        assert (message, "trust init --key" in hint) == (f"the signing key {fingerprint} is revoked", True)
    assert own_settings.read_text() == before
    assert f"{fingerprint} (revoked: nothing is signed)" in " ".join(command("trust", "ls").out.split())
    assert "is revoked" in command("push", code=2).err
    assert not [path for path in market.rglob("*") if path.is_file()]
    new = key_file(work, 2, "new")
    assert not command("trust", "init", "--key", new, "--format", "json").json["former"], "it is revoked"
    command("push")
    assert command("trust", "check", "--format", "quiet").out.split() == [record.key]


@pytest.mark.feature("T5")
def test_signatures_by_a_revoked_key_go_to_nobody(command, market, home, work, own_settings):
    """What is sent counts as signed, and nobody would use it."""
    record = publish(home)
    command("trust", "init", "--key", key_file(work, 1))
    command("trust", "sign", record.key[:8])
    command("trust", "revoke", public_key(line(1)).fingerprint)
    own_settings.write_text(own_settings.read_text().replace("key =", "# key ="))
    (answer,) = command("push", "--format", "json").json["pushed"]
    assert (len(answer["records"]), answer["signatures"]) == (1, [])
    command("trust", "init", "--key", key_file(work, 2, "new"))
    (answer,) = command("push", "--format", "json").json["pushed"]
    assert len(answer["signatures"]) == 1


@pytest.mark.feature("T1")
def test_what_a_signer_vouches_for_is_used_by_those_who_name_the_signer(command, market, home):
    record = publish(home)
    command("push")
    asked = command("trust", "check", code=5)
    assert "not signed" in asked.out
    assert the_error(asked)[0] == "untrusted"
    public = command("trust", "init", "--format", "quiet").out.strip()
    dry = command("trust", "sign", record.key[:8], "--dry-run", "--format", "json").json
    assert [one["new"] for one in dry] == [True]
    (signed,) = command("trust", "sign", record.key[:8], "--format", "json").json
    assert signed["signers"] == [public_key(public).fingerprint]
    assert not command("trust", "sign", record.key[:8], "--format", "json").json[0]["new"]
    command("push")
    assert command("trust", "check", "--format", "quiet").out.split() == [record.key]


@pytest.mark.feature("T3")
def test_who_signed_a_record_of_the_store_is_shown(command, home):
    record = publish(home)
    assert "signed" not in command("store", "show", record.key[:8]).out
    command("trust", "init")
    command("trust", "sign", record.key[:8])
    shown = command("store", "show", record.key[:8]).out
    assert f"signed     by you as {getpass.getuser()}@" in shown
    (vouched,) = command("store", "show", record.key[:8], "--format", "json").json["vouched"]
    assert (vouched["signers"], vouched["builder"]["ci"]) == (["you"], None)


@pytest.mark.feature("T2")
def test_check_says_who_can_write_where_anybody_is_trusted(command, market, work, home):
    record = publish(home)
    command("push")
    settings = (work / "cachekit.toml").read_text()
    (work / "cachekit.toml").write_text(settings.replace('"signed"', '"all"'))
    market.chmod(0o777)
    (work / "link").symlink_to(market)
    for name in ("market", str(market), "", f"{market}/", f"file://{market}/../market", str(work / "link")):
        asked = command("trust", "check", *([name] if name else []))
        told = " ".join(asked.out.split())
        assert told.startswith(f"{market}: what is there is used, whoever made it; every user of this machine can")
        used = f"{record.key[:12]} {record.recipe} from a place whose every writer you trust"
        assert told.endswith(f"key recipe used, because it is {used}")
    market.chmod(0o755)
    told = " ".join(command("trust", "check", "market").out.split())
    assert "whoever made it; only you, or an organisation of yours, can write there key" in told
    assert "there is no remote named 'other'" in the_error(command("trust", "check", "other", code=2))[1]


@pytest.mark.feature("T2")
def test_check_looks_at_any_address(command, market, work, home):
    record = publish(home)
    command("push")
    (work / "cachekit.toml").unlink()
    market.chmod(0o755)
    assert command("trust", "check", str(market), "--format", "quiet").out.split() == [record.key]
    said = the_error(command("trust", "check", str(work / "nowhere"), code=7))
    assert said[0] == "remote"


@pytest.mark.feature("T4")
def test_a_strangers_name_is_shown_in_part(command, market, home):
    publish_record(home, structs.replace(small_record(), recipe="x" * 500))
    command("push")
    assert "x" * 81 not in command("trust", "check", code=5).out


def test_the_salt_is_listed(command, work):
    (work / "cachekit.toml").write_text('[trust]\nsalt = "2026-11"\n')
    assert "salt        '2026-11': what was made with another salt is a miss" in command("trust", "ls").out


@pytest.mark.feature("T1")
def test_a_push_says_what_nobody_uses_before_it_is_signed(command, market, home):
    publish(home)
    said = (
        f"warning: {market} asks for signatures, and unsigned records are not used (1 record): "
        "`cachekit trust init`, then `cachekit push`"
    )
    assert command("push", "--dry-run").err.splitlines() == [said]
    assert said in command("push").err.splitlines()
    assert said in command("push").err.splitlines(), "as long as the record there is not signed"
    command("trust", "init")
    assert "not signed" not in command("push").err
    assert command("trust", "check").code == 0


@pytest.mark.feature("T5")
def test_a_signer_is_named_and_revoked(command, work):
    (work / "alice.pub").write_text(f"{line(0)} alice@home\n")
    command("trust", "add", "alice", "alice.pub", "--valid-before", "2030-01-01")
    command("trust", "add", "bob", line(1))
    assert command("trust", "ls", "--format", "quiet").out.split() == ["alice", "bob"]
    listed = command("trust", "ls", "--format", "json").json
    assert [(one["name"], one["public"], one["valid_before"][:10]) for one in listed["signers"]] == [
        ("alice", line(0), "2030-01-01"),
        ("bob", line(1), ""),
    ]
    digest = "ab" * 32
    command("trust", "revoke", "alice", digest, "--before", "2026-01-01")
    command("trust", "revoke", public_key(line(1)).fingerprint)
    listed = command("trust", "ls", "--format", "json").json
    assert listed["revoked_keys"] == [public_key(line(0)).fingerprint, public_key(line(1)).fingerprint]
    assert (listed["revoked_records"], listed["revoked_before"][:10]) == ([digest], "2026-01-01")
    assert "revoked" in command("trust", "ls").out
    twice = command("trust", "add", "al", "alice.pub").out
    assert "calls this key alice, too" in " ".join(twice.split())
    before = command("trust", "add", "al", "alice.pub").out
    assert before.startswith("nothing to write: the settings say so already")
    again = command("trust", "add", "alice", "alice.pub", "--valid-before", "2030-01-01")
    assert "until before 2030-01-01; it is revoked in " in " ".join(again.out.split())


@pytest.mark.feature("T5")
def test_what_is_revoked_in_one_project_is_revoked_in_all(command, market, home, own_settings, monkeypatch):
    """Its team gets it by review; this user at once, wherever he works next."""
    work = market.parent
    publish(home)
    public = command("trust", "init", "--format", "quiet").out.strip()
    command("push")
    other = work.parent / "other"
    other.mkdir()
    (other / "cachekit.toml").write_text((work / "cachekit.toml").read_text())
    dry = command("trust", "revoke", public_key(public).fingerprint, "--dry-run", "--format", "json").json
    assert "[trust.revoked]" not in own_settings.read_text() + (work / "cachekit.toml").read_text()
    told = command("trust", "revoke", public_key(public).fingerprint).out
    assert [line.removeprefix("wrote ") for line in told.splitlines() if line.startswith("wrote")] == dry["files"]
    assert dry["files"] == [str(own_settings), str(work / "cachekit.toml")]
    assert all(public_key(public).fingerprint in Path(file).read_text() for file in dry["files"])
    assert command("trust", "revoke", public_key(public).fingerprint, "--format", "json").json["files"] == []
    monkeypatch.chdir(other)
    assert "revoked" in command("trust", "check", code=5).out
    monkeypatch.chdir(work.parent)  # which is no project: nothing is begun there
    assert command("trust", "revoke", "ab" * 32, "--format", "quiet").out.split() == [str(own_settings)]
    assert not (work.parent / "cachekit.toml").exists()


@pytest.mark.feature("T5")
def test_a_project_that_cannot_be_written_is_named_and_the_key_is_revoked(command, work, own_settings):
    """Its settings are in a file that cachekit does not edit."""
    (work / "pyproject.toml").write_text("[tool.cachekit]\nkeep_logs = '2d'\n")
    answer = command("trust", "revoke", "ab" * 32)
    assert "ab" * 32 in own_settings.read_text()
    assert f"[trust.revoked] with records = ['{'ab' * 32}']" in answer.err
    assert not re.search("keys =|before =", answer.err), "an empty date is none, and would stop every command"
    assert f"this project's settings are in {work / 'pyproject.toml'}" in answer.err
    assert (work / "pyproject.toml").read_text() == "[tool.cachekit]\nkeep_logs = '2d'\n"
    assert not (work / "cachekit.toml").exists()


@pytest.mark.feature("T5")
def test_an_earlier_date_brings_nothing_back(command, work, own_settings):
    (work / "cachekit.toml").write_text("[trust.revoked]\nbefore = 2026-11-01\n")
    for day in ("2026-10-01", "2026-01-01"):
        command("trust", "revoke", "--before", day)
        assert command("trust", "ls", "--format", "json").json["revoked_before"][:10] == "2026-11-01"
    assert '"2026-10-01"' in own_settings.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add alice nowhere.pub", "nowhere.pub is not a public key"),
        ("add alice ssh-ed25519", "ssh-ed25519 is not a public key"),
        ("revoke", "nothing to revoke was named"),
        ("revoke nobody", "there is no signer named 'nobody'"),
        ("revoke SHA256:short", "SHA256:short is not a fingerprint"),
        ("revoke --before tomorrow", "nothing was written to "),
        ("revoke --before 2999-01-01", "2999-01-01 has not come yet"),
        (
            f"add alice {KEY} --valid-after 2020-01-02 --valid-before 2020-01-01",
            "the key of alice would never be valid",
        ),
        (f"add alice {KEY} --valid-after 2027-01-01 --valid-before 20270101", "the key of alice would never be valid"),
        (f"add '' {KEY}", "nothing was written to "),
        (f"add ' ' {KEY}", "nothing was written to "),
        (f"add ' ' {KEY} --user", "nothing was written to "),
        ("init --key nowhere", "there is no key file nowhere"),
        ("check", "no remote is configured"),
    ],
)
def test_what_cannot_be_done_changes_nothing(command, work, own_settings, words, said):
    asked = command("trust", *shlex.split(words), code=2)
    assert said in the_error(asked)[1]
    assert not own_settings.exists()
    assert not (work / "cachekit.toml").exists()


@pytest.mark.parametrize("words", ["ls", "revoke bob"])
def test_a_signers_line_that_is_no_key_is_named(command, work, words):
    file = work / "cachekit.toml"
    file.write_text('[trust.signers.bob]\nkey = "ssh-ed25519 AAAA"\n')
    code, message, _, hint = the_error(command("trust", *words.split(), code=2))
    assert (code, message) == ("usage", "[trust.signers.bob]: its key cannot be used")
    assert "cachekit trust add bob" in hint


@pytest.mark.parametrize("name", ["alice", "you"])
def test_a_name_that_stands_for_another_key_is_not_written(command, work, name):
    """No run could read the settings then."""
    command("trust", "add", "alice", KEY.strip("'"), "--user")
    assert the_error(command("trust", "add", name, line(2), code=2))
    assert not (work / "cachekit.toml").exists()
    command("trust", "ls")


@pytest.mark.feature("T1")
@pytest.mark.parametrize(
    "given, cause",
    [
        ("pipe", "it is not a regular file"),
        ("/dev/zero", "it is not a regular file"),
        ("large.pub", "it has more than 65,536 bytes"),
        ("notes.md", "expected one line"),
    ],
)
def test_a_public_key_is_a_small_regular_file(command, work, given, cause):
    os.mkfifo(work / "pipe")
    (work / "large.pub").write_text(line(1) + " " * (64 << 10))
    (work / "small.pub").write_text(line(1))
    (work / "notes.md").write_text("# Nöten, not all in ASCII\n\nand lines\n", encoding="utf-8")
    message, said = the_error(command("trust", "add", "ann", given, code=2))[1:3]
    assert (message, cause in said) == (f"{given} is not a public key", True)
    command("trust", "add", "ann", "small.pub")
