"""The `[trust]` table of the settings: whose records are used, which no longer are, and what signs one's own.

    [trust]
    key = "~/.ssh/id_ed25519"     # in the user's file alone
    salt = ""
    [trust.signers.alice]
    key = "ssh-ed25519 AAAA…"
    valid_before = "2027-01-01"
    [trust.revoked]
    keys = ["SHA256:…"]
    records = ["<digest>"]
    before = "2026-11-01"

The table is only ever read from files of the user and of the project, never from a cache. Unlike other settings it is
put together from both files: what one revokes, the other does not bring back. `key` stands in the user's file alone.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timezone
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from cachekit import files, redact
from cachekit.errors import UsageError
from cachekit.text import cut, parse_time
from cachekit.values import by_value

# What is asked of a place's records, from the least: nothing, signatures where others can write, signatures.
Mode = Literal["all", "owner", "signed"]
MODES: tuple[Mode, ...] = ("all", "owner", "signed")
KEY = "CACHEKIT_TRUST_KEY"  # the variable of `trust.key`
YOU = "you"  # what the user's own key is called where the settings do not name it, and how names of earlier ones begin
_NAME = r"[A-Za-z0-9._@+-]+(?: [A-Za-z0-9._@+-]+)*"  # of a signer: letters of other scripts look like these
_OF_PROJECT = " of the project"  # behind a name that the user's own settings give to another key
_PRIVATE = "PRIVATE KEY-----"
_SIGNER = ("key", "valid_after", "valid_before")
_REVOKED = ("keys", "records", "before")


class SignerTable(Struct, frozen=True):
    """A signer: the line of a public key, and from when until when it is believed, in UTC; None means no limit."""

    key: str
    valid_after: datetime | None = None
    valid_before: datetime | None = None


class RevokedTable(Struct, frozen=True):
    """What is no longer believed: fingerprints of keys, digests of records, and all that was made before a time."""

    keys: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    before: datetime | None = None


class TrustTable(Struct, frozen=True):
    """The whole table.

    Attributes:
        key: The path of the key that signs, or the key itself, as a CI service hands out secrets; never shown then.
        salt: With another one, all older records are misses.
        signers: By the names that the settings give them.
        revoked: What is no longer believed.
    """

    key: str = ""
    salt: str = ""
    signers: Mapping[str, SignerTable] = {}
    revoked: RevokedTable = RevokedTable()

    __hash__ = by_value

    @property
    def revokes(self) -> bool:
        """Whether anything is revoked."""
        return bool(self.revoked.keys or self.revoked.records or self.revoked.before)

    def check_signs(self, fingerprint: str) -> None:
        """See that a key may sign.

        Raises:
            UsageError: It is revoked: nobody who revoked it would use what it signs.
        """
        if fingerprint in self.revoked.keys:
            raise UsageError(
                f"the signing key {fingerprint} is revoked",
                cause="nothing is signed with it",
                hint=f"make another one (ssh-keygen -t ed25519 -f FILE) and name it: cachekit trust init --key FILE; "
                f"or set {KEY} to it",
            )

    @property
    def shown(self) -> dict[str, Any]:
        """The table as it may be shown: what nothing sets is left out."""
        said: dict[str, Any] = {"key": hide(self.key), "salt": self.salt}
        said["signers"] = {
            name: {field: _text(value) for field, value in structs.asdict(one).items() if value}
            for name, one in self.signers.items()
        }
        said["revoked"] = {field: _text(value) for field, value in structs.asdict(self.revoked).items() if value}
        return {name: value for name, value in said.items() if value}

    def __repr__(self) -> str:
        return f"TrustTable({self.shown})"


def hide(key: str) -> str:
    """What `trust.key` says, as it may be shown: a path is, a key is not."""
    return redact.HIDDEN if _PRIVATE in key else redact.address(key)


def is_inline(key: str) -> bool:
    """Whether `trust.key` holds the key itself, and not its path."""
    return _PRIVATE in key


def is_fingerprint(text: str) -> bool:
    """Whether a text is the fingerprint of a key, as `revoked.keys` has it."""
    return re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", text) is not None


def anchored(table: Any, path: Path) -> Any:
    """A file's table, whose relative path of a key starts at the file.

    Raises:
        UsageError: The file holds the private key itself, or names a signer who never counts.
    """
    _check_days(table, path)
    key = table.get("key") if isinstance(table, dict) else None
    if not isinstance(key, str) or not key or key.startswith(("/", "~", "$")):
        return table
    if is_inline(key):
        raise UsageError(
            f"{path}: trust.key holds a private key",
            cause="others read settings files, and they end up in repositories",
            hint=f"make a new key; name its path here, or give the key itself in {KEY}",
        )
    return {**table, "key": str(path.parent / key)}


def same_key(one: str, other: str) -> bool:
    """Whether two lines hold the same public key. A key is its bytes: base64 has several spellings for some."""
    return _bytes_of(one) == _bytes_of(other)


def _bytes_of(line: str) -> bytes:
    word = line.split()[1:2]
    with suppress(ValueError):
        return base64.b64decode(word[0], validate=True) if word else line.encode()
    return line.encode()  # which is refused as a key where it is read as one


def is_own(name: str) -> bool:
    """Whether the settings call a key of the user's own so: the present one, or one from before."""
    return re.match(rf"{YOU}\b", name.strip(), re.IGNORECASE) is not None


