"""Attacks on what settings say of trust: what a project or a variable would lift, hide or widen."""

import base64
import os

import pytest

from cachekit import config
from cachekit.api import Cache
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.remotes.remotes import remotes_of
from cachekit.trust.sshsig import public_key
from cachekit.verbs.session import load_config
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ONE, allow
from tests.trust.trust_cases import key, line

pytestmark = pytest.mark.feature("T2")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ANYBODY = 'cache = ["local", "evil"]\n[remotes.evil]\nurl = "/tmp/evil"\ntrust = "all"\n'
GONE = key(1).fingerprint
_POINT = b"".join(len(one).to_bytes(4, "big") + one for one in (b"ecdsa-sha2-nistp256", b"nistp256", b"\4" * 65))
LOOSE = f"ecdsa-sha2-nistp256 {base64.b64encode(_POINT).decode()}"  # its bytes leave bits of the last digit over


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes the user's file and the project's; gives the settings that hold in the project's folder."""
    own, project = tmp_path / "config" / "cachekit" / "config.toml", tmp_path / "project" / "cachekit.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(user, said, **environ):
        for path, text in ((own, user), (project, said)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return config.load(environ=environ, cwd=project.parent)

    return write


@ROOT_ONLY
@pytest.mark.parametrize("change", ["owner", "mode"])
def test_the_users_own_file_is_checked_as_well(files, tmp_path, change):
    own = tmp_path / "config" / "cachekit" / "config.toml"
    assert files(ANYBODY, "").cache == ("local", "evil")
    if change == "mode":
        own.chmod(0o666)
    else:
        os.chown(own, ONE, ONE)
        os.chown(own.parent, ONE, ONE)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=tmp_path / "project")
    assert ("XDG_CONFIG_HOME" if change == "owner" else "chmod go-w") in raised.value.hint


@pytest.mark.parametrize("name", ["team", "another"])
@pytest.mark.parametrize("said", ["", '\ntrust = "all"', '\ntrust = "owner"'])
def test_a_project_does_not_lift_that_the_user_asks_for_signatures(files, tmp_path, name, said):
    user = f'[remotes.team]\nurl = "{tmp_path}"\ntrust = "signed"\n'
    for project in (f'[remotes.{name}]\nurl = "{tmp_path}"{said}\n', f'remotes = "{name}={tmp_path}"\n'):
        trust = remotes_of(files(user, f'cache = ["local", "{name}"]\n{project}'), Journal(None, "")).trust
        assert trust.mode(str(tmp_path)) == "signed"


@pytest.mark.parametrize("tables", ['[remotes.y]\nurl = "{}"\ntrust = "all"\n', '[remotes.team]\nurl = "/elsewhere"\n'])
@pytest.mark.parametrize("spelling", ["{}/", "file://{}", "{}/../place", "{}-link"])
def test_a_project_does_not_lift_it_by_another_spelling(files, tmp_path, tables, spelling):
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "place-link").symlink_to(place)
    spelt = spelling.format(place)
    entry = "y:r" if ".y]" in tables else f"{spelt}:r"
    project = f'cache = ["local:rw", "{entry}"]\n{tables.format(spelt)}'
    user = f'[remotes.team]\nurl = "{place}"\ntrust = "signed"\n'
    (remote,) = remotes_of(files(user, project), Journal(None, "")).readable
    assert remote.demands() == "the settings ask for signatures"


@pytest.mark.parametrize("table", ['[remotes.{}]\nurl = "{}"\n', '[remotes.{}]\nurl = "{}"\ntrust = "signed"\n'])
@pytest.mark.parametrize("name", ["team", "another"])
def test_a_variable_does_not_lift_what_a_file_asks(files, tmp_path, name, table):
    """It replaces the tables of both files, and says nothing of trust."""
    signed = f'[remotes.team]\nurl = "{tmp_path}"\ntrust = "signed"\n'
    other = table.format("team", tmp_path)
    for user, project in ((other, signed), (signed, other)):
        loaded = files(user, project, CACHEKIT_REMOTES=f"{name}={tmp_path}", CACHEKIT_CACHE=f"local,{name}")
        assert remotes_of(loaded, Journal(None, "")).trust.mode(str(tmp_path)) == "signed"


