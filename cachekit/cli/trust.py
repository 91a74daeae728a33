"""`cachekit trust`: whose records are used, and what signs one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, group, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import ChangedTrust, CheckedRemote, JudgedRecord, SignedRecord, Signers, SigningKey

app = group(
    "Choose whose records are used, and sign your own. A compiler cache is code.\n\n"
    "Example:  cachekit trust add alice alice.pub"
)
KeyFile = Annotated[str, typer.Option("--key", metavar="FILE", help="Sign with this OpenSSH key instead of a new one.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What you call the signer.", show_default=False)]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A .pub file, or the line of a public key.", show_default=False)
]
After = Annotated[
    str, typer.Option("--valid-after", metavar="DATE", help="A day, 2026-11-01: before it, the key does not count.")
]
Until = Annotated[
    str, typer.Option("--valid-before", metavar="DATE", help="A day, 2027-01-01: from then on, the key does not count.")
]
User = Annotated[bool, typer.Option("--user", help="Write your own settings instead of the project's cachekit.toml.")]
What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME|KEY|RECORD...]",
        help="Signers by name or fingerprint (`cachekit trust ls`); records by key (`cachekit store ls`) or digest.",
        show_default=False,
    ),
]
Before = Annotated[
    str,
    typer.Option(
        "--before", metavar="DATE", help="Revoke everything that was made or signed before this day: 2026-11-01."
    ),
]
Records = Annotated[
    list[str],
    typer.Argument(metavar="RECORD...", help="Keys, or their first digits (`cachekit store ls`).", show_default=False),
]
RemoteName = Annotated[
    str,
    typer.Argument(
        metavar="[REMOTE]",
        help="A remote: its name in cachekit.toml, or its address; by default the only one.",
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

    Writes the name and the key to the project's cachekit.toml, which a team reviews like code.

    Example:  cachekit trust add alice alice.pub --valid-before 2027-01-01
    """
    done = cache.trust_add(name, key, valid_after=valid_after, valid_before=valid_before, user=user, dry_run=dry_run)
    return Shown(done, lambda answer: _changed(answer, "trusts"), _files)


@app.command("ls")
@verb("home", "cache", answers="Signers")
def ls(cache: Cache) -> Shown:
    """List whose records are used, and what is revoked.

    Example:  cachekit trust ls --format json
    """
    return Shown(cache.trust_list(), _listed, lambda answer: "\n".join(one.name for one in answer.signers))


@app.command("revoke")
@verb("home", answers="ChangedTrust")
def revoke(cache: Cache, what: What = None, before: Before = "", dry_run: options.DryRun = False) -> Shown:
    """Stop trusting signers, records, or everything before a date.

    Writes to your own settings, which apply in every project, and to the project's, if it has any, for your team to
    review. Copies in the store go to quarantine when a command meets them, with every record that reused them.

    Example:  cachekit trust revoke alice

    Example:  cachekit trust revoke --before 2026-11-01
    """
    done = cache.trust_revoke(*(what or ()), before=before, dry_run=dry_run)
    return Shown(
        done,
        lambda answer: _changed(answer, "revokes"),
        _files,
        warnings=(f"the project's settings were not changed: {done.left}",) if done.left else (),
    )


@app.command("sign")
@verb("home", answers="list[SignedRecord]")
def sign(cache: Cache, records: Records, dry_run: options.DryRun = False) -> Shown:
    """Sign records of the store.

    With your signature you vouch for them. `cachekit push` publishes the signature.

    Example:  cachekit trust sign 3f1c0a
    """
    return Shown(cache.trust_sign(*records, dry_run=dry_run), _signed, lambda done: "\n".join(one.key for one in done))


@app.command("check")
@verb("home", "cache", answers="CheckedRemote")
def check(cache: Cache, remote: RemoteName = "") -> Shown:
    """Show which records of a remote would be used.

    Says who signed each record, and why a record would not be used. Exits 5 if no record there would be used.

    Example:  cachekit trust check team
    """
    return Shown(cache.trust_check(remote), _checked, lambda answer: "\n".join(_used(answer)))


