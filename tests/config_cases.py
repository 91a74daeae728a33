"""Places where settings stand, and what is refused of them."""

import json

import pytest

from cachekit import config, config_files
from cachekit.errors import UsageError

# Each setting once: what the option, the environment, the project's file and the user's say. A setting that is read
# from a text ("30d", a name) says texts, one of a number numbers.
VALUES = {
    "home": ("/flag", "/env", "/project", "/user"),
    "compiler_cache_dir": ("/flag", "/env", "/project", "/user"),
    "compiler": ("flag", "env", "project", "user"),
    "wait_seconds": (1.5, "2.5", 3.5, 4.5),
    "keep_logs": (1, "2", 3, 4),
    "cache": ("local,/flag", "local,/env:r", ["local", "/project:rw"], ["local"]),
    "remotes": ({"t": {"url": "/f"}}, "t=/env,u=s3://b", {"t": {"url": "/project"}}, {"t": {"url": "/user"}}),
    "lease_seconds": (1.5, "2.5", 3.5, 4.5),
    "push_seconds": (1.5, "2.5", 3.5, 4.5),
    "patience_seconds": (1.5, "2.5", 3.5, 4.5),
    "reuse_bytes": (0, "2", 300, "4"),
    "trust": ({"salt": "f"}, None, {"salt": "project"}, {"salt": "user"}),
    "gc_max_size": (1, "2", 3, 4),
    "gc_max_age": ("1.5s", "2.5s", "3.5s", "4.5s"),
    "slurm_setup": ("flag", "env", "project", "user"),
    "sagemaker": ({"image": "f"}, '{image = "e"}', {"image": "project"}, {"image": "user"}),
}


class Place:
    """A project with a folder inside, and a user of its own."""

    def __init__(self, root):
        self.project = root / "project"
        self.inside = self.project / "a" / "b"
        self.inside.mkdir(parents=True)

    @property
    def user_file(self):
        return config_files.user_file()

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    def load(self, flags=None, cwd=None, **environ):
        return config.load(flags, environ=environ, cwd=cwd or self.inside)


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    return Place(tmp_path)


def toml(**values):
    """A settings file, in which tables are written as one would: `[remotes.t]`, at the end."""
    return _toml(values, "")


def _toml(values, above):
    plain = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if not isinstance(value, dict))
    tables = [(f"{above}{name}", value) for name, value in values.items() if isinstance(value, dict)]
    return plain + "".join(f"[{name}]\n{_toml(table, name + '.')}" for name, table in tables)


def refused(place, *arguments, **environ):
    with pytest.raises(UsageError) as caught:
        place.load(*arguments, **environ)
    assert caught.value.exit_code == 2
    return caught.value
