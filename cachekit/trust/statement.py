"""What a signer says of a record, and who makes one: an in-toto Statement [in-toto/attestation, spec/v1/statement.md].

The subjects are all of the record's files, so that tools that know nothing of cachekit can match them; the predicate is
ours. A payload is read only after a signature over it holds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from cachekit import redact
from cachekit.decode import from_json
from cachekit.errors import UsageError
from cachekit.key.canonical import canonical_json
from cachekit.process import user_name
from cachekit.redact.names import secrets_of
from cachekit.store.origin import HERE, How, Origin, ReusedOrigin
from cachekit.store.record import MOST_VALUES, DamagedRecordError, Digest, Record, parse, paths_of, values_of
from cachekit.text import cut, parse_time
from cachekit.trust import sshsig
from cachekit.trust.envelope import SIGNATURE, Envelope, MalformedError, Signature, encode, largest, pae
from cachekit.trust.signer import Signer, holds
from cachekit.trust.sshsig import PublicKey
from cachekit.values import by_value

PAYLOAD_TYPE = "application/vnd.in-toto+json"
TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://github.com/cachekit/cachekit/record/v1"
CHECKS = 8  # signatures of one key over one record: each costs 10 ms, and anybody may write false ones


class CiRun(Struct, frozen=True):
    """A run of a CI service, as its variables tell.

    Attributes:
        service: `github`, `gitlab`, or `ci` for one that is not known.
        repository: Its address.
        workflow: The file, or the job, that ran.
        commit: What was built.
        run: The address of the run, or its number.
    """

    service: str
    repository: str = ""
    workflow: str = ""
    commit: str = ""
    run: str = ""


class Builder(Struct, frozen=True):
    """Who made a record: a claim of whoever signs."""

    user: str = ""
    host: str = ""
    ci: CiRun | None = None


class StatedReuse(Struct, frozen=True):
    """A record that was reused.

    Attributes:
        key: Of that record.
        record: Its document's digest.
        signers: Fingerprints of the keys that signed it.
        created: When it was made; empty where an older cachekit did not say.
        how: Why the signer took it, where that was not for its signatures: `owner`, `all` or `stated`; see `How`. Not
            said of what the signer made, which nobody signed, and of what was taken for a signature; nor by an older
            cachekit.
    """

    key: Digest
    record: Digest
    signers: tuple[str, ...] = ()
    created: str = ""
    how: str | UnsetType = UNSET

    @property
    def taken(self) -> How:
        """Why it was taken; what its signer made rests on that signer, as what others stated does."""
        if self.how in {"owner", "all", "stated"}:
            return cast("How", self.how)
        return "signed" if self.signers else "stated"


class Predicate(Struct, frozen=True):
    """What is said of a record beside its files.

    Attributes:
        record: The digest of the record's document.
        key: The record's; `directory` and `model_type` say where it lies.
        ingredients: The hard ones, which hash to the key.
        toolchain: Versions by package.
        target: What the code is built for.
        reused: The records whose files it reuses.
        builder: Who made it, or published it.
        created: When this was said: UTC, ISO 8601, to the millisecond.
    """

    record: Digest
    key: Digest
    directory: str
    model_type: str
    compiler: str
    ingredients: dict[str, Any]
    toolchain: dict[str, str]
    target: dict[str, Any]
    reused: tuple[StatedReuse, ...]
    builder: Builder
    created: str

    __hash__ = by_value


class Statement(Struct, frozen=True):
    """A statement that was signed: SHA-256 by path, and what is said of them together."""

    subjects: dict[str, str]
    predicate: Predicate

    __hash__ = by_value


class _Sha256(Struct, frozen=True):
    sha256: str  # compared with those of a record, whose form is checked: checking 40,000 here takes 0.1 s


class _Subject(Struct, frozen=True):
    name: str
    digest: _Sha256


class _Document(Struct, frozen=True):
    """A statement as it is written; what a later version says beside that is passed over."""

    kind: Literal["https://in-toto.io/Statement/v1"] = field(name="_type")
    predicate_kind: Literal["https://github.com/cachekit/cachekit/record/v1"] = field(name="predicateType")
    subject: tuple[_Subject, ...]
    predicate: Predicate


def subjects_of(record: Record) -> dict[str, str]:
    """SHA-256 by path of all of a record's files."""
    return {path: file.sha256 for path, file in paths_of(record.modules)}


