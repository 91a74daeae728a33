"""Settings: which source wins, and where each value came from."""

import re
from pathlib import Path

import pytest

from cachekit import config, config_files
from cachekit.errors import UsageError
from tests.config_cases import VALUES, place, refused, toml  # noqa: F401 - fixtures
from tests.support import command_words
from tests.support.doctor_cases import another_user

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.doctor_cases"]


def origins(loaded):
    return {setting.name: setting.origin for setting in loaded.settings}


# Which source wins


def test_defaults(place, tmp_path):
    loaded = place.load()
    assert (loaded.compiler, loaded.wait_seconds, loaded.keep_logs) == ("auto", 3600.0, 90)
    assert tmp_path in loaded.home.parents
    assert loaded.compiler_cache_dir == loaded.home / "v1" / "cache_dirs"
    assert set(config.SETTINGS) == set(VALUES), "each setting has a line in VALUES of tests/config_cases.py"
    assert [setting.name for setting in loaded.settings] == list(config.SETTINGS)
    assert set(origins(loaded).values()) == {"default"}
    assert all(setting.help and setting.value == getattr(loaded, setting.name) for setting in loaded.settings)


def typed(name, value):
    if name == "cache":
        return tuple(value.split(",") if isinstance(value, str) else value)
    if name == "remotes":
        return {"t": {"url": "/env"}, "u": {"url": "s3://b"}} if isinstance(value, str) else value
    if name in {"home", "compiler_cache_dir"}:
        return Path(value).absolute()
    if name == "sagemaker" and isinstance(value, str):
        return {"image": "e"}
    if isinstance(VALUES[name][0], str):  # a name, an age: what such a text means is tested where it is read
        return config.SETTINGS[name].read(value)
    return type(VALUES[name][0])(value)


def test_flag_environment_project_user_default(place):
    """With the first `level` sources silent, the next one counts."""
    for level in range(5):
        for name in sorted(VALUES.keys() - {"trust"}):  # which is put together: see test_config_trust.py
            flag, env, project, user = VALUES[name]
            user_file = place.write(place.user_file, toml(**{name: user}) if level <= 3 else "")
            project_file = place.write(place.project / "cachekit.toml", toml(**{name: project}) if level <= 2 else "")
            variable = f"CACHEKIT_{name.upper()}"
            loaded = place.load({name: flag if level == 0 else None}, **({variable: env} if level <= 1 else {}))
            expected = [flag, env, project, user, None][level]
            found = getattr(loaded, name)
            if level < 4:
                assert found == typed(name, expected)
                assert type(found) is type(typed(name, expected))
            sources = ["flag", f"environment {variable}", str(project_file), str(user_file), "default"]
            assert origins(loaded)[name] == sources[level]
            assert all(origin == "default" for other, origin in origins(loaded).items() if other != name)


def test_each_setting_has_its_own_origin(place):
    place.write(place.user_file, toml(keep_logs=1, compiler="user"))
    project = place.write(place.project / "cachekit.toml", toml(compiler="project"))
    loaded = place.load({"home": "/x", "wait_seconds": None}, CACHEKIT_WAIT_SECONDS="5", CACHEKIT_COMPILER_CACHE_DIR="")
    assert origins(loaded) == dict.fromkeys(VALUES, "default") | {
        "home": "flag",
        "compiler_cache_dir": "default",
        "compiler": str(project),
        "wait_seconds": "environment CACHEKIT_WAIT_SECONDS",
        "keep_logs": str(place.user_file),
    }
    assert loaded.compiler_cache_dir == Path("/x/v1/cache_dirs").absolute()


@pytest.mark.parametrize(
    "said, meant", [("0", 0), (7, 7), ("12B", 12), ("4k", 4000), ("1.5 GB", 1_500_000_000), ("500MiB", 524_288_000)]
)
def test_bytes_may_be_said_with_a_unit_which_means_the_same_in_each_setting(place, said, meant):
    loaded = place.load({"reuse_bytes": said, "gc_max_size": said})
    assert (loaded.reuse_bytes, loaded.gc_max_size) == (meant, meant)


