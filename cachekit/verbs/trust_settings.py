"""Whose records are used, in the settings: make a signing key, and name signers. What is revoked: see `revoke`."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit import config_files, config_trust, files
from cachekit.disk import in_settings, named
from cachekit.errors import UsageError
from cachekit.process import user_name
from cachekit.text import cause_of, cut
from cachekit.trust.policy import policy_of
from cachekit.trust.signer import key_of, make_key, signer_of
from cachekit.trust.sshsig import LARGEST_FILE, PublicKey, public_key
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.verbs.session import Session

KEY_FILE = "signing_key"  # beside the user's settings


class SigningKey(Answer, frozen=True, tag="cachekit/trust-init/1"):
    """The key that signs what this user publishes.

    Attributes:
        key: The path of the private key, or of the public one that an agent or a device has the private one of.
        public: The line of the public key, for `cachekit trust add`.
        fingerprint: As `ssh-keygen -l` prints it.
        file: The settings that name the key.
        made: The key was made now.
        dry_run: Nothing was written.
        former: What the settings call the key that signed before, which they go on to believe; empty where none did.
        hidden_by: The variable whose key signs in place of this one, as long as it is set; empty where none is.
        lost: Where the key lay that signed before, of which not even the public half can be read: what it signed on
            other machines is no longer used.
    """

    key: str
    public: str
    fingerprint: str
    file: Path
    made: bool
    dry_run: bool = False
    former: str = ""
    hidden_by: str = ""
    lost: str = ""


class NamedSigner(Struct, frozen=True):
    """Somebody whose records are used; times are empty where there is no limit."""

    name: str
    fingerprint: str
    public: str
    valid_after: str = ""
    valid_before: str = ""


class AskedOf(Struct, frozen=True):
    """What is asked of the records of one remote.

    Attributes:
        mode: `owner`, `signed` or `all`.
        untold: Why they need a signature as long as the settings do not say who may write there; empty where that can
            be asked.
    """

    remote: str
    mode: str
    untold: str = ""


class Signers(Answer, frozen=True, tag="cachekit/trust-ls/1"):
    """Whose records are used, and what no longer is.

    Attributes:
        key: The fingerprint of the key that signs; empty where nothing signs.
        salt: With another one, all older records are misses.
        signers: Those whom the settings name.
        revoked_keys: Fingerprints.
        revoked_records: Digests of records.
        revoked_before: What was made or signed before is not used; empty means no date.
        remotes: What each remote's records must have.
        file: Where the settings were read.
    """

    key: str
    salt: str
    signers: tuple[NamedSigner, ...]
    revoked_keys: tuple[str, ...]
    revoked_records: tuple[str, ...]
    revoked_before: str
    remotes: tuple[AskedOf, ...]
    file: str


class ChangedTrust(Answer, frozen=True, tag="cachekit/trust-change/1"):
    """What was added to the settings.

    Attributes:
        files: The settings that were changed; none where they said it before.
        said: The lines, for people.
        left: Why the project's settings do not say it, where they should.
        dry_run: Nothing was written.
    """

    files: tuple[Path, ...]
    said: tuple[str, ...]
    left: str = ""
    dry_run: bool = False


def init(config: Config, key: str = "", *, dry_run: bool = False) -> SigningKey:
    """Make a signing key, or take one, and name it in the user's settings.

    The key that signed before becomes a signer there: what other machines of this user fetched, and what lies on
    remotes, is signed with it.

    Args:
        config: The settings.
        key: The path of a key that is there: of OpenSSH, without or with its passphrase in an agent. By default the
            one that the user's settings name, or a new one beside them.
        dry_run: Write nothing.

    Raises:
        UsageError: The key cannot be used or made, or is revoked, or the settings cannot be written.
    """
    file = user_file()
    text = config_files.text_of(file)
    own = _own_table(file, text)
    hidden_by = config_trust.KEY if config.trust.key != own.key else ""
    if not key and hidden_by:
        raise UsageError(
            f"{config_trust.KEY} already says which key signs",
            cause="what is published is signed with it",
            hint=f"unset {config_trust.KEY}, or use it as it is; --key FILE names a key for when it is not set",
        )
    path = in_settings(key or own.key or str(file.parent / KEY_FILE))
    before, lost = _former(own)
    new = not path.exists()
    if new and key:
        raise UsageError(f"there is no key file {key}", hint="correct --key, or leave it out: then a new key is made")
    said = {"key": str(path.absolute())}
    text = config_files.edited(text, file, ("trust",), said, f'[trust] with key = "{path.absolute()}"')
    if dry_run and new:
        return SigningKey(str(path), "", "", file, made=True, dry_run=True)
    if new:
        make_key(path, f"{user_name()}@{socket.gethostname()}")
    public = signer_of(str(path)).key
    config.trust.check_signs(public.fingerprint)
    former = ""
    known = [one.key for one in own.signers.values()]  # other projects do not see what this one names
    if (
        before
        and before != public
        and before.fingerprint not in config.trust.revoked.keys
        and not any(config_trust.same_key(one, before.line) for one in known)
    ):
        former = f"{config_trust.YOU}-{re.sub('[^A-Za-z0-9]', '', before.fingerprint)[6:14]}"
        wanted = f'[trust.signers.{former}] with key = "{before.line}"'
        text = config_files.edited(text, file, ("trust", "signers", former), {"key": before.line}, wanted)
    if not dry_run:
        config_files.write(file, text)
    return SigningKey(str(path), public.line, public.fingerprint, file, new, dry_run, former, hidden_by, lost)


def _own_table(file: Path, text: str) -> config_trust.TrustTable:
    """What the user's own settings say of trust, whatever a project or a variable says."""
    table = config_files.parse(text, file).get("trust", {})
    return config_trust.read(config_trust.anchored(table, file))