def sign(record: Record, signer: Signer, origin: Origin = HERE) -> Envelope:
    """An envelope with a statement about a record, as it stands now.

    Args:
        record: The record, exactly as others will see it.
        signer: Whose key signs.
        origin: Where the record came from, if not from nothing: what it reuses is in the statement.

    Raises:
        UsageError: The key cannot be used.
    """
    payload = statement_of(record, origin, builder())
    blob = signer.sign(pae(PAYLOAD_TYPE, payload))
    return Envelope(payload, PAYLOAD_TYPE, (Signature(signer.key.fingerprint, blob),))


def statement_of(record: Record, origin: Origin, who: Builder, created: str = "") -> bytes:
    """The payload that says of a record what its signer knows.

    Args:
        record: The record.
        origin: Where it came from: the records that it reuses are passed on.
        who: Who signs it, on which machine or in which CI run.
        created: When it is said; now, where nothing is.
    """
    predicate = Predicate(
        record=record.digest,
        key=record.key,
        directory=record.directory,
        model_type=record.model_type,
        compiler=record.compiler,
        ingredients=record.hard,
        toolchain=record.provenance.toolchain,
        target={name[7:]: value for name, value in record.hard.items() if name.startswith("target.")},
        reused=tuple(_reused(one) for one in origin.reused),
        builder=who,
        created=created or datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
    )
    return canonical_json(
        {
            "_type": TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha}} for name, sha in sorted(subjects_of(record).items())],
            "predicateType": PREDICATE_TYPE,
            "predicate": msgspec.to_builtins(predicate),
        }
    )


