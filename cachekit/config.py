"""Settings, each declared once and read with its origin: flag > environment > project file > user file > default.

The project file is `cachekit.toml`, or `[tool.cachekit]` in `pyproject.toml`, in the working directory or the nearest
parent that has one. The user file is `config.toml` in the platform's configuration folder (`~/.config/cachekit`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from msgspec import Struct, structs

from cachekit import config_files, config_sagemaker, config_trust, disk, redact
from cachekit.errors import UsageError
from cachekit.text import DAY, duration, or_none, parse_age, parse_days, parse_size

PREFIX = "CACHEKIT_"
ONLY_HERE = ("local:rw",)  # the remotes where nobody names one
LONGEST_LEASE = DAY  # seconds: nobody else can keep a team waiting for longer
TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}


class Setting(Struct, frozen=True, tag_field="schema", tag="cachekit/setting/1"):
    """A value and where it came from.

    Attributes:
        name: Its name in a file; `CACHEKIT_<NAME>` in the environment.
        value: The checked value.
        origin: `flag`, `environment CACHEKIT_…`, a file's path, or `default`.
        help: One line for people.
    """

    name: str
    value: Any
    origin: str
    help: str

    @property
    def shown(self) -> Any:
        """The value as it may be shown."""
        return self.value.shown if isinstance(self.value, config_trust.TrustTable) else redact.setting(self.value)

    def __repr__(self) -> str:
        return f"Setting({self.name!r}, {self.shown!r}, {self.origin!r})"


class Declared(Struct, frozen=True):
    """How a setting is declared, once: everything else (files, variables, options, `cachekit config`, docs) follows.

    Attributes:
        help: One line for people; it names the unit, where the setting has one.
        read: Makes the checked value of what a file, a variable or an option says. Raises ValueError.
        default: The value if nothing sets it, as a file would say it.
        example: A good value, as an option or a variable says it: for the hint of an error.
        option: The command line's option for it, where there is one.
    """

    help: str
    read: Callable[[Any], Any]
    default: Any = None
    option: str = ""
    example: str = ""


def _folder(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError("expected the path of a folder")
    return disk.in_settings(str(value))


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a name")  # noqa: TRY004 - one kind of error for bad values
    return value


def _seconds(value: Any) -> float:
    return parse_age(value, "s")


def _lease(value: Any) -> float:
    seconds = parse_age(value, "s")
    if seconds > LONGEST_LEASE:
        raise ValueError(f"a lease of more than {duration(LONGEST_LEASE)}, which other machines refuse to read")
    return seconds


def _days(value: Any) -> int:
    days = parse_days(value)
    if not days.is_integer():
        raise ValueError(f"expected whole days, but {value} is {days:g} days")
    return int(days)


def _remotes(value: Any) -> tuple[str, ...]:
    entries = value.split(",") if isinstance(value, str) else value
    if (
        not isinstance(entries, list | tuple)
        or not entries
        or not all(isinstance(e, str) and e.strip() for e in entries)
    ):
        raise ValueError('expected "local:rw,NAME:r" or a list of such entries')
    return tuple(entry.strip() for entry in entries)


def _tables(value: Any) -> dict[str, dict[str, str]]:
    """`{name: {url: …}}`, or `name=url,…` as a variable holds it."""
    if isinstance(value, str):
        value = {
            name.strip(): {"url": url} for name, _, url in (part.partition("=") for part in value.split(",") if part)
        }
    if not isinstance(value, dict):
        raise ValueError("expected [remotes.NAME] tables with a url")  # noqa: TRY004 - one kind of error for bad values
    for name, table in value.items():
        if name == "local":
            raise ValueError("local is the name of the store itself; give the remote another name")
        if not isinstance(table, dict) or not isinstance(table.get("url"), str) or not table["url"]:
            raise ValueError(f'expected url = "…" for {redact.address(str(name))}')
        if bad := [option for option, said in table.items() if not isinstance(said, str)]:
            wanted = 'may only be "owner", "signed" or "all"' if bad[0] == "trust" else "must be text in quotes"
            raise ValueError(f"{redact.address(str(bad[0]))} of the remote {redact.address(str(name))} {wanted}")
    return {name: dict(table) for name, table in value.items()}


def _platform_cache() -> Path | None:
    """This user's cache folder; None for a user without a home, whom HOME and the system do not know."""
    import platformdirs

    try:
        return platformdirs.user_cache_path("cachekit")
    except RuntimeError:
        return None


