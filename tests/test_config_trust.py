"""The table [trust] of the settings: how it is read, put together from two files, and never shown with a key in it."""

from datetime import datetime, timezone

import pytest

from cachekit.config_trust import RevokedTable, SignerTable, TrustTable
from tests.config_cases import place, refused, toml  # noqa: F401 - fixtures

LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
PRINT = "SHA256:lbmsoA0yIEcEiVDRnMWuzm+nV+3ZEEpVIURqFoeSspg"
OTHER = "SHA256:" + "A" * 43
DIGEST = "0123456789abcdef" * 4
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"


def utc(*parts):
    return datetime(*parts, tzinfo=timezone.utc)


def test_the_whole_table(place):
    text = f"""
[trust]
key = "~/.ssh/id_ed25519"
salt = "two"
[trust.signers.alice]
key = "{LINE} alice@host"
valid_after = 2026-01-01
valid_before = "2027-01-01T12:00:00+02:00"
[trust.signers."bob.b"]
key = "{LINE}"
[trust.revoked]
keys = ["{PRINT}", "{PRINT}"]
records = ["{DIGEST}"]
before = 2026-11-01T00:00:00Z
"""
    path = place.write(place.user_file, text)
    loaded = place.load()
    assert loaded.trust == TrustTable(
        "~/.ssh/id_ed25519",
        "two",
        {
            "alice": SignerTable(f"{LINE} alice@host", utc(2026, 1, 1), utc(2027, 1, 1, 10)),
            "bob.b": SignerTable(LINE),
        },
        RevokedTable((PRINT,), (DIGEST,), utc(2026, 11, 1)),
    )
    (setting,) = (one for one in loaded.settings if one.name == "trust")
    assert setting.origin == str(path)
    assert setting.shown["signers"]["alice"]["valid_before"] == "2027-01-01T10:00:00Z"
    assert setting.shown["revoked"] == {"keys": [PRINT], "records": [DIGEST], "before": "2026-11-01T00:00:00Z"}
    assert place.load().trust == loaded.trust
    assert hash(place.load().trust) == hash(loaded.trust)


def test_nothing_is_trusted_or_revoked_by_default(place):
    assert place.load().trust == TrustTable()


def test_both_files_count_and_neither_brings_back_what_the_other_revokes(place):
    alice, bob = {"key": LINE}, {"key": LINE, "valid_before": "2026-12-01"}
    mine = {"key": "~/mine", "signers": {"alice": alice}, "revoked": {"keys": [PRINT], "before": "2026-11-01"}}
    ours = {
        "salt": "x",
        "signers": {"bob": bob},
        "revoked": {"keys": [OTHER], "records": [DIGEST], "before": "2026-10-01"},
    }
    user = place.write(place.user_file, toml(trust=mine))
    project = place.write(place.project / "cachekit.toml", toml(trust=ours))
    loaded = place.load()
    assert (loaded.trust.key, loaded.trust.salt, set(loaded.trust.signers)) == ("~/mine", "x", {"alice", "bob"})
    assert loaded.trust.revoked == RevokedTable((PRINT, OTHER), (DIGEST,), utc(2026, 11, 1))
    (setting,) = (one for one in loaded.settings if one.name == "trust")
    assert setting.origin == f"{project} and {user}"
    place.write(place.project / "cachekit.toml", toml(trust={**ours, "revoked": {}}))
    assert place.load().trust.revoked == RevokedTable((PRINT,), (), utc(2026, 11, 1))


def test_a_relative_key_starts_at_its_file(place):
    place.write(place.user_file, toml(trust={"key": "keys/mine.pub"}))
    assert place.load().trust.key == str(place.user_file.parent / "keys" / "mine.pub")


@pytest.mark.feature("T2")
@pytest.mark.parametrize("name", ["cachekit.toml", "pyproject.toml"])
@pytest.mark.parametrize("key", ["ci.pub", "~/.ssh/id_ed25519", "", 3])
def test_a_project_does_not_say_what_signs(place, name, key):
    """What the key signed would be believed, and whoever wrote the project may have its private half."""
    said = {"trust": {"key": key}} if name == "cachekit.toml" else {"tool.cachekit.trust": {"key": key}}
    path = place.write(place.project / name, toml(**said))
    for environ in ({}, {"CACHEKIT_TRUST_KEY": "/mine"}):
        error = refused(place, **environ)
        assert error.message == f"{path}: trust.key may not be set by a project"
        assert "cachekit trust init --key FILE" in error.hint


@pytest.mark.parametrize("said", ["/a/key", PRIVATE])
def test_a_variable_names_the_key_or_is_the_key(place, said):
    project = place.write(place.project / "cachekit.toml", toml(trust={"salt": "x"}))
    place.write(place.user_file, toml(trust={"key": "other"}))
    loaded = place.load(CACHEKIT_TRUST_KEY=said)
    assert (loaded.trust.key, loaded.trust.salt) == (said, "x")
    (setting,) = (one for one in loaded.settings if one.name == "trust")
    assert setting.origin == f"{project} and {place.user_file} and environment CACHEKIT_TRUST_KEY"
    project.unlink()
    place.user_file.unlink()
    assert place.load(CACHEKIT_TRUST_KEY=said).trust == TrustTable(said)