@pytest.mark.parametrize("said", ['salt = ""', 'salt = "theirs"', ""])
def test_a_project_does_not_lift_the_users_salt(files, said):
    """What was made before it would be used again."""
    salt = files('trust.salt = "mine"', f"[trust]\n{said}").trust.salt
    assert salt == ("mine and theirs" if "theirs" in said else "mine")
    assert files('trust.salt = "mine"', '[trust]\nsalt = "mine"').trust.salt == "mine", "a team's hosts share a key"


@pytest.mark.parametrize("name", ["you", "You", "you-AbC12345", '"you too"'])
def test_a_projects_signer_is_not_you(files, name):
    project = f'[trust.signers.{name}]\nkey = "{line(1)}"\n'
    with pytest.raises(UsageError, match="a project's signer cannot be called"):
        files("", project)
    assert list(files(project, "").trust.signers) == [name.strip('"')], "the user's own file may"


@pytest.mark.parametrize(
    "name", ["\u0430lice", "jose\u0301", "\uff41lice", "al\xadice", "alice\u3164", " al", "alice ", "a  b", "a\n", ""]
)
def test_a_signers_name_looks_like_no_other_ones(files, name):
    """Cyrillic, an accent of its own, full width, what is not seen: whoever reads `alice` believes to know whom."""
    told = "".join(rf"\U{ord(letter):08x}" for letter in name)
    table = f'[trust.signers."{told}"]\nkey = "{line(1)}"\n'
    for user, project in ((table, ""), ("", table)):
        with pytest.raises(UsageError) as raised:
            files(user, project)
        assert "a signer is called" in raised.value.cause
        assert raised.value.cause.isascii()


def test_two_signers_of_one_name_can_be_looked_at_and_revoked(files, tmp_path, monkeypatch):
    both = [f'[trust.signers.{name}]\nkey = "{line(seed)}"\n' for name, seed in (("alice", 1), ("Alice", 2))]
    with pytest.raises(UsageError):
        files(*both)
    monkeypatch.chdir(tmp_path / "project")
    told = []
    cache = Cache(home=tmp_path / "home", progress=told.append)
    assert [one.name for one in cache.trust_list().signers] == ["alice", "Alice of the project"]
    assert "is the name of two signers" in told[0]["message"]
    assert cache.settings()
    prints = [key(seed).fingerprint for seed in (1, 2)]
    assert cache.trust_revoke("Alice of the project", dry_run=True).said == (f"key {prints[1]} (Alice of the project)",)
    done = cache.trust_revoke("ALICE")
    assert done.said == tuple(
        f"key {one} ({name})" for one, name in zip(prints, ("alice", "Alice of the project"), strict=True)
    )
    assert "is the name of two signers" in done.left
    assert cache.trust_list().revoked_keys == tuple(prints)
    with pytest.raises(UsageError, match="is the name of two signers") as raised, cache.session():
        pass
    assert "[trust.signers.Alice] in either file" in raised.value.hint


def test_to_revoke_a_key_that_nobody_has_says_so(files, tmp_path, monkeypatch):
    files(f'[trust.signers.alice]\nkey = "{line(1)}"\n', "")
    monkeypatch.chdir(tmp_path / "project")
    cache = Cache(home=tmp_path / "home")
    known, other = (key(seed).fingerprint for seed in (1, 2))
    done = cache.trust_revoke(known, other, dry_run=True)
    assert done.said == (f"key {known} (alice)", f"key {other} (no signer in your settings has it)")


@pytest.mark.parametrize("name", ["alice", "Alice"])
def test_a_name_is_one_signers(files, name):
    """Else a project's signer is told as the user's, and to revoke that name revokes one of two keys."""
    user = f'[trust.signers.alice]\nkey = "{line(1)}"\n'
    project = f'[trust.signers.{name}]\nkey = "{line(2)}"\n'
    with pytest.raises(UsageError, match=r"(?i)alice is the name of two signers") as raised:
        files(user, project)
    assert line(1) in raised.value.cause
    assert line(2) in raised.value.cause
    assert list(files(user, user).trust.signers) == ["alice"]


