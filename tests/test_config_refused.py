"""Settings that cannot be: each is refused with its origin."""

import json
import os

import pytest

from cachekit import config
from cachekit.errors import UsageError
from tests.config_cases import VALUES, place, refused, toml  # noqa: F401 - fixtures


def test_an_unknown_setting_gets_the_nearest(place):
    for path in (place.project / "cachekit.toml", place.user_file):
        place.write(path, toml(hme="/x"))
        error = refused(place)
        assert str(path) in error.message
        assert "'hme'" in error.message
        assert all(name in error.cause for name in VALUES)
        assert error.hint == "did you mean 'home'?"
        path.unlink()


def test_the_stores_own_name_is_no_remotes(place):
    place.write(place.user_file, b'[remotes.local]\nurl = "/x"\n')
    error = refused(place)
    assert "local is the name of the store itself" in error.cause
    assert error.hint


def test_bad_toml_is_refused_with_its_file(place):
    for which in ["project", "user", "pyproject"]:
        for text in [
            "home = ",
            "home",
            "home = /x",
            "[a",
            "home = '/x'\nhome = '/y'\n",
            b"home = '\xff'",
            "home = '/x\n",
            "keep_logs = 07",
        ]:
            path = {
                "project": place.project / "cachekit.toml",
                "user": place.user_file,
                "pyproject": place.project / "pyproject.toml",
            }[which]
            head = "[tool.cachekit]\n" if which == "pyproject" else ""
            place.write(path, head.encode() + (text if isinstance(text, bytes) else text.encode()))
            error = refused(place)
            assert error.message == f"{path} is not valid TOML"
            assert error.cause
            assert error.hint
            path.unlink()


BAD = [
    ("wait_seconds", "soon"),
    ("wait_seconds", -1),
    ("wait_seconds", True),
    ("wait_seconds", {}),
    ("keep_logs", "many"),
    ("keep_logs", -1),
    ("keep_logs", 3.7),
    ("keep_logs", True),
    ("keep_logs", "1000000000000d"),  # Linux's own calls refuse such times
    ("lease_seconds", "25h"),  # nobody would read the lease, its holder neither
    ("home", 5),
    ("home", True),
    ("home", ""),
    ("home", {}),
    ("home", "~no-such-user-at-all/x"),
    ("compiler_cache_dir", ""),
    ("compiler", 5),
    ("compiler", False),
    *(("cache", value) for value in (7, [], ["local", ""], ["local", 3])),
    *(("remotes", value) for value in ({"t": {}}, {"t": {"url": ""}}, {"t": {"url": 3}}, "t")),
    ("remotes", {"t": {"url": "/x", "region": 3}}),
    *((name, float(value)) for name in ("keep_logs", "wait_seconds") for value in ("inf", "-inf", "nan")),
]


def test_a_bad_value_is_refused_with_its_origin(place):
    for name, value in BAD:
        path = place.write(place.project / "cachekit.toml", f"{name} = {in_toml(value)}\n")
        error = refused(place)
        shown = "" if isinstance(value, dict) else f" = {value!r}"
        assert error.message == f"setting {name}{shown} is not usable", "no table is shown as Python writes one"
        assert str(path) in error.cause


def in_toml(value):
    """A value as TOML has it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {in_toml(one)}" for name, one in value.items()) + "}"
    return str(value) if isinstance(value, float) else json.dumps(value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("wait_seconds", "soon"),
        ("wait_seconds", "-1"),
        ("wait_seconds", "inf"),
        ("keep_logs", "1.5"),
        ("keep_logs", "ten"),
        ("home", "~no-such-user-at-all/x"),
    ],
)
def test_a_bad_value_of_a_variable_or_flag_is_refused_with_its_origin(place, name, value):
    error = refused(place, **{f"CACHEKIT_{name.upper()}": value})
    assert f"from environment CACHEKIT_{name.upper()}: " in error.cause
    error = refused(place, {name: value})
    assert not error.cause.startswith("from "), "the message names the option"


def test_a_bad_amount_is_refused_in_plain_words_with_an_example(place):
    for value in ["soon", "5parsecs", "-1", "1e999", "9" * 400]:
        for name in ["wait_seconds", "keep_logs", "gc_max_age", "gc_max_size", "reuse_bytes"]:
            variable = f"CACHEKIT_{name.upper()}"
            error = refused(place, **{variable: value})
            assert not any(words in error.cause for words in ("convert", "invalid literal", "float", "int()"))
            good = error.hint.removeprefix(f"correct {variable}, for example {variable}=")
            assert place.load(**{variable: good})
            path = place.write(place.project / "cachekit.toml", toml(**{name: value}))
            assert refused(place).hint == f'correct {path}, for example {name} = "{good}"'
            path.unlink()
            option = config.SETTINGS[name].option or name
            assert refused(place, {name: value}).hint == f"for example {option} {good}"


def test_a_pipe_in_the_place_of_a_file_is_refused_with_what_to_do(place):
    os.mkfifo(place.project / "cachekit.toml")
    error = refused(place)
    assert (error.cause, error.hint) == ("it is not a regular file", "correct or remove the file")


@pytest.mark.parametrize("which", ["project", "user"])
@pytest.mark.parametrize("what", ["folder", "link", "lost folder"])
def test_what_cannot_be_read_in_the_place_of_a_file_is_refused(place, which, what):
    """Docker makes a folder for a file that it does not find; what is revoked in a file that is away must stay so."""
    path = place.user_file if which == "user" else place.project / "cachekit.toml"
    if what == "lost folder":  # as that of a mount that has failed; the project's is where one works
        path = place.user_file
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.symlink_to(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if what == "folder" else path.symlink_to("/away/config.toml")
    error = refused(place)
    assert error.message == f"{path} cannot be read"
    assert ("it leads to /away/config.toml: " in error.cause) == (what == "link")


def test_each_unit_of_time_is_named(place):
    cause = refused(place, {"wait_seconds": "5parsecs"}).cause
    for unit in cause.rpartition(" use ")[2].replace(" or ", ", ").split(", "):
        assert place.load({"wait_seconds": f"1{unit}"})
    assert place.load({"wait_seconds": "1y"}).wait_seconds == 365 * 86400
    assert "or y" in cause


def test_a_hint_has_a_good_value_or_none(place):
    for name in config.SETTINGS:
        hint = refused(place, {name: 5 if name in {"home", "compiler_cache_dir", "compiler"} else []}).hint
        called = config.SETTINGS[name].option or name
        if hint != f"correct {called}":
            assert place.load({name: hint.removeprefix(f"for example {called} ")})
            assert config.SETTINGS[name].example


@pytest.mark.parametrize(
    "option, wanted", [("trust = true", 'trust of the remote team may only be "owner"'), ("region = 3", "region of")]
)
def test_an_option_of_a_remote_that_is_no_text_is_named_with_its_remote(place, option, wanted):
    place.write(place.project / "cachekit.toml", f'[remotes.team]\nurl = "/x"\n{option}\n')
    assert wanted in refused(place).cause


def test_a_user_without_a_home_is_told_what_to_set(tmp_path, monkeypatch):
    import platformdirs

    def homeless(*_):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(platformdirs, "user_cache_path", homeless)
    monkeypatch.setattr(platformdirs, "user_config_path", homeless)
    with pytest.raises(UsageError, match="this user has no home") as raised:
        config.load({}, environ={}, cwd=tmp_path)
    assert "CACHEKIT_HOME" in raised.value.hint
    assert config.load({}, environ={"CACHEKIT_HOME": str(tmp_path)}, cwd=tmp_path).home == tmp_path