def _former(own: config_trust.TrustTable) -> tuple[PublicKey | None, str]:
    """The key that the user's own settings let sign so far, if any; or where it lay, if neither half can be read."""
    if not own.key:
        return None, ""
    for half in (own.key, f"{own.key}.pub"):
        with suppress(UsageError):
            return key_of(half), ""
    return None, own.key


def add(
    name: str, key: str, file: Path, *, valid_after: str = "", valid_before: str = "", dry_run: bool = False
) -> ChangedTrust:
    """Name a signer in a settings file.

    Args:
        name: What the signer is called in answers.
        key: The line of a public key, or the path of a file that has it.
        file: The settings.
        valid_after: A date; before it the key's signatures do not count.
        valid_before: A date; from it on they no longer do.
        dry_run: Write nothing.

    Raises:
        UsageError: It is not a key or a date, or the file names another key so, or cannot be written.
    """
    public = _given(key)
    values = {"key": public.line, "valid_after": valid_after, "valid_before": valid_before}
    values = {field: said for field, said in values.items() if said}
    wanted = f'[trust.signers.{name}] with key = "{public.line}"'
    text, there = text_to_edit(file, wanted)
    table = there.get("trust", {})
    known = table.get("signers", {}).get(name) if isinstance(table, dict) else None
    if isinstance(known, dict) and not config_trust.same_key(known.get("key", ""), public.line):
        raise UsageError(
            f"{file} already has another key for {name}",
            cause=f"a new key is a new signer: what {name} signed with the old one stays valid until it is revoked",
            hint=f"choose another name, or remove [trust.signers.{name}]",
        )
    made = config_files.edited(text, file, ("trust", "signers", name), values, wanted)
    check(file, made)
    files_changed = changed(file, made, dry_run=dry_run)
    dates = {"from": valid_after, "until before": valid_before}
    told = " ".join([f"{name}: {public.fingerprint}", *(f"{word} {date}" for word, date in dates.items() if date)])
    for place in dict.fromkeys((file, user_file())):
        if public.fingerprint in _revoked(place):
            told += f"; it is revoked in {place}, and is used only if it is taken out of [trust.revoked] there"
    others = table.get("signers", {}) if isinstance(table, dict) else {}
    for other, one in others.items():
        if other != name and config_trust.same_key(one.get("key", ""), public.line):
            told += f"; {file} calls this key {other}, too"
    return ChangedTrust(files_changed, (told,), dry_run=dry_run)