def read_statement(payload: bytes) -> Statement:
    """The statement in a payload whose signature holds.

    Raises:
        MalformedError: It is not a statement about a record, or names a file twice.
    """
    if (values := values_of(payload)) > MOST_VALUES:
        raise MalformedError(f"{values:,} values are too many for a statement about a record")
    try:
        document = from_json(payload, _Document)
        _check_names(payload, document)
    except (DamagedRecordError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(f"it is not a statement about a record: {error}") from error
    subjects = {one.name: one.digest.sha256 for one in document.subject}
    if len(subjects) < len(document.subject):
        raise MalformedError("it names a file twice")
    moment(document.predicate.created)
    return Statement(subjects, document.predicate)


def _check_names(payload: bytes, document: _Document) -> None:
    """See that no name stands twice in an object of a payload.

    The subjects stand last in what `statement_of` writes. Where what was read of them gives the same bytes again, no
    name stands twice there, and looking at 10,000 modules' files one by one, which takes 0.1 s, is left out.

    Raises:
        DamagedRecordError: One does.
    """
    subjects = b'"subject":' + msgspec.json.encode(document.subject, order="sorted") + b"}"
    parse(payload.removesuffix(subjects) + b'"subject":[]}' if payload.endswith(subjects) else payload)


def moment(created: str) -> datetime:
    """A time as a statement says it, in UTC.

    Raises:
        MalformedError: The text is no time, or says no zone.
    """
    try:
        found = parse_time(created)
        if found.tzinfo is not None:
            return found.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        pass
    raise MalformedError(f"{cut(created, 40)!r} is not a time")


def is_about(statement: Statement, record: Record) -> bool:
    """Whether a statement is about exactly this record: its document, its place, and all of its files."""
    said = statement.predicate
    return (
        said.record == record.digest
        and (said.key, said.directory, said.model_type) == (record.key, record.directory, record.model_type)
        and statement.subjects == subjects_of(record)
    )


def holding(
    record: Record, envelopes: Iterable[Envelope], key: PublicKey | None = None
) -> Iterator[tuple[Envelope, PublicKey, Statement]]:
    """The envelopes that are about exactly this record and whose signatures hold, of whomever they are.

    That somebody signed is no reason to use a record: see `policy`.

    Args:
        record: The record.
        envelopes: What lies beside it.
        key: Only signatures of this key are checked, and at most `CHECKS`; where none is given, those of all keys, as a
            true one may stand behind false ones, without those that cannot be checked.

    Yields:
        The envelope, the key that signed it, and what it says.

    Raises:
        UsageError: Nothing here can check a signature of the key that is given.
    """
    unusable = (MalformedError,) if key else (MalformedError, UsageError)
    checked = 0
    for envelope in envelopes:
        for signature in envelope.signatures:
            with suppress(*unusable):
                signer = sshsig.parse(signature.sig).key
                if envelope.payload_type != PAYLOAD_TYPE or signer != (key or signer) or (key and checked == CHECKS):
                    continue
                checked += 1
                if holds(signer, signature.sig, envelope.message):
                    statement = read_statement(envelope.payload)
                    if is_about(statement, record):
                        yield envelope, signer, statement


def standing(record: Record, envelopes: Iterable[Envelope], vain: int = -1) -> tuple[Envelope, ...]:
    """What of these signatures is worth keeping: those that `holding` finds, and those that nothing here can check.

    False ones, and those over other records, cost whoever checks them. Anybody may put them beside a record, also into
    the envelope of a true one.

    Args:
        record: The record.
        envelopes: What lies beside it.
        vain: After so many checks in vain of one key no more of it are made, and none of the others stands; by default
            all are checked.
    """
    failed = Counter[str]()

    def stands(envelope: Envelope, signature: Signature) -> bool:
        one = structs.replace(envelope, signatures=(signature,))
        try:
            key = sshsig.parse(signature.sig).key
            if failed[key.fingerprint] == vain:
                return False
            found = any(holding(record, [one], key))
        except UsageError:
            return True
        except MalformedError:
            return False
        failed[key.fingerprint] += not found  # of one key: a true one of another may stand behind false ones
        return found

    kept = (
        structs.replace(one, signatures=tuple(signature for signature in one.signatures if stands(one, signature)))
        for one in envelopes
    )
    return tuple(one for one in kept if one.signatures)


def fits(record: Record, origin: Origin) -> bool:
    """Whether the document beside a record may hold what `sign` says of it; see `envelope.largest`."""
    payload = statement_of(record, origin, builder())
    room = Signature("", bytes(SIGNATURE))
    return len(encode([Envelope(payload, PAYLOAD_TYPE, (room,))])) <= largest(record)


def _reused(one: ReusedOrigin) -> StatedReuse:
    how = UNSET if one.how in {"here", "signed"} else one.how
    return StatedReuse(one.key, one.record, one.signers, one.created, how)


# Who makes a record


def builder(environ: Mapping[str, str] | None = None) -> Builder:
    """Who runs this, and where.

    Args:
        environ: The environment; the process's own by default.
    """
    import socket

    return Builder(user_name(), socket.gethostname(), ci_run(os.environ if environ is None else environ))


def ci_run(environ: Mapping[str, str]) -> CiRun | None:
    """The run of a CI service that an environment describes; None where it describes none.

    GitHub: docs.github.com, "Variables reference". GitLab: docs.gitlab.com, "Predefined CI/CD variables".
    """
    service, *found = _ci_words(environ.get)
    if not service:
        return None
    # The address of a clone, or of a server, may have a login; a job may be called by the values of its variables.
    secrets = tuple(secrets_of(environ).values())
    return CiRun(service, *(redact.address(redact.printed(value, secrets)) for value in found))


def _ci_words(said: Callable[..., Any]) -> tuple[str, ...]:
    """The fields of a `CiRun` as the variables of its service have them; an empty service where there is none."""
    if said("GITHUB_ACTIONS") == "true":
        address = f"{said('GITHUB_SERVER_URL', 'https://github.com')}/{said('GITHUB_REPOSITORY', '')}"
        run = f"{address}/actions/runs/{said('GITHUB_RUN_ID', '')}"
        # OWNER/NAME/.github/workflows/warm.yml@refs/heads/main
        return "github", address, said("GITHUB_WORKFLOW_REF", ""), said("GITHUB_SHA", ""), run
    if said("GITLAB_CI") == "true":
        # gitlab.com/group/project//.gitlab-ci.yml@refs/heads/main, since GitLab 16.0
        workflow = said("CI_CONFIG_REF_URI") or said("CI_JOB_NAME", "")
        return "gitlab", said("CI_PROJECT_URL", ""), workflow, said("CI_COMMIT_SHA", ""), said("CI_JOB_URL", "")
    if said("CI", "").lower() in {"", "0", "false", "no"}:
        return ("",)
    # No standard: what several services call them (Buildkite, CircleCI, Jenkins, Travis, Woodpecker, Azure).
    named = (
        ("BUILDKITE_REPO", "CIRCLE_REPOSITORY_URL", "GIT_URL", "TRAVIS_REPO_SLUG", "CI_REPO_URL"),
        ("BUILDKITE_PIPELINE_SLUG", "CIRCLE_JOB", "JOB_NAME", "TRAVIS_JOB_NAME", "CI_WORKFLOW_NAME"),
        ("BUILDKITE_COMMIT", "CIRCLE_SHA1", "GIT_COMMIT", "TRAVIS_COMMIT", "CI_COMMIT_SHA"),
        ("BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL", "BUILD_URL", "TRAVIS_BUILD_WEB_URL", "CI_PIPELINE_URL"),
    )
    return "ci", *(next((said(one, "") for one in names if said(one)), "") for names in named)