def _key(answer: SigningKey) -> list[str]:
    dry = answer.dry_run
    if answer.hidden_by:
        lines = [f"{'would name' if dry else 'named'} the key {answer.key}"]
    elif answer.made:
        lines = [f"{'would make' if dry else 'made'} the signing key {answer.key}"]
    else:
        lines = [f"{'would sign' if dry else 'signs'} with the key {answer.key}"]
    lines += out.labelled("  fingerprint  ", answer.fingerprint) if answer.fingerprint else []
    then = f"what you publish {'would be' if dry else 'is'} signed"
    if answer.hidden_by:
        then = f"but {answer.hidden_by} is set, and until you unset it, the key that it names signs"
    lines += out.labelled("  named in     ", f"{answer.file}: {then}")
    if answer.public:
        lines.append(f'  for others   cachekit trust add NAME "{answer.public}"')
    if answer.former:
        lines += out.labelled(
            "  before       ",
            f"what the previous key signed is still used: that key is the signer {answer.former} there",
        )
    if answer.lost:
        lines += out.labelled(
            "  before       ",
            f"the key {answer.lost} is gone: what it signed elsewhere is no longer used. If you have its .pub:  "
            "cachekit trust add me-before FILE.pub --user",
        )
    return lines


def _changed(answer: ChangedTrust, what: str) -> list[str]:
    lines = [f"{'would write' if answer.dry_run else 'wrote'} {file}" for file in answer.files]
    lines = lines or ["nothing to write: the settings say so already"]
    for one in answer.said:
        lines += out.labelled(f"  {what}  ", one)
    return lines


def _files(answer: ChangedTrust) -> str:
    return "\n".join(map(str, answer.files))


def _listed(answer: Signers) -> list[str]:
    withdrawn = f"{answer.key} (revoked: nothing is signed)" if answer.key in answer.revoked_keys else ""
    lines = out.labelled("signs with  ", withdrawn or answer.key or "no key; next: cachekit trust init")
    width = max((len(one.name) for one in answer.signers), default=0)
    lines += ["signers"] if answer.signers else ["signers     none; next: cachekit trust add NAME KEY"]
    for one in answer.signers:
        state = "revoked" if one.fingerprint in answer.revoked_keys else ""
        since = f"from {one.valid_after[:10]} on" if one.valid_after else ""
        until = f"before {one.valid_before[:10]}" if one.valid_before else ""
        limits = ", ".join(filter(None, [state, since, until]))
        lines += out.labelled(f"  {one.name.ljust(width)}  ", one.fingerprint + (f" ({limits})" if limits else ""))
    gone = [f"key {print_}" for print_ in answer.revoked_keys] + [
        f"record {digest}" for digest in answer.revoked_records
    ]
    gone += [f"everything before {answer.revoked_before[:10]}"] if answer.revoked_before else []
    for said in gone:
        lines += out.labelled("revoked     ", said)
    if answer.salt:
        lines += out.labelled("salt        ", f"{answer.salt!r}: what was made with another salt is a miss")
    meaning = {
        "owner": "records need a signature if others can write there",
        "signed": "records need a signature",
        "all": "records need no signature, whoever made them",
    }
    for asked in answer.remotes:
        said = f"records need a signature: {asked.untold}" if asked.untold else meaning[asked.mode]
        lines += out.labelled("remote      ", f"{asked.remote}: {said}")
    return lines


def _signed(done: list[SignedRecord]) -> list[str]:
    return [
        f"{one.key[:12]}  {one.recipe}: "
        + ("would be signed" if one.dry_run and one.new else "signed" if one.new else "signed already")
        for one in done
    ]


def _checked(answer: CheckedRemote) -> list[str]:
    who = answer.writers or "only you, or an organisation of yours, can write there"
    asked = f"what is there is used, whoever made it; {who}" if answer.mode == "all" else answer.demands or who
    lines = out.labelled("", f"{answer.remote}: {asked}")
    used = [one for one in answer.records if one.used]
    if not answer.records:
        return [*lines, "  it has no records"]
    if used:
        rows = [[one.key[:12], one.recipe, _because(one)] for one in used]
        lines += ["", *out.table(rows, ["key", "recipe", "used, because it is"])]
    reasons: dict[str, list[JudgedRecord]] = {}
    for one in answer.records:
        if not one.used:
            # What is asked there stands in the first line.
            reasons.setdefault(one.reason.removesuffix(f"; {answer.demands}"), []).append(one)
    for reason, found in reasons.items():
        rows = [[one.key[:12], one.recipe] for one in found]
        lines += ["", *out.labelled("", f"not used: {reason}"), *out.table(rows, ["key", "recipe"])]
    return lines + (["there are more records, which were not checked"] if answer.more else [])


def _because(one: JudgedRecord) -> str:
    if one.how == "signed":
        return f"signed by {', '.join(one.signers)}"
    return {"owner": "from a place of yours", "all": "from a place whose every writer you trust"}.get(one.how, one.how)


def _used(answer: CheckedRemote) -> list[str]:
    return [one.key for one in answer.records if one.used]