def check_project(table: Any, path: Path) -> None:
    """See that a project's file does not say who this user is: it may be a stranger's.

    It says neither what signs, as that key's records are believed, nor which signer answers call `you`.

    Raises:
        UsageError: It does.
    """
    for name in _signers(table):
        if is_own(name):
            shown = redact.address(name)
            raise UsageError(
                f"{path}: a project's signer cannot be called {shown}",
                cause="answers use this name for your own key, and the file may be somebody else's",
                hint=f"give the signer another name in [trust.signers.{shown}]",
            )
    if isinstance(table, dict) and "key" in table:
        raise UsageError(
            f"{path}: trust.key may not be set by a project",
            cause="what that key signed would be used as if you had made it, and the file may be somebody else's",
            hint=f"remove the line; `cachekit trust init --key FILE` names your key in your own settings, {KEY} "
            "for one project; to trust a teammate's key: cachekit trust add NAME FILE.pub",
        )


def _check_days(table: Any, path: Path) -> None:
    """See that each signer of a file counts on some day: else the line only ends what other lines say of its key.

    Of both files together that may be meant: the user's narrows the project's.
    """
    for name, one in _signers(table).items():
        with suppress(ValueError):  # what is wrong otherwise is refused when the whole is read
            signer = _signer(name, one)
            if signer.valid_after and signer.valid_before and signer.valid_after >= signer.valid_before:
                shown = redact.address(name)
                raise UsageError(
                    f"{path}: the key of {shown} would never be valid",
                    cause=(
                        f"it is valid from {one['valid_after']} on, and no longer valid from {one['valid_before']} on"
                    ),
                    hint="swap valid_after and valid_before, or leave one of them out; to stop trusting a key: "
                    f"cachekit trust revoke {shown}",
                )