@pytest.mark.feature("T5")
@pytest.mark.parametrize("name", ["alice", "another"])
def test_another_spelling_of_its_base64_is_the_same_key(files, name):
    """The last digit has bits that nothing says; both spellings have one fingerprint."""
    kind, digits = LOOSE.split()
    other = f"{kind} {digits[:-2]}{chr(ord(digits[-2]) + 1)}="
    assert public_key(other) == public_key(LOOSE)
    user = f'[trust.signers.alice]\nkey = "{LOOSE}"\nvalid_before = "2026-05-01"\n'
    signer = files(user, f'[trust.signers.{name}]\nkey = "{other}"\n').trust.signers[name]
    assert signer.valid_before.month == 5


@pytest.mark.parametrize("user", ['remotes = "x"\n', "remotes.x.trust = 1\n", '[remotes.x]\ntrust = "signed"\n'])
def test_remotes_of_the_users_that_cannot_be_read_are_not_hidden_by_the_projects(files, user):
    with pytest.raises(UsageError, match="remotes"):
        files(user, '[remotes.y]\nurl = "/place"\n')


def test_a_word_of_the_users_that_is_none_is_not_hidden_by_the_projects(files):
    user = '[remotes.x]\nurl = "/place"\ntrust = "sgined"\n'
    project = 'cache = ["local", "y"]\n[remotes.y]\nurl = "/place"\ntrust = "all"\n'
    with pytest.raises(UsageError, match="sgined"):
        remotes_of(files(user, project), Journal(None, ""))


@pytest.mark.feature("T5")
@pytest.mark.parametrize("name", ["alice", "another"])
def test_a_project_does_not_lengthen_how_long_the_user_believes_a_key(files, name):
    user = f'[trust.signers.alice]\nkey = "{line(1)}"\nvalid_after = "2026-02-01"\nvalid_before = "2026-05-01"\n'
    for said, after, before in (("", 2, 5), ('valid_after = "2026-01-01"\nvalid_before = "2027-01-01"', 2, 5),
                                ('valid_after = "2026-03-01"\nvalid_before = "2026-04-01"', 3, 4)):  # fmt: skip
        signer = files(user, f'[trust.signers.{name}]\nkey = "{line(1)} a comment"\n{said}').trust.signers[name]
        assert (signer.valid_after.month, signer.valid_before.month) == (after, before)
        assert signer.valid_before.year == 2026


@ROOT_ONLY
@pytest.mark.parametrize("way", ["everybody", "a group", "a list"])
def test_settings_that_others_can_write_to_are_not_read(files, tmp_path, way):
    path = tmp_path / "project" / "cachekit.toml"
    assert files("", ANYBODY).cache == ("local", "evil")
    path.chmod(0o666 if way == "everybody" else 0o664)
    assert (way == "everybody") or config.load(cwd=path.parent).cache == ("local", "evil"), "root's own group"
    if way == "a group":
        os.chown(path, 0, ONE)
    if way == "a list":
        allow(path, ONE)
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=path.parent)
    assert "can write to" in raised.value.cause
    assert raised.value.hint.endswith(f"chmod go-w {path}")


@ROOT_ONLY
@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_settings_in_a_strangers_folder_are_not_read_who_can_move_files_there(public, tmp_path, mode):
    """No command is named: none keeps the folder's owner from it."""
    (theirs := public / "theirs").mkdir()
    (theirs / "ours").mkdir()
    (theirs / "ours/cachekit.toml").write_text("")
    theirs.chmod(mode)
    os.chown(theirs, ONE, ONE)
    (tmp_path / "cachekit.toml").symlink_to(theirs / "ours/cachekit.toml")
    with pytest.raises(UsageError, match="is not read") as raised:
        config.load(cwd=tmp_path)
    assert raised.value.hint == "keep the file in a folder of your own"