class Config(Struct, frozen=True, kw_only=True):
    """All settings of one run, each declared here.

    Attributes:
        settings: The same values with their origins.
        trust_all: Use what anybody may have made. Only a command says so: no file, and no variable.
        trust_only: What a command asks beyond the settings: signatures everywhere, or wherever others can write.
        file_remotes: The tables of remotes in each file. What they ask of a place holds, whatever stands in their
            stead: a project's for the user's, a variable for both.
    """

    home: Annotated[
        Path, Declared("the store's folder", _folder, _platform_cache, option="--home", example="~/cachekit")
    ]
    compiler_cache_dir: Annotated[
        Path, Declared("where compilers read and write during a run; must be a local disk", _folder)
    ]  # by default `<home>/v1/cache_dirs`, once home is known
    compiler: Annotated[
        str, Declared("auto, or the name of a compiler", _name, "auto", option="--compiler", example="auto")
    ]
    wait_seconds: Annotated[
        float,
        Declared(
            "how long to wait for another process that compiles the same key",
            _seconds,
            3600.0,
            option="--wait",
            example="10m",
        ),
    ]
    keep_logs: Annotated[
        int,
        Declared("how many days logs and journals of runs, and notes of fleets, are kept", _days, 90, example="30d"),
    ]
    cache: Annotated[
        tuple[str, ...],
        Declared(
            "the store (local) and the remotes in order, each with its permissions: local:rw,NAME:r",
            _remotes,
            ONLY_HERE,
            option="--cache",
            example="local:rw",
        ),
    ]
    remotes: Annotated[
        Mapping[str, Mapping[str, str]],
        Declared("the remotes by name, each with its url", _tables, dict),
    ]
    lease_seconds: Annotated[
        float,
        Declared(
            "how long a machine that has gone silent keeps its lease on a key, at most 24h; 0 lets cachekit choose",
            _lease,
            0.0,
            example="60",
        ),
    ]
    push_seconds: Annotated[
        float,
        Declared(
            "how long the push after a run may take, and any push may wait for a busy remote",
            _seconds,
            120.0,
            example="10min",
        ),
    ]
    patience_seconds: Annotated[
        float,
        Declared(
            "the longest that a run retries failing remotes: a tenth of the compile time at stake, 20 s or more",
            _seconds,
            180.0,
            example="60",
        ),
    ]
    reuse_bytes: Annotated[
        int,
        Declared(
            "the largest record of another key that a warm reuses; 0 means never",
            parse_size,
            2_000_000_000,
            example="2GB",
        ),
    ]
    trust: Annotated[
        config_trust.TrustTable,
        Declared("whose records are used, and the key that signs this user's records", config_trust.read, dict),
    ]
    gc_max_size: Annotated[
        int | None,
        Declared(
            "the size to which `cachekit store gc` brings the store: 50GB; none means no limit",
            or_none(parse_size),
            option="--max-size",
            example="50GB",
        ),
    ]
    gc_max_age: Annotated[
        float | None,
        Declared(
            "how long `cachekit store gc` keeps a record that is not used: 30d; none means no limit",
            or_none(parse_age),
            option="--max-age",
            example="30d",
        ),
    ]
    slurm_setup: Annotated[
        str,
        Declared(
            "shell lines that run on a Slurm machine before each command: CACHEKIT_HOME on its own disk, say",
            _name,
            "",
            example="module load neuron",
        ),
    ]
    sagemaker: Annotated[
        Mapping[str, Any],
        Declared(
            "what jobs on SageMaker need: role, image, and output (an address in S3)",
            config_sagemaker.read,
            dict,
            example='{role = "arn:aws:iam::123456789012:role/training"}',
        ),
    ]
    settings: tuple[Setting, ...]
    trust_all: bool = False
    trust_only: Literal["", "owner", "signed"] = ""
    file_remotes: tuple[Mapping[str, Mapping[str, str]], ...] = ()
    clash: UsageError | None = None

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{one.name}={one.shown!r}' for one in self.settings)})"