def merged(user: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of the user's file and of the project's as one. Each has been read by itself: nothing is wrong in it.

    What either revokes is revoked, of two dates the later one counts, and two salts are one together. Where both name a
    signer with the same key, it is believed only while both say so. Where both call two keys by one name, which is a
    `clash`, the project's is called otherwise.
    """
    both = {**user, **project}
    salts = (user.get("salt", ""), project.get("salt", ""))
    both["salt"] = " and ".join(dict.fromkeys(filter(None, salts)))
    mine, theirs = _signers(user), _signers(project)
    both["signers"] = {
        **mine,
        **{
            name + _OF_PROJECT * any(_are_two(own, mine[own], name, one) for own in mine): _narrowed(one, mine)
            for name, one in theirs.items()
        },
    }
    mine, theirs = user.get("revoked", {}), project.get("revoked", {})
    both["revoked"] = {**mine, **theirs}
    for name in ("keys", "records"):
        both["revoked"][name] = [*mine.get(name, []), *theirs.get(name, [])]
    if "before" in mine and "before" in theirs:
        both["revoked"]["before"] = max(_moment(mine["before"], ""), _moment(theirs["before"], ""))
    return both


def clash(user: Any, project: Any) -> UsageError | None:
    """What is said where the user's file and the project's call two keys by one name; None where they do not.

    To revoke that name would be meant for one of them, and the other would go on as if it were the first.
    """
    for name, one in _signers(project).items():
        for own, known in _signers(user).items():
            if _are_two(own, known, name, one):
                shown = redact.address(name)
                return UsageError(
                    f"{shown} is the name of two signers",
                    cause=f"your own settings say {cut(known['key'], 80)}, and the project's {cut(one['key'], 80)}",
                    hint=f"give one of them another name: [trust.signers.{shown}] in either file; to revoke both: "
                    f"cachekit trust revoke {shlex.quote(shown)}",
                )
    return None


def _signers(table: Any) -> Mapping[str, Any]:
    signers = table.get("signers") if isinstance(table, dict) else None
    return signers if isinstance(signers, dict) else {}


def _are_two(own: str, known: Any, name: str, one: Any) -> bool:
    """Whether two lines have one name, as people tell names apart, and two keys."""
    return own.casefold() == name.casefold() and not same_key(known["key"], one["key"])


def called(name: str, signers: Mapping[str, SignerTable]) -> list[str]:
    """The signers that somebody means by a name: more than one, where files call two keys so."""
    wanted = name.casefold()
    return [one for one in signers if wanted in {one.casefold(), one.removesuffix(_OF_PROJECT).casefold()}]


def _narrowed(signer: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """A signer of the project's file, believed no longer than the user's file believes the same key."""
    for one in known.values():
        if same_key(one["key"], signer["key"]):
            for name, stricter in (("valid_after", max), ("valid_before", min)):
                times = [_moment(of[name], "") for of in (signer, one) if name in of]
                signer = {**signer, name: stricter(times)} if times else signer
    return signer


def read(value: Any) -> TrustTable:
    """The checked table.

    Raises:
        ValueError: A name in it is unknown, or a value is of the wrong kind.
    """
    if isinstance(value, TrustTable):
        return value
    table = _table(value, "trust", ("key", "salt", "signers", "revoked"))
    signers = table.get("signers", {})
    if not isinstance(signers, dict):
        raise ValueError("expected [trust.signers.NAME] tables with a key")  # noqa: TRY004 - one kind of error
    gone = _table(table.get("revoked", {}), "trust.revoked", _REVOKED)
    return TrustTable(
        key=_word(table.get("key", ""), "trust.key"),
        salt=_word(table.get("salt", ""), "trust.salt"),
        signers={name: _signer(name, one) for name, one in signers.items()},
        revoked=RevokedTable(
            _listed(gone.get("keys", []), "keys", is_fingerprint, "fingerprints, as `ssh-keygen -l` prints"),
            _listed(gone.get("records", []), "records", files.is_digest, "digests of 64 digits"),
            _moment(gone["before"], "trust.revoked.before") if "before" in gone else None,
        ),
    )


def _signer(name: str, value: Any) -> SignerTable:
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            f"a signer is called {cut(ascii(name), 80)}: a name has letters from a to z, digits, single spaces and "
            ". _ @ + -, so that none looks like another"
        )
    where = f"trust.signers.{redact.address(name)}"
    table = _table(value, where, _SIGNER)
    key = _word(table.get("key", ""), f"{where}.key")
    if not key or is_inline(key):
        raise ValueError(
            f'expected key = "ssh-ed25519 AAAA…" for the signer {redact.address(name)}: a line of a .pub file'
        )
    times = {field: _moment(table[field], f"{where}.{field}") for field in _SIGNER[1:] if field in table}
    return SignerTable(key, **times)


def _table(value: Any, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a [{where}] table")  # noqa: TRY004 - one kind of error for bad values
    if unknown := [name for name in value if name not in names]:
        near = get_close_matches(str(unknown[0]), names, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        # No colon: what stands before one and a question mark is taken for an address, and hidden.
        raise ValueError(f"[{where}] has no {redact.address(str(unknown[0]))}; {meant}")
    return value


def _word(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text in quotes")  # noqa: TRY004 - one kind of error for bad values
    return value


def _listed(value: Any, name: str, fits: Callable[[str], bool], what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"trust.revoked.{name} must be a list of {what}")
    if bad := [one for one in value if not fits(one)]:
        raise ValueError(
            f"trust.revoked.{name} must be a list of {what}, and {redact.address(cut(bad[0], 80))!r} is not one"
        )
    return tuple(dict.fromkeys(value))


def _moment(value: Any, where: str) -> datetime:
    """A date, or a date and a time, as text or as TOML has them; in UTC where no zone is said."""
    if isinstance(value, str):
        try:
            value = parse_time(value)
        except ValueError:
            raise ValueError(f'{where} must be a date, as "2026-11-01"') from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError(f'{where} must be a date, as "2026-11-01"')  # noqa: TRY004 - one kind of error for bad values
    return value.replace(tzinfo=value.tzinfo or timezone.utc).astimezone(timezone.utc)


def is_later(known: Any, date: str) -> bool:
    """Whether a date of the settings is there, and later than another one. What is not a date is refused elsewhere."""
    try:
        return known is not None and _moment(known, "") > _moment(date, "")
    except ValueError:
        return False


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return list(value) if isinstance(value, tuple) else redact.address(value)