def _revoked(file: Path) -> tuple[str, ...]:
    """The keys that a settings file revokes."""
    return _own_table(file, config_files.text_of(file)).revoked.keys


def listed(config: Config, modes: Sequence[AskedOf]) -> Signers:
    """Whose records are used.

    Args:
        config: The settings.
        modes: What the remotes ask.

    Raises:
        UsageError: A signer's key is none, or the user's own cannot be read.
    """
    table = config.trust
    policy_of(table, next(one.origin for one in config.settings if one.name == "trust"))  # each key is one
    signers = []
    for name, one in table.signers.items():
        public = public_key(one.key)
        signers.append(
            NamedSigner(name, public.fingerprint, public.line, _date(one.valid_after), _date(one.valid_before))
        )
    return Signers(
        key_of(table.key).fingerprint if table.key else "",
        table.salt,
        tuple(signers),
        table.revoked.keys,
        table.revoked.records,
        _date(table.revoked.before),
        tuple(modes),
        next(one.origin for one in config.settings if one.name == "trust"),
    )


def modes(session: Session) -> list[AskedOf]:
    """What is asked of the records of each remote, before anybody was asked who may write there."""
    remotes = session.remotes
    found = {one.name: one for one in (*remotes.readable, *remotes.writable)}
    return [AskedOf(name, remotes.trust.mode(name), one.untold) for name, one in found.items()]


def user_file() -> Path:
    """The user's own settings file, which need not be there yet.

    Raises:
        UsageError: This user has no home.
    """
    file = config_files.user_file()
    if file is None:
        raise UsageError("there is no folder for this user's settings", hint="set HOME, or XDG_CONFIG_HOME")
    return file


def settings_file(folder: Path, *, user: bool) -> Path:
    """The file that a change of trust is written to: the project's, or the user's own.

    Raises:
        UsageError: This user has no home.
    """
    if user:
        return user_file()
    project = config_files.project_file(folder)
    return project[0] if project and project[0].name == "cachekit.toml" else folder / "cachekit.toml"


def text_to_edit(file: Path, wanted: str) -> tuple[str, dict[str, object]]:
    """The text of a settings file that is to be added to, and what it says; see `config_files.editable`."""
    if file == config_files.user_file():
        text = config_files.text_of(file)
        return text, config_files.parse(text, file)
    return config_files.editable(file, wanted)


def changed(file: Path, text: str, *, dry_run: bool) -> tuple[Path, ...]:
    """The settings file, which is written unless it has this text already; then none.

    Raises:
        UsageError: It cannot be written.
    """
    if config_files.text_of(file) == text:
        return ()
    if not dry_run:
        config_files.write(file, text)
    return (file,)


def check(file: Path, text: str) -> None:
    """See that a file's text is good before it is written: no file is left that no run can read.

    Raises:
        UsageError: It is not.
    """
    try:
        table = config_files.parse(text, file).get("trust", {})
        config_trust.read(config_trust.anchored(table, file))
        if file != (own := user_file()):
            config_trust.check_project(table, file)
            mine = config_files.parse(config_files.text_of(own), own).get("trust", {})
            if found := config_trust.clash(mine, table):
                raise found
    except ValueError as error:
        raise UsageError(
            f"nothing was written to {file}", cause=str(error), hint="correct the command, or the file if it says so"
        ) from error


def _given(key: str) -> PublicKey:
    """A public key as somebody names it: its line, or a file with it.

    Raises:
        UsageError: The text is no public key.
    """
    try:
        if any(key.startswith(kind) for kind in ("ssh-", "sk-", "ecdsa-")):
            return public_key(key)
        return public_key(files.read(named(key), LARGEST_FILE).decode("ascii", "replace"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{cut(key, 80)} is not a public key",
            cause=cause_of(error) if isinstance(error, OSError) else str(error),
            hint='give a .pub file, or its line in quotes: "ssh-ed25519 AAAA…"',
        ) from error


def _date(moment: object) -> str:
    return moment.isoformat() if hasattr(moment, "isoformat") else ""