# name -> declaration. The order is the order of `cachekit config`.
SETTINGS: dict[str, Declared] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Config, include_extras=True).items()
    if get_origin(hint) is Annotated
}


# Variables that are not settings: what runs tell those that they start, and what our tests and benchmarks read.
OTHER_VARIABLES = frozenset({
    config_trust.KEY, "CACHEKIT_RUN", "CACHEKIT_REPORTS", "CACHEKIT_RESTORED", "CACHEKIT_SHARED", "CACHEKIT_REAL_DIR",
    "CACHEKIT_LIVE_HUB",    "CACHEKIT_AZURITE", "CACHEKIT_PEER_PYTHON", "CACHEKIT_TEST_GC_MINUTES",
})  # fmt: skip


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable whose name begins as those of settings do, and that nothing reads."""
    known = {PREFIX + name.upper() for name in SETTINGS} | OTHER_VARIABLES
    told = []
    for name in sorted(os.environ if environ is None else environ):
        if name.startswith(PREFIX) and name not in known:
            near = get_close_matches(name, known - OTHER_VARIABLES, n=1, cutoff=0.7)
            meant = f"did you mean {near[0]}?" if near else "there is no such setting"
            told.append(f"the variable {name} has no effect; {meant}")
    return told


def default(name: str) -> Any:
    """The value of a setting that nothing sets, as a file would say it; the store lies in this user's cache folder."""
    value = SETTINGS[name].default
    return value() if callable(value) else value


def _from_file(path: Path, table: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    for name in table:
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, n=1)
            raise UsageError(
                f"{path}: unknown setting {name!r}",
                cause="settings are: " + ", ".join(SETTINGS),
                hint=f"did you mean {near[0]!r}?" if near else "remove the line",
            )
    found = {name: (value, str(path)) for name, value in table.items()}
    for name in ("home", "compiler_cache_dir"):
        # A relative folder starts at the file: it must mean the same from every working directory.
        value = table.get(name)
        if isinstance(value, str) and value and not value.startswith(("~", "$")):
            found[name] = (str(path.parent / value), str(path))
    tables = table.get("remotes")
    if isinstance(tables, dict):
        found["remotes"] = ({name: _anchored(one, path.parent) for name, one in tables.items()}, str(path))
    if "trust" in table:
        found["trust"] = (config_trust.anchored(table["trust"], path), str(path))
    return found


