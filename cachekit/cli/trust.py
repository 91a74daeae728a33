"""`cachekit trust`: whose records are used, and what signs one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import ChangedTrust, CheckedRemote, SignedRecord, Signers, SigningKey

app = typer.Typer(
    add_completion=False,
    help="Say whose records are used, and sign your own. A compiler cache is code.\n\n"
    "Example:  cachekit trust add alice alice.pub",
    no_args_is_help=True,
    rich_markup_mode=None,
)
KeyFile = Annotated[str, typer.Option("--key", metavar="FILE", help="Sign with this OpenSSH key instead of a new one.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What you call the signer.", show_default=False)]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A .pub file, or the line of a public key.", show_default=False)
]
After = Annotated[str, typer.Option("--valid-after", metavar="DATE", help="Before it, the key does not count.")]
Until = Annotated[str, typer.Option("--valid-before", metavar="DATE", help="From then on, the key does not count.")]
User = Annotated[bool, typer.Option("--user", help="Write your own settings instead of the project's cachekit.toml.")]
What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY|NAME|RECORD]...",
        help="Fingerprints, signers' names, records' digests, or keys of records of the store.",
        show_default=False,
    ),
]
Before = Annotated[str, typer.Option("--before", metavar="DATE", help="Revoke all that was made or signed before.")]
Records = Annotated[
    list[str], typer.Argument(metavar="RECORD...", help="Keys, or the first digits of each.", show_default=False)
]
RemoteName = Annotated[
    str,
    typer.Argument(
        metavar="[REMOTE]",
        help="A remote: its table's name, or its address; the only one by default.",
        show_default=False,
    ),
]


@app.command("init")
@verb(answers="SigningKey")
def init(cache: Cache, key: KeyFile = "", dry_run: options.DryRun = False) -> Shown:
    """Make a signing key, or name one of yours.

    From then on, what you publish is signed.

    Example:  cachekit trust init --key ~/.ssh/id_ed25519
    """
    return Shown(cache.trust_init(key, dry_run=dry_run), _key, lambda answer: str(answer.public))


@app.command("add")
@verb(answers="ChangedTrust")
def add(
    cache: Cache,
    name: Name,
    key: Key,
    valid_after: After = "",
    valid_before: Until = "",
    user: User = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Name a signer whose records are used.

    The project's cachekit.toml says so, which a team reviews like code.

    Example:  cachekit trust add alice alice.pub --valid-before 2027-01-01
    """
    done = cache.trust_add(name, key, valid_after=valid_after, valid_before=valid_before, user=user, dry_run=dry_run)
    return Shown(done, lambda answer: _changed(answer, "trusts"), lambda answer: str(answer.file))


@app.command("ls")
@verb("home", "cache", answers="Signers")
def ls(cache: Cache) -> Shown:
    """List whose records are used, and what is revoked.

    Example:  cachekit trust ls --format json
    """
    return Shown(cache.trust_list(), _listed)


@app.command("revoke")
@verb("home", answers="ChangedTrust")
def revoke(
    cache: Cache, what: What = None, before: Before = "", user: User = False, dry_run: options.DryRun = False
) -> Shown:
    """Stop using signers, records, or all before a date.

    Copies in the store go to quarantine when they are met, with what was made with their help.

    Example:  cachekit trust revoke alice --before 2026-11-01
    """
    done = cache.trust_revoke(*(what or ()), before=before, user=user, dry_run=dry_run)
    return Shown(done, lambda answer: _changed(answer, "revokes"), lambda answer: str(answer.file))


@app.command("sign")
@verb("home", answers="list[SignedRecord]")
def sign(cache: Cache, records: Records, dry_run: options.DryRun = False) -> Shown:
    """Vouch for records of the store.

    `cachekit push` gives the signatures to others.

    Example:  cachekit trust sign 3f1c0a
    """
    return Shown(cache.trust_sign(*records, dry_run=dry_run), _signed)


@app.command("check")
@verb("home", "cache", answers="CheckedRemote")
def check(cache: Cache, remote: RemoteName = "") -> Shown:
    """Show which records of a remote would be used.

    Says who signed each, and why the others would not be used.

    Exits with 5 where no record there would be used.

    Example:  cachekit trust check team
    """
    return Shown(cache.trust_check(remote), _checked, lambda answer: "\n".join(_used(answer)))


def _key(answer: SigningKey) -> list[str]:
    if answer.dry_run and answer.made:
        return [f"would make a key at {answer.key}, and name it in {answer.file}"]
    return [
        f"{'made' if answer.made else 'uses'} {answer.key}: {answer.fingerprint}",
        f"  {answer.file} {'would name' if answer.dry_run else 'names'} it: what this user publishes is signed with it",
        f'  for others: cachekit trust add NAME "{answer.public}"',
    ]


def _changed(answer: ChangedTrust, what: str) -> list[str]:
    word = f"would say: {what}" if answer.dry_run else what
    return [f"{answer.file} {word} {one}" for one in answer.said]


def _listed(answer: Signers) -> list[str]:
    def gone(fingerprint: str) -> str:
        return "revoked" if fingerprint in answer.revoked_keys else ""

    lines = [f"signs with {answer.key}" if answer.key else "nothing signs what is published: cachekit trust init"]
    rows = [
        [one.name, one.fingerprint, one.valid_after[:10], one.valid_before[:10], gone(one.fingerprint)]
        for one in answer.signers
    ]
    lines += out.table(rows, ["signer", "key", "from", "until", ""]) if rows else ["no signers are named"]
    lines += [f"salt {answer.salt!r}: what was made with another one is a miss"] if answer.salt else []
    lines += [f"revoked: key {one}" for one in answer.revoked_keys]
    lines += [f"revoked: record {one}" for one in answer.revoked_records]
    lines += [f"revoked: all before {answer.revoked_before}"] if answer.revoked_before else []
    meaning = {
        "owner": "signatures where others can write",
        "signed": "signatures",
        "all": "nothing: whoever made a record, it is used",
    }
    lines += [f"{one.remote} asks for {meaning[one.mode]}" for one in answer.remotes]
    return lines


def _signed(done: list[SignedRecord]) -> list[str]:
    return [
        f"{one.key[:12]}  {one.recipe}: "
        + ("would be signed" if one.dry_run and one.new else "signed" if one.new else "signed already")
        for one in done
    ]


def _checked(answer: CheckedRemote) -> list[str]:
    who = answer.writers or "only you, or an organisation of yours, can write there"
    asked = f"what lies there is used, whoever made it; {who}" if answer.mode == "all" else answer.demands or who
    lines = [f"{answer.remote}: {asked}"]
    rows = [
        [one.key[:12], one.recipe, "used" if one.used else "not used", ", ".join(one.signers) or one.how or one.reason]
        for one in answer.records
    ]
    lines += out.table(rows, ["key", "recipe", "", "because"]) if rows else ["it has no records"]
    lines += ["there are more records, which were not looked at"] if answer.more else []
    return lines


def _used(answer: CheckedRemote) -> list[str]:
    return [one.key for one in answer.records if one.used]