def test_a_key_in_a_variable_is_never_shown(place):
    loaded = place.load(CACHEKIT_TRUST_KEY=PRIVATE)
    (setting,) = (one for one in loaded.settings if one.name == "trust")
    for shown in (repr(loaded), repr(setting), repr(loaded.trust), str(setting.shown), f"{loaded.settings}"):
        assert "secret" not in shown
        assert "***" in shown
    place.write(place.project / "cachekit.toml", toml(trust={"sallt": ""}))
    assert "secret" not in " ".join(refused(place, CACHEKIT_TRUST_KEY=PRIVATE).lines())


@pytest.mark.parametrize("which", ["project", "user"])
def test_a_file_must_not_hold_the_key(place, which):
    path = place.user_file if which == "user" else place.project / "cachekit.toml"
    place.write(path, f'[trust]\nkey = """{PRIVATE}"""\n')
    error = refused(place)
    assert error.message == f"{path}: trust.key holds a private key"
    assert "secret" not in " ".join(error.lines())


def test_the_key_is_text(place):
    place.write(place.user_file, toml(trust={"key": 3}))
    assert "trust.key must be text" in refused(place).cause


def test_anything_else_is_refused(place):
    for both in [False, True]:
        for table, why in [
            ({"keey": "x"}, "[trust] has no keey; did you mean key?"),
            ({"zzz": "x"}, "there are key, salt, signers, revoked"),
            ({"salt": 3}, "trust.salt must be text"),
            ({"signers": []}, "expected [trust.signers.NAME] tables"),
            ({"signers": {"alice": LINE}}, "expected a [trust.signers.alice] table"),
            ({"signers": {"alice": {}}}, 'expected key = "ssh-ed25519 AAAA…" for the signer alice'),
            ({"signers": {"alice": {"key": PRIVATE}}}, "for the signer alice"),
            ({"signers": {'""': {"key": LINE}}}, "a signer is called ''"),
            ({"signers": {'" \\t"': {"key": LINE}}}, "a name has letters"),
            ({"signers": {'"ali\\u200bce"': {"key": LINE}}}, "none looks like another"),
            ({"signers": {"alice": {"key": LINE, "valid": "x"}}}, "has no valid; did you mean valid_after"),
            (
                {"signers": {"alice": {"key": LINE, "valid_after": "soon"}}},
                "trust.signers.alice.valid_after must be a date",
            ),
            ({"signers": {"alice": {"key": LINE, "valid_after": 3}}}, "must be a date"),
            ({"revoked": 3}, "expected a [trust.revoked] table"),
            ({"revoked": {"key": []}}, "[trust.revoked] has no key; did you mean keys?"),
            ({"revoked": {"keys": PRINT}}, "must be a list of fingerprints"),
            ({"revoked": {"keys": [LINE]}}, "must be a list of fingerprints"),
            ({"revoked": {"keys": [""]}}, "must be a list of fingerprints"),
            ({"revoked": {"records": [DIGEST[:12]]}}, "digests of 64 digits"),
            ({"revoked": {"before": "soon"}}, "trust.revoked.before must be a date"),
        ]:
            path = place.write(place.project / "cachekit.toml", toml(trust=table))
            if both:
                place.write(
                    place.user_file, toml(trust={"signers": {"x": {"key": LINE}}, "revoked": {"before": "2026-01-01"}})
                )
            error = refused(place)
            assert error.message == "setting trust is not usable"
            assert why in error.cause
            assert str(path) in error.cause
            assert str(place.user_file) not in error.cause
            assert "secret" not in error.cause
            assert "***" not in error.cause, "nothing of it looks like an address"


@pytest.mark.feature("T5")
@pytest.mark.parametrize("which", ["project", "user"])
def test_a_signer_of_a_file_counts_on_some_day(place, which):
    """All lines of a key must agree: one that never counts would switch the key off under its other names."""
    path = place.user_file if which == "user" else place.project / "cachekit.toml"
    for before in ("2026-01-01", "2027-01-01"):
        dates = {"valid_after": "2027-01-01", "valid_before": before}
        place.write(path, toml(trust={"signers": {"alice": {"key": LINE, **dates}}}))
        assert refused(place).message == f"{path}: the key of alice would never be valid"


@pytest.mark.feature("T5")
def test_two_files_may_leave_a_signer_no_day(place):
    """Then the key does not count, and every command still runs."""
    for path, dates in (
        (place.user_file, {"valid_before": "2026-01-01"}),
        (place.project / "cachekit.toml", {"valid_after": "2027-01-01"}),
    ):
        place.write(path, toml(trust={"signers": {"alice": {"key": LINE, **dates}}}))
    signer = place.load().trust.signers["alice"]
    assert (signer.valid_after.year, signer.valid_before.year) == (2027, 2026)


@pytest.mark.parametrize("text", ["trust = 3\n", "trust = 'all'\n", "trust = []\n"])
def test_it_must_be_a_table(place, text):
    place.write(place.project / "cachekit.toml", text)
    assert "expected a [trust] table" in refused(place).cause
    assert "expected a [trust] table" in refused(place, CACHEKIT_TRUST_KEY="/x").cause
