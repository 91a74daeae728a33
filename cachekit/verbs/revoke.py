"""What is no longer believed, written into the settings: keys, records, and all that is older than a date."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cachekit import config_files, config_trust, files
from cachekit.errors import UsageError
from cachekit.trust.policy import policy_of
from cachekit.trust.signer import key_of
from cachekit.trust.sshsig import public_key
from cachekit.verbs.entry import find, is_key
from cachekit.verbs.trust_settings import ChangedTrust, changed, check, settings_file, text_to_edit, user_file

if TYPE_CHECKING:
    from cachekit.verbs.session import Session


def revoke(
    session: Session, what: Sequence[str], folder: Path, *, before: str = "", dry_run: bool = False
) -> ChangedTrust:
    """Write down what is no longer believed: for this user, whatever the project, and for those who share the project.

    Args:
        session: Its settings name the signers, and its store the records.
        what: Fingerprints of keys, names of signers, digests of records, or keys of records of the store.
        folder: Of the project. Its settings are written beside the user's own where there are some; what cannot be
            written there is told, and no error.
        before: A date that has come: nothing that was made or signed before it is used.
        dry_run: Write nothing.

    Raises:
        UsageError: One is nothing of these, the date lies ahead, or the user's own settings cannot be written.
        UnknownNameError: No record has a key that begins so, or several have.
    """
    if not what and not before:
        raise UsageError(
            "nothing to revoke was named",
            hint="cachekit trust revoke NAME (`cachekit trust ls` has the names), or --before 2026-11-01",
        )
    if config_trust.is_later(before or None, datetime.now(timezone.utc).isoformat()):
        raise UsageError(
            f"{before} has not come yet",
            cause="what is made here until then would be revoked, too, and compiled again each time",
            hint=f"cachekit trust revoke --before {datetime.now(timezone.utc):%Y-%m-%d}",
        )
    keys: list[str] = []
    records: list[str] = []
    names: dict[str, str] = {}
    for one in what:
        kind, meant = _meant(session, one)
        if kind == "record":
            records += meant
            continue
        keys += meant
        names |= {key: f" ({_name_of(key, session.config.trust)})" for key in meant}
    own = user_file()
    made, left = changed(own, _revoking(own, keys, records, before), dry_run=dry_run), ""
    if config_files.project_file(folder):
        project = settings_file(folder, user=False)
        try:
            made += changed(project, _revoking(project, keys, records, before), dry_run=dry_run)
        except UsageError as error:
            left = "; ".join(filter(None, (error.message, error.cause, error.hint)))
    said = [f"key {one}{names.get(one, '')}" for one in keys] + [f"record {one}" for one in records]
    said += [f"all before {before}"] if before else []
    return ChangedTrust(made, tuple(said), left, dry_run)


def _name_of(fingerprint: str, table: config_trust.TrustTable) -> str:
    """What the settings call a key; a line that is no key has no fingerprint."""
    for name, one in table.signers.items():
        with suppress(ValueError):
            if public_key(one.key).fingerprint == fingerprint:
                return name
    with suppress(UsageError):
        if table.key and key_of(table.key).fingerprint == fingerprint:
            return "the key that signs for you"
    return "no signer in your settings has it"


def _meant(session: Session, one: str) -> tuple[Literal["key", "record"], list[str]]:
    """What is revoked by a word of the command line: fingerprints of keys, or a record's digest; raises as `revoke`."""
    signers = session.config.trust.signers
    if named := config_trust.called(one, signers):
        policy_of(session.config.trust)  # or a line is not a key, and there is nothing to revoke by
        return "key", [public_key(signers[name].key).fingerprint for name in named]
    if config_trust.is_fingerprint(one):
        return "key", [one]
    if one.startswith("SHA256:"):
        raise UsageError(
            f"{one} is not a fingerprint",
            hint="it has 43 characters after SHA256: `ssh-keygen -l -f FILE.pub` prints it",
        )
    if files.is_digest(one) and not session.store.by_prefix(one):
        return "record", [one]
    if is_key(one):
        return "record", [find(session.store, one).digest]
    others = "a key's fingerprint, a record's digest, or a record of the store by its key"
    raise UsageError(
        f"there is no signer named {one!r}",
        cause=f"the settings name {', '.join(signers) or 'no signers'}",
        hint=f"name one of these, {others}" if signers else f"name {others}",
    )


def _revoking(file: Path, keys: Sequence[str], records: Sequence[str], before: str) -> str:
    """The text of a settings file that revokes these as well; of two dates the later one stays.

    Raises:
        UsageError: It cannot be read or added to.
    """
    asked = {"keys": list(keys), "records": list(records), "before": before}
    wanted = "[trust.revoked] with " + ", ".join(f"{field} = {value!r}" for field, value in asked.items() if value)
    text, there = text_to_edit(file, wanted)
    trust = there.get("trust", {})
    gone = trust.get("revoked", {}) if isinstance(trust, dict) else {}
    values: dict[str, config_files.Value] = {}
    for field, new in (("keys", keys), ("records", records)):
        if new:
            values[field] = list(dict.fromkeys([*gone.get(field, []), *new]))
    if before and not config_trust.is_later(gone.get("before"), before):
        values["before"] = before
    made = config_files.edited(text, file, ("trust", "revoked"), values, wanted) if values else text
    check(file, made)
    return made
