"""The remotes as the settings list them, their addresses, and the kinds of remotes that there are.

`local:rw,team:r` names the local store first, then what `[remotes.team]` in cachekit.toml says, read-only. A remote can
also be named by its address: `hf://team/cache:rw`, `s3://bucket/prefix`, `/mnt/efs/cache`. What a table says of the
place at its `url` holds then too: a way to type it takes no demand for signatures away. Neither does a project's file,
nor a variable: what a table of a file asks of a place holds under any name and in any spelling, whatever stands in its
stead.

A kind of remote is registered by one line of `KINDS`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cachekit import redact
from cachekit.calls import Calls
from cachekit.config_trust import MODES, Mode
from cachekit.errors import RemoteError, UsageError
from cachekit.remotes.port import Limits
from cachekit.store.layout import LOCAL

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.remotes.port import Setup, Storage

Tables = Mapping[str, Mapping[str, str]]  # of `[remotes]`: what names stand for


class Kind(Struct, frozen=True):
    """A kind of remote, as it is registered.

    Attributes:
        begins: How its addresses begin.
        module: Its adapter's; `opened(address, options)` there makes the remote, and connects nothing yet.
        options: What its table in cachekit.toml may say beside `url`.
        example: An address, for people.
        network: It opens sockets; a mounted folder is the system's business.
        setup: The module that makes such places (`port.Setup`); empty where somebody else does.
        needs: Those of `options` without which there is no such remote.
    """

    begins: tuple[str, ...]
    module: str
    options: tuple[str, ...]
    example: str
    network: bool = True
    setup: str = ""
    needs: tuple[str, ...] = ()


_HERE = "cachekit.remotes"
KINDS = (
    Kind(("hf://buckets/",), f"{_HERE}.hub.bucket", ("endpoint",), "hf://buckets/OWNER/NAME"),
    Kind(("hf://",), f"{_HERE}.hub.repo", ("endpoint",), "hf://OWNER/NAME", setup=f"{_HERE}.hub.create"),
    Kind(("s3://",), f"{_HERE}.objectstore.s3", ("endpoint", "region"), "s3://BUCKET/PREFIX"),
    Kind(("gs://",), f"{_HERE}.objectstore.gcs", (), "gs://BUCKET/PREFIX"),
    Kind(("az://",), f"{_HERE}.objectstore.azure", ("account", "endpoint"), "az://CONTAINER/PREFIX"),
    Kind(("file://", "/", "~", "."), f"{_HERE}.folder.remote", (), "/FOLDER", network=False),
)
# What tables say, from what asks least; one that says nothing asks more than one that vouches for its writers.
ASKS: tuple[Mode | Literal[""], ...] = ("all", "owner", "", "signed")
_SCHEME = r"(?i)^[a-z][a-z0-9+.-]*://"


class Link(Struct, frozen=True):
    """One entry of the list.

    Attributes:
        name: As it was written: a name or an address.
        address: Where it is; empty for the local store.
        readable: Hits are taken from it.
        writable: What is new is put there.
        options: Further settings of its table: `endpoint`, `region`.
        trust: What the tables ask of the records there; empty where they say nothing.
    """

    name: str
    address: str
    readable: bool
    writable: bool
    options: Mapping[str, str]
    trust: Mode | Literal[""] = ""

    def __repr__(self) -> str:
        return f"Link({self.name!r}, {self.address!r}, options={redact.setting(self.options)})"


def kind_of(address: str) -> Kind | None:
    """The kind of remote that an address names; None for an address of no kind."""
    return next((kind for kind in KINDS if address.startswith(kind.begins)), None)


def needs_network(link: Link) -> bool:
    """Whether it opens sockets."""
    kind = kind_of(link.address)
    return kind is not None and kind.network


def setup(address: str) -> Setup:
    """The module that creates places of the kind that an address names; the kind must have one."""
    kind = kind_of(address)
    assert kind is not None and kind.setup  # noqa: PT018
    made: Setup = importlib.import_module(kind.setup)
    return made


def make(link: Link) -> Storage:
    """The remote of an entry; nothing is connected yet.

    Raises:
        UsageError: The address is none, an option is unknown or missing, or a package that it needs is not installed.
    """
    kind = kind_of(link.address)
    assert kind is not None  # or `parse` had refused it
    unknown = sorted(set(link.options) - set(kind.options))
    if unknown:
        raise UsageError(
            f"remote {link.name}: unknown setting {unknown[0]!r}",
            cause=f"{link.address} takes {', '.join(kind.options) or 'no settings but url'}",
            hint="remove the line",
        )
    if missing := [name for name in kind.needs if not link.options.get(name)]:
        table = "NAME" if link.name == link.address else link.name
        raise UsageError(
            f"remote {link.name}: {missing[0]} is missing",
            cause=f"{kind.example} needs its {' and '.join(kind.needs)}",
            hint=f'add {missing[0]} = "…" next to url in [remotes.{table}] of cachekit.toml',
        )
    made: Storage = importlib.import_module(kind.module).opened(link.address, link.options)
    return made


def links_of(config: Config) -> tuple[Link, ...]:
    """The remotes that the settings list, without the local store.

    Raises:
        UsageError: See `parse`.
    """
    return parse(config.cache, config.remotes, config.file_remotes)[1:]


def asked_of_folder(folder: Path, config: Config) -> Mode | Literal[""]:
    """The most that the tables ask of a remote that a folder is, or lies in; empty where they say nothing.

    A table counts whether or not the list names its remote, and however the folder is spelled.

    Raises:
        UsageError: A table says a word of trust that is none.
    """
    around = {str(one) for path in (os.path.realpath(folder), os.path.abspath(folder)) for one in _up(path)}  # noqa: PTH100
    asked = [
        _asked(name, table, config.file_remotes)
        for name, table in config.remotes.items()
        if _is_one_of(str(table["url"]), around, look="trust" in table)
    ]
    for name, table in (one for tables in config.file_remotes for one in tables.items()):
        if (word := _trust(name, table)) and _is_one_of(str(table["url"]), around, look=True):
            asked.append(word)
    return max(asked, key=ASKS.index, default="")


def _up(path: str) -> Iterator[Path]:
    """A folder, and those above it."""
    yield Path(path)
    yield from Path(path).parents


def _is_one_of(address: str, folders: Collection[str], *, look: bool) -> bool:
    """Whether an address is a spelling of one of these folders; `look` as in `_is_same`."""
    kind, first = kind_of(address), _folder(address)
    if kind is None or kind.network:
        return False
    if any(_is_same(address, one, look=False) for one in folders):
        return True

    def found() -> bool:
        there = Path(first).stat()
        return any(os.path.samestat(there, Path(one).stat()) for one in folders if Path(one).exists())

    try:
        return look and Calls(first).run(found, Limits().connect, "look at")
    except (OSError, RemoteError):
        return False


def parse(entries: Sequence[str], tables: Tables, files: Sequence[Tables] = ()) -> tuple[Link, ...]:
    """Read the list of remotes.

    Args:
        entries: `NAME[:r|w|rw]` each; `r` where nothing is said, but `rw` for the local store.
        tables: What names stand for: an `url`, and options.
        files: The tables of each file of settings, in whose stead those that hold may stand.

    Raises:
        UsageError: A name that no table has, one that stands twice, or no local store in the first place.
    """
    links = []
    for entry in entries:
        matched = re.fullmatch(r"(.+?)(?::(r|w|rw))?", entry.strip())
        name, policy = (matched[1], matched[2]) if matched else (entry, None)
        if name == LOCAL:
            if (policy or "rw") != "rw":
                raise UsageError(
                    f"{entry}: the local store is always read and written",
                    hint="if the store must not change, make its folder read-only; it still serves its hits",
                )
            links.append(Link(LOCAL, "", readable=True, writable=True, options={}))
            continue
        table = tables.get(name)
        _check_words(name, str(table["url"]) if table else "", tables)
        if table is None and kind_of(name) is None:
            known = ", ".join(sorted({LOCAL, *tables}))
            raise UsageError(
                f"there is no remote named {name!r}",
                cause=f"known names: {known}; addresses: {', '.join(kind.example for kind in KINDS)}",
                hint=f'add [remotes.{name}] with url = "…" to cachekit.toml, or run `cachekit hub use OWNER/NAME`',
            )
        called = name
        if table is None:
            called, table = _table_at(name, tables)
        options = _options(table)
        address = str(table["url"])
        _check_endpoint(called, address, options, files)
        readable, writable = "r" in (policy or "r"), "w" in (policy or "r")
        links.append(Link(name, address, readable, writable, options, _asked(called, table, files)))
    names = [link.name for link in links]
    places = {(link.address, *sorted(link.options.items())) for link in links}
    if names[:1] != [LOCAL] or len(set(names)) < len(names) or len(places) < len(names):
        raise UsageError(
            f"cache = {','.join(entries)} cannot be used",
            cause="the list must begin with the local store, and name each remote once",
            hint="--cache local:rw,NAME:r",
        )
    return tuple(links)


def _check_endpoint(name: str, address: str, options: Mapping[str, str], files: Sequence[Tables]) -> None:
    """See that a token of the Hub, or of Azure, goes to no server that a project alone names: it may be a stranger's.

    S3's requests are signed, and send no secret.

    Raises:
        UsageError: It would.
    """
    hub, endpoint = address.startswith("hf://"), options.get("endpoint", "").rstrip("/")
    known = {"", "https://huggingface.co", os.environ.get("HF_ENDPOINT", "").rstrip("/")} if hub else {""}
    if endpoint in known or not address.startswith(("hf://", "az://")):
        return
    own, *projects = ({str(one.get("endpoint", "")).rstrip("/") for one in tables.values()} for tables in files or [{}])
    if endpoint not in own and any(endpoint in said for said in projects):
        raise UsageError(
            f"[remotes.{name}] is not used: your token would be sent to {redact.address(endpoint)}",
            cause="only the project's settings name that server, and a project may be a stranger's",
            hint="if you trust the server: "
            + (f"export HF_ENDPOINT={redact.address(endpoint)}, or " if hub else "")
            + "name the endpoint in your own settings, too",
        )


def _asked(name: str, table: Mapping[str, str], files: Sequence[Tables]) -> Mode | Literal[""]:
    """What is asked of a remote: what its table says, and no less than what the files of settings say.

    Where the table says nothing, the word of a file holds for the very same place, with the same options.
    """
    there = [_table_at(str(table["url"]), tables) for tables in files]
    words = {_trust(name, table), *(_trust(*one) for one in there)} - {""}
    if "signed" in {*words, *(_trust(name, tables.get(name, {})) for tables in files)}:
        return "signed"
    if not _trust(name, table):
        words = {_trust(*one) for one in there if _options(one[1]) == _options(table)} - {""}
    return max(words, key=ASKS.index, default="")


def _table_at(address: str, tables: Tables) -> tuple[str, Mapping[str, str]]:
    """The name and the table that an address stands for: of several with this url the one that asks most.

    Where there is none, the address stands for itself. Signatures that are asked of a repo are asked of all its states.
    """
    there = [
        (name, table) for name, table in tables.items() if _is_same(str(table["url"]), address, look="trust" in table)
    ]
    if there:
        return max(there, key=lambda one: ASKS.index(_trust(*one)))
    states = [(name, table) for name, table in tables.items() if _repo(str(table["url"])) == _repo(address) != ""]
    signed = any(_trust(*one) == "signed" for one in states)
    return address, {"url": address, **({"trust": "signed"} if signed else {})}


def _options(table: Mapping[str, str]) -> dict[str, str]:
    """What a table says beside its place and whom to trust."""
    return {key: str(value) for key, value in table.items() if key not in {"url", "trust"}}


def _is_same(one: str, other: str, *, look: bool) -> bool:
    """Whether two addresses are spellings of one place.

    Args:
        one: An address.
        other: Another one.
        look: Ask the file system, too, which knows links; a mount may make that wait.
    """
    kind = kind_of(one)
    if kind is not kind_of(other):
        return False
    if kind is None or kind.network:
        return _plain(one) == _plain(other)
    first, second = _folder(one), _folder(other)
    spelled = os.path.abspath(first) == os.path.abspath(second)  # noqa: PTH100 - asks no mount, which may hang
    if first == second or not look:
        return spelled
    try:  # as long as it takes here, the remote itself is waited for
        return Calls(first).run(lambda: os.path.samefile(first, second), Limits().connect, "look at")  # noqa: PTH121
    except (OSError, RemoteError):  # there is no such folder, or it does not answer
        return spelled


def _folder(address: str) -> str:
    """The path of a folder, as the system is asked for it: what `..` means there, links have a say in."""
    return str(Path(os.path.expanduser(address.removeprefix("file://"))))  # noqa: PTH111 - needs no home


def _plain(address: str) -> str:
    """One spelling of an address beyond a network that can be written in several."""
    if repo := _repo(address):
        branch = address.partition("@")[2].rstrip("/")
        return repo if branch in {"", "main"} else f"{repo}@{branch}"
    scheme, _, rest = address.partition("://")
    parts = [part for part in rest.split("/") if part]
    if scheme == "hf":  # buckets/OWNER/NAME, whose names are the same in both cases; what follows is not
        parts = [*map(str.lower, parts[:3]), *parts[3:]]
    return f"{scheme}://{'/'.join(parts)}"


def _repo(address: str) -> str:
    """The repo of the Hub that an address names, whatever state of it; nothing elsewhere."""
    if not address.startswith("hf://") or address.startswith("hf://buckets/"):
        return ""
    return address.partition("@")[0].rstrip("/").lower().replace("hf://models/", "hf://", 1)


def _trust(name: str, table: Mapping[str, str]) -> Mode | Literal[""]:
    found: Mode | None = next((mode for mode in MODES if table.get("trust") == mode), None)
    if "trust" in table and not found:
        raise UsageError(
            f"[remotes.{name}]: trust = {table['trust']!r} is not a known value",
            cause='"owner" asks for signatures where others can write, "signed" always, "all" never',
            hint="correct or remove the line",
        )
    return found or ""


def _check_words(name: str, url: str, tables: Mapping[str, Mapping[str, str]]) -> None:
    """Raise the error that fits an entry better than "unknown name"."""
    address = url or name
    if redact.has_secret(name) or redact.has_secret(address):  # which is not repeated
        table = f": [remotes.{name}]" if url and not redact.has_secret(name) else ""
        raise UsageError(
            f"the address of a remote must not contain a token{table}",
            cause="addresses are written to settings, logs and screens",
            hint="hf auth login, or set HF_TOKEN; for S3 AWS_PROFILE, or the usual variables of the service",
        )
    known, _, policy = name.rpartition(":")
    if not url and (known == LOCAL or known in tables or (kind_of(known) and not policy.startswith("/"))):
        raise UsageError(
            f"{name}: {policy!r} is not a permission",
            hint="one of r (take hits), w (put there), rw (both)",
        )
    scheme = re.match(_SCHEME, address)
    if (scheme or url) and kind_of(address) is None:
        raise UsageError(
            f"{name}: {scheme[0]} is not the address of a remote"
            if scheme and not url
            else f"[remotes.{name}]: {url} is not the address of a remote",
            hint=f"one of {', '.join(kind.example for kind in KINDS)}",
        )