@pytest.mark.feature("T5")
@pytest.mark.parametrize(
    "user",
    [
        f'trust.revoked.keys = "{GONE}"',
        'trust.revoked.before = "last week"',
        'trust.revoked = "all"',
        'trust = "none"',
        f'trust.revoked.key = ["{GONE}"]',
        'trust.signers.alice = "ssh-ed25519 AAAA"',
    ],
)
def test_a_line_of_the_users_that_cannot_be_read_is_not_hidden_by_the_projects(files, user):
    project = f'[trust.revoked]\nkeys = []\nbefore = "2020-01-01"\n[trust.signers.alice]\nkey = "{line(0)}"\n'
    with pytest.raises(UsageError, match="trust"):
        files(user, project)


@ROOT_ONLY
@pytest.mark.parametrize("what", ["folder", "link"])
def test_beside_what_another_user_put_in_the_place_of_settings_an_own_file_counts(public, what):
    (public / "work").mkdir()
    path = public / "cachekit.toml"
    path.mkdir() if what == "folder" else path.symlink_to("/away")
    os.chown(path, ONE, ONE, follow_symlinks=False)
    with pytest.raises(UsageError) as raised:
        config.load(cwd=public / "work")
    assert "a cachekit.toml of your own, which may be empty" in raised.value.hint
    (public / "work/cachekit.toml").write_text("")
    config.load(cwd=public / "work")


def test_a_signers_key_that_is_none_is_told_where_settings_are_shown(files, tmp_path, monkeypatch):
    files("", '[trust.signers.ann]\nkey = "ssh-ed25519 AAAA"\n')
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(UsageError, match=r"trust\.signers\.ann\]: its key cannot be used"):
        Cache().settings()


@pytest.mark.feature("T5")
@pytest.mark.parametrize("project", ["[trust]\nrevoked = {}", "[trust.revoked]\nkeys = []", '[trust]\nsalt = ""'])
def test_a_project_brings_nothing_back_that_the_user_revoked(files, project):
    assert files(f'trust.revoked.keys = ["{GONE}"]', project).trust.revoked.keys == (GONE,)


def test_who_is_trusted_is_said_of_an_address_and_not_of_a_name(files, tmp_path):
    """A project that calls another place as the user calls a trusted one gets nothing from that."""
    for place in ("mine", "evil"):
        (tmp_path / place).mkdir()
    user = f'[remotes.team]\nurl = "{tmp_path / "mine"}"\ntrust = "all"\n'
    project = f'cache = ["local", "team"]\n[remotes.team]\nurl = "{tmp_path / "evil"}"\n'
    trust = remotes_of(files(user, project), Journal(None, "")).trust
    assert trust.mode(str(tmp_path / "evil")) == "owner"


@pytest.mark.parametrize(
    "environ",
    [
        {"CACHEKIT_TRUST_ALL": "1"},
        {"CACHEKIT_TRUST_ONLY": "owner"},
        {"CACHEKIT_TRUST_SIGNERS": line(1)},
        {"CACHEKIT_TRUST_REVOKED": ""},
        {"CACHEKIT_REMOTES_TEAM_TRUST": "all"},
        {"CACHEKIT_TRUST": "all"},
    ],
)
def test_no_variable_widens_what_is_trusted(files, tmp_path, environ):
    team = f'cache = ["local", "team"]\n[remotes.team]\nurl = "{tmp_path}"\ntrust = "signed"\n'
    try:
        found = files("", team, **environ)
    except UsageError:
        return
    trust = remotes_of(found, Journal(None, "")).trust
    assert (trust.mode(str(tmp_path)), trust.table.signers, found.trust_all) == ("signed", {}, False)


@pytest.mark.parametrize("entry", ["{}?trust=all", "{}#trust=all", "{};trust=all", "{}:rw:all"])
def test_no_address_says_that_its_writers_are_trusted(tmp_path, monkeypatch, entry):
    monkeypatch.setenv("CACHEKIT_CACHE", f"local,{entry.format(tmp_path)}")
    monkeypatch.chdir(tmp_path)
    try:
        trust = remotes_of(load_config(), Journal(None, "")).trust
    except UsageError:
        return
    assert set(trust.said.values()) <= {"owner"}


def test_a_command_narrows_and_does_not_widen_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ({"trust_only": "all"}, {"trust_only": "ALL"}, {"trust_only": "signed", "trust_all": True}):
        with pytest.raises(UsageError):
            load_config(**words)