@pytest.mark.parametrize("said", ["-1", "much", "1 GBB", "GB", True, "1e9", "", "\u0663"])
def test_bytes_that_are_none_are_refused(place, said):
    assert "bytes" in refused(place, {"reuse_bytes": said}).cause


def test_a_flag_of_nothing_still_wins(place):
    assert place.load({"keep_logs": 0}, CACHEKIT_KEEP_LOGS="5").keep_logs == 0


# The project file


@pytest.mark.parametrize("depth", ["project", "inside"])
def test_the_nearest_project_file_counts(place, depth):
    place.write(place.project.parent / "cachekit.toml", toml(keep_logs=1, compiler="outer"))
    nearest = place.write(getattr(place, depth) / "cachekit.toml", toml(keep_logs=2))
    loaded = place.load()
    assert loaded.keep_logs == 2
    assert loaded.compiler == "auto", "the outer file is another project's"
    assert origins(loaded)["keep_logs"] == str(nearest)


@pytest.mark.parametrize(
    "text",
    [
        "[tool.cachekit]\nkeep_logs = 2\n",
        "[project]\nname = 'x'\n\n[tool.other]\na = 1\n[tool.cachekit]\nkeep_logs = 2",
        "[tool]\ncachekit.keep_logs = 2\n",
        "[tool]\ncachekit = {keep_logs = 2}\n",
        "[tool.'cachekit']\nkeep_logs = 2\n",
        "[ tool . cachekit ]\nkeep_logs = 2\n",
    ],
)
def test_pyproject_toml_may_hold_the_settings(place, text):
    path = place.write(place.project / "pyproject.toml", text)
    loaded = place.load()
    assert (loaded.keep_logs, origins(loaded)["keep_logs"]) == (2, str(path))


def test_cachekit_toml_wins_over_pyproject_toml_beside_it(place):
    place.write(place.project / "pyproject.toml", "[tool.cachekit]\nkeep_logs = 1\ncompiler = 'x'\n")
    place.write(place.project / "cachekit.toml", toml(keep_logs=2))
    assert (place.load().keep_logs, place.load().compiler) == (2, "auto")


@pytest.mark.parametrize(
    "text",
    [
        "[project]\nname = 'x'\n",
        "not toml at all",
        "# tool.cachekit is not used\n",
        b"\xff\xfe",
        "tool = 'tool.cachekit'\n",
    ],
)
def test_a_pyproject_toml_that_is_not_about_us_is_left_alone(place, text):
    place.write(place.project.parent / "cachekit.toml", toml(keep_logs=2))
    place.write(place.project / "pyproject.toml", text)
    assert place.load().keep_logs == 2


# Folders


def test_what_is_closed_to_this_user_is_passed_over(public, monkeypatch):
    """As after `sudo -u`, which may leave HOME as it was."""
    work = public / "closed" / "work"
    work.mkdir(parents=True)
    (public / "pyproject.toml").write_text("[tool.cachekit]\nkeep_logs = 7\n")
    (public / "pyproject.toml").chmod(0o600)
    (public / "closed").chmod(0o700)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work))
    with another_user():
        assert config.load(environ={}, cwd=work).keep_logs == config.defaults().keep_logs