def _anchored(table: Any, folder: Path) -> Any:
    url = table.get("url") if isinstance(table, dict) else None
    if not isinstance(url, str) or not url or "://" in url or url.startswith(("/", "~", "$")):
        return table
    if redact.has_secret(url):  # a mistyped address, which is refused as it is, and would be shown as a folder
        return table
    return {**table, "url": str(folder / url)}


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    mending: bool = False,
) -> Config:
    """Collect the settings from all their sources.

    Args:
        flags: What the command line said, by the settings' names; None values are "not said".
        environ: The environment; the process's own by default.
        cwd: Where the search for a project file starts.
        mending: Two signers of one name are no error, but told in `clash`: who asks only looks, or takes trust back.

    Raises:
        UsageError: A file is not TOML, names an unknown setting, or a value is of the wrong kind; or two signers have
            one name.
        TypeError: A flag is called as no setting is.
    """
    if unknown := (flags or {}).keys() - SETTINGS.keys():
        raise TypeError(f"there is no setting named {', '.join(sorted(unknown))}")
    environ = os.environ if environ is None else environ
    found: dict[str, tuple[Any, str]] = {name: (default(name), "default") for name in SETTINGS}
    if (own := config_files.user_file()) and config_files.is_there(own):
        found |= _from_file(own, config_files.read_toml(own))
    file_remotes = [_read("remotes", *found["remotes"])]
    clash = None
    if project := config_files.project_file(cwd or Path.cwd()):
        said = _from_file(*project)
        config_trust.check_project(project[1].get("trust"), project[0])
        if "trust" in said and found["trust"][1] != "default":
            user, where = found["trust"]
            for one in (found, said):  # each by itself: an error names its file
                _read("trust", *one["trust"])
            clash = config_trust.clash(user, said["trust"][0])
            if clash and not mending:
                raise clash
            said["trust"] = (config_trust.merged(user, said["trust"][0]), f"{said['trust'][1]} and {where}")
        found |= said
        file_remotes.append(_read("remotes", *found["remotes"]))
    for name in SETTINGS:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            found[name] = (environ[variable], f"environment {variable}")
    if key := environ.get(config_trust.KEY):
        table, origin = found["trust"]
        origin = f"{'' if origin == 'default' else f'{origin} and '}environment {config_trust.KEY}"
        found["trust"] = ({**table, "key": key} if isinstance(table, dict) else table, origin)
    found |= {name: (value, "flag") for name, value in (flags or {}).items() if value is not None}
    return structs.replace(_made(found), file_remotes=tuple(file_remotes), clash=clash)


def defaults() -> Config:
    """All settings at their defaults, for when the files cannot be read."""
    return _made({name: (default(name), "default") for name in SETTINGS})


def _made(found: Mapping[str, tuple[Any, str]]) -> Config:
    values: dict[str, Any] = {}
    settings = []
    for name, declared in SETTINGS.items():
        raw, origin = found[name]
        if name == "compiler_cache_dir" and raw is None:
            raw = values["home"] / "v1" / "cache_dirs"
        if name == "home" and raw is None:
            raise UsageError(
                "there is no folder for the store: this user has no home directory",
                cause=disk.no_home(),
                hint="set CACHEKIT_HOME to a folder, or pass --home DIR",
            )
        values[name] = _read(name, raw, origin)
        settings.append(Setting(name, values[name], origin, declared.help))
    return Config(**values, settings=tuple(settings))


def _read(name: str, raw: Any, origin: str) -> Any:
    """The checked value of a setting.

    Raises:
        UsageError: It is of the wrong kind.
    """
    declared = SETTINGS[name]
    try:
        return declared.read(raw)
    except (TypeError, ValueError, OverflowError, UsageError) as error:
        shown = redact.setting(raw)
        option = declared.option if origin == "flag" else ""
        value = "" if _has_table(raw) else f" = {shown!r}"
        said = f"{option} {shown or repr(shown)}" if option else f"setting {name}{value}"
        raise UsageError(
            f"{said} is not usable",
            cause=("" if origin == "flag" else f"from {origin}: ")
            + redact.address(getattr(error, "cause", "") or str(error)),
            hint=_hint(name, declared, origin),
        ) from error


def _has_table(value: Any) -> bool:
    """Whether a table is or is in the value: it is too long for a message, and its spelling would be Python's."""
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_table, value)))


def _hint(name: str, declared: Declared, origin: str) -> str:
    """How to set a setting right where it was set."""
    place = (declared.option or name) if origin == "flag" else origin.removeprefix("environment ")
    if not declared.example:
        return f"correct {place}"
    if origin == "flag":
        return f"for example {place} {declared.example}"
    value = declared.example if declared.example.startswith("{") else f'"{declared.example}"'
    example = f"{name} = {value}" if place == origin else f"{place}={declared.example}"
    return f"correct {place}, for example {example}"


def flag_from_environment(name: str) -> bool:
    """Read a yes/no variable.

    Raises:
        UsageError: It is set to something that is neither yes nor no.
    """
    text = os.environ.get(name, "").strip().lower()
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise UsageError(f"{name}={text} is neither yes nor no", hint=f"unset {name}, or set it to 1 or 0")