def test_a_folder_may_hold_variables_and_a_tilde(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    place.write(place.project / "cachekit.toml", toml(home="$SCRATCH/store", compiler_cache_dir="~/cache_dirs"))
    loaded = place.load()
    assert loaded.home == tmp_path / "scratch" / "store"
    assert loaded.compiler_cache_dir == tmp_path / "somebody" / "cache_dirs"


def test_a_relative_folder_of_a_file_means_the_same_from_everywhere(place, monkeypatch):
    """Else a project would have one store for each folder that someone works in."""
    place.write(place.project / "cachekit.toml", toml(home="store"))
    found = set()
    for cwd in (place.project, place.inside):
        monkeypatch.chdir(cwd)
        found.add(place.load(cwd=cwd).home)
    assert found == {place.project / "store"}


def test_a_relative_address_of_a_file_starts_at_the_file(place):
    place.write(place.project / "cachekit.toml", toml(remotes={"near": {"url": "./cache"}, "far": {"url": "hf://a/b"}}))
    loaded = place.load()
    assert loaded.remotes == {"near": {"url": str(place.project / "cache")}, "far": {"url": "hf://a/b"}}


# Yes and no


@pytest.mark.parametrize(
    "text, value",
    [
        *((word, True) for word in ("1", "true", "TRUE", "yes", "on", " On ")),
        *((word, False) for word in ("0", "false", "False", "no", "off", "", "  ")),
    ],
)
def test_yes_and_no(monkeypatch, text, value):
    assert config.flag_from_environment("CACHEKIT_X") is False
    monkeypatch.setenv("CACHEKIT_X", text)
    assert config.flag_from_environment("CACHEKIT_X") is value


@pytest.mark.parametrize("text", ["maybe", "2", "y", "-1", "none"])
def test_neither_yes_nor_no_is_refused(monkeypatch, text):
    monkeypatch.setenv("CACHEKIT_X", text)
    with pytest.raises(UsageError, match=f"CACHEKIT_X={text} is neither yes nor no") as caught:
        config.flag_from_environment("CACHEKIT_X")
    assert "CACHEKIT_X" in caught.value.hint


@pytest.mark.parametrize(
    "name, said, value",
    [
        ("wait_seconds", "10m", 600),
        ("wait_seconds", "90", 90),
        ("push_seconds", "1.5h", 5400),
        ("lease_seconds", "2 minutes", 120),
        ("wait_seconds", 1e-5, 1e-5),
        ("keep_logs", "30d", 30),
        ("keep_logs", "4w", 28),
        ("keep_logs", "48h", 2),
        ("keep_logs", "7", 7),
        ("gc_max_age", "7", 7 * 86_400),
    ],
)
def test_a_time_has_a_unit_or_that_of_its_setting(place, name, said, value):
    assert getattr(place.load({name: said}), name) == value


def test_a_variable_that_is_no_setting_is_told_with_the_name_that_was_meant():
    set_to = (
        "CACHEKIT_HOM",
        "CACHEKIT_CACH",
        "CACHEKIT_QUITE_ANOTHER",
        "CACHEKIT_HOME",
        "HOME",
        *config.OTHER_VARIABLES,
    )
    assert config.unknown_variables(dict.fromkeys(set_to, "x")) == [
        "the variable CACHEKIT_CACH has no effect; did you mean CACHEKIT_CACHE?",
        "the variable CACHEKIT_HOM has no effect; did you mean CACHEKIT_HOME?",
        "the variable CACHEKIT_QUITE_ANOTHER has no effect; there is no such setting",
    ]


def test_every_variable_that_the_package_names_is_declared():
    sources = [file.read_text() for file in Path(config.__file__).parent.rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"\bCACHEKIT_[A-Z_]*[A-Z]\b", source)}
    assert "CACHEKIT_HOME" in named
    assert config.unknown_variables(dict.fromkeys(named, "x")) == []


def test_a_settings_file_that_is_a_link_stays_one_and_as_readable_as_it_was(tmp_path):
    kept, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    kept.write_text("wait_seconds = 1\n")
    kept.chmod(0o600)
    link.symlink_to(kept)
    config_files.write(link, "wait_seconds = 2\n")
    assert (link.is_symlink(), kept.read_text(), kept.stat().st_mode & 0o777) == (True, "wait_seconds = 2\n", 0o600)


def test_each_option_of_a_setting_is_one_of_some_verb():
    options = {option for _, parser in command_words.walk() for option in command_words.options_of(parser)}
    assert {declared.option for declared in config.SETTINGS.values()} - {""} <= options
