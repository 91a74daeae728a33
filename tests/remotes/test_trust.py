"""What this user did not make and does not own is not used: as a hit, as the nearest record, or by an import."""

from __future__ import annotations

import io
import json
import os
import time

import pytest

from cachekit.errors import AuthError, RemoteError, UntrustedError, UsageError
from cachekit.remotes import address, layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.hub.account import is_own
from cachekit.remotes.hub.client import Client
from cachekit.remotes.judging import Trust
from cachekit.remotes.objectstore import ObjectStorage
from cachekit.remotes.objectstore.connect import ObjectService
from cachekit.remotes.port import Limits
from cachekit.remotes.remote import Remote
from cachekit.store.record import file_path
from cachekit.verbs.imports import import_bundle
from cachekit.verbs.plan import plan
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.warm import warm
from tests.remotes.storage_makers.bucket import bucket_hub, make_storage
from tests.remotes.storage_processes import serve
from tests.store.bundle_files import whole  # noqa: F401 - a fixture
from tests.support.cli_session import publish as publish_recipe
from tests.support.cli_session import the_error
from tests.support.hubserver.faults import Fault
from tests.support.standins import Watched

pytest_plugins = ["tests.support.cli_session"]


def remote(storage, memory, **options):
    return Remote(storage, memory, readable=True, writable=True, **options)


# The Hub


@pytest.fixture
def hub_storage(tmp_path):
    """Opens the same private repo of the organisation `team` anew."""
    with serve("hub", tmp_path / "server") as make:
        yield make


def demands(one):
    """Why its records need signatures, asked as a run asks: what it is now, then whose it is."""
    one.revision()
    return one.demands()


def asked(hub, kind="whoami"):
    return sum(kind in entry.path for entry in hub.requests)


def says(hub, **document):
    """Have the Hub say this of the token, from now on."""
    hub.faults.add(Fault("rewrite", on="GET /api/whoami-v2", times=None, body=json.dumps(document)))


@pytest.mark.feature("M1")
def test_a_private_repo_of_ones_organisation_is_trusted_and_asked_about_once(hub_storage, tmp_path):
    hub = hub_storage.hub
    hub.log.clear()
    for _ in range(3):
        assert demands(remote(hub_storage(), tmp_path)) == ""
    assert asked(hub) == 1, "whose token it is, is remembered in the store"
    one = remote(hub_storage(), tmp_path)
    hub.log.clear()
    for _ in range(3):
        demands(one)
    assert len(hub.requests) == 1


def test_a_public_repo_is_not_used_and_nobody_is_asked_whose_it_is(hub_storage, tmp_path):
    hub_storage.repo.private = False
    hub_storage.hub.log.clear()
    one = remote(hub_storage(), tmp_path)
    assert demands(one) == "it is public"
    with pytest.raises(UntrustedError, match="is not used") as raised:
        one.owned()
    assert (raised.value.exit_code, raised.value.code, raised.value.cause) == (5, "untrusted", "it is public")
    assert "a compiler cache is code" in raised.value.hint
    assert 'trust = "all"' in raised.value.hint
    assert "--trust-all" in raised.value.hint
    assert asked(hub_storage.hub) == 0
    assert demands(remote(hub_storage(), tmp_path, trust=Trust(everything=True))) == ""


def test_a_private_repo_of_somebody_else_is_not_used(hub_storage, tmp_path):
    says(hub_storage.hub, name="ann", orgs=[{"name": "others"}])
    told = demands(remote(hub_storage(), tmp_path))
    assert told.startswith("it belongs to team, which is neither this token's user nor an organisation")
    hub_storage.hub.faults.clear()
    assert demands(remote(hub_storage(), tmp_path)) == "", "distrust is not remembered"


@pytest.mark.parametrize("answer", [{}, {"name": 7, "orgs": "team"}, {"orgs": [{"fullname": "team"}, "team", None]}])
def test_an_answer_that_names_nobody_trusts_nobody(hub_storage, tmp_path, answer):
    says(hub_storage.hub, **answer)
    assert demands(remote(hub_storage(), tmp_path))


def test_what_the_hub_cannot_say_is_not_known_and_what_it_said_once_is(hub_storage, tmp_path):
    fault = Fault("503", on="GET /api/whoami-v2", times=None)
    hub_storage.hub.faults.add(fault)
    with pytest.raises(RemoteError) as raised:  # it could not be asked, which is another exit code
        demands(remote(hub_storage(), tmp_path / "new"))
    assert not isinstance(raised.value, UntrustedError)
    hub_storage.hub.faults.remove(fault)
    demands(remote(hub_storage(), tmp_path / "known"))
    (note,) = (tmp_path / "known").glob("accounts-*.json")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"asked": time.time() - 7 * 86400}))
    hub_storage.hub.faults.add(fault)
    hub_storage.hub.log.clear()
    assert demands(remote(hub_storage(), tmp_path / "known")) == ""
    assert asked(hub_storage.hub) >= 1, "what is old is asked again, and holds where nobody answers"


def test_a_public_repo_that_was_once_private_is_used_no_longer(hub_storage, tmp_path):
    assert not demands(remote(hub_storage(), tmp_path))
    hub_storage.repo.private = False
    assert demands(remote(hub_storage(), tmp_path))


def test_no_token_is_written_down(hub_storage, tmp_path):
    demands(remote(hub_storage(), tmp_path))
    written = b"".join(path.read_bytes() + path.name.encode() for path in tmp_path.rglob("*") if path.is_file())
    assert hub_storage.hub.token.encode() not in written


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'{"names": 7, "asked": "x"}', b"[" * 100_000, b"\xff"])
def test_a_damaged_note_is_asked_for_anew(tmp_path, note):
    def has(owner):
        return is_own(owner, tmp_path, "https://hub", "hf_x", lambda: {"name": "ann", "orgs": []})

    assert has("ann")
    (path,) = tmp_path.iterdir()
    path.write_bytes(note)
    assert has("ann")
    assert not has("team")


def test_a_note_of_another_token_says_nothing(tmp_path):
    assert is_own("ann", tmp_path, "https://hub", "hf_x", lambda: {"name": "ann"})
    assert not is_own("ann", tmp_path, "https://hub", "hf_y", lambda: {"name": "bob"})
    assert not is_own("ann", tmp_path, "https://mirror", "hf_x", lambda: {"name": "bob"})


def test_buckets_are_judged_as_repos_are(tmp_path):
    import huggingface_hub

    with bucket_hub(tmp_path / "server") as hub:
        assert not demands(remote(make_storage(hub), tmp_path / "memory"))
        says(hub, name="ann", orgs=[])
        assert demands(remote(make_storage(hub), tmp_path / "other"))
        api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
        api.delete_bucket("team/cache")
        api.create_bucket("team/cache", private=False)
        assert demands(remote(make_storage(hub), tmp_path / "memory")) == "it is public"


# Object stores


UNSIGNED = [
    ("s3://bucket/cache", "AWS_SKIP_SIGNATURE"),
    ("gs://bucket/cache", "GOOGLE_SKIP_SIGNATURE"),
    ("az://container/cache", "AZURE_SKIP_SIGNATURE"),
]


@pytest.mark.parametrize(("place", "variable"), UNSIGNED)
def test_what_is_read_without_credentials_is_a_strangers_whatever_the_settings_say(
    monkeypatch, tmp_path, place, variable
):
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACACHEKITTEST0000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    link = address.parse(["local:rw", place], {})[1]
    for value in ("0", "false"):
        monkeypatch.setenv(variable, value)
        assert address.make(link).stranger() == ""
    monkeypatch.setenv(variable, "true")
    assert address.make(link).stranger() == f"it is read without credentials ({variable})"
    vouched = remote(address.make(link), tmp_path, trust=Trust(said={place: "owner"}))
    assert vouched.demands() == f"it is read without credentials ({variable})"


@pytest.mark.parametrize(("place", "variable"), UNSIGNED)
@pytest.mark.parametrize("ours", ["false", None])
def test_a_variable_that_is_spelled_in_another_case_counts_too(monkeypatch, place, variable, ours):
    """obstore reads it: then a public bucket is read as anybody reads it, and is nobody's own."""
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    other = variable.replace("SKIP", "Skip").replace("SIGNATURE", "signature")
    if ours:
        monkeypatch.setenv(variable, ours)
    monkeypatch.setenv(other, "true")
    made = address.make(address.parse(["local:rw", place], {})[1])
    assert made.stranger() == f"it is read without credentials ({other})"


CLEAR = "it is read over http://, and others on the network may alter that"


@pytest.mark.feature("T2")
@pytest.mark.parametrize(
    ("server", "stranger"),
    [
        ("http://minio.lab:9000", CLEAR),
        ("http://192.0.2.7", CLEAR),
        ("http://127.0.0.1.lab", CLEAR),
        ("http://127.0.0.1:9000", ""),
        ("http://[::1]:9000", ""),
        ("http://localhost:9000", ""),
        ("https://minio.lab:9000", ""),
    ],
)
def test_a_bucket_beyond_a_network_without_tls_is_nobodys_own_whatever_the_settings_say(
    monkeypatch, tmp_path, server, stranger
):
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    place = "s3://bucket/cache"
    link = address.parse(["local:rw", "lab"], {"lab": {"url": place, "endpoint": server}})[1]
    assert address.make(link).stranger() == stranger
    assert remote(address.make(link), tmp_path, trust=Trust(said={place: "owner"})).demands() == stranger


@pytest.mark.feature("T2")
def test_a_private_repo_is_nobodys_own_where_the_hub_answers_without_tls():
    """Whose token that is, and that the repo is private, the same answers say; nothing is asked."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (make test-hub)")
    hub = Client("hf://me/cache", "http://hub.lab", "hf_token", Limits())
    assert hub.stranger("me/cache", None, private=True) == CLEAR


def test_a_service_that_is_added_is_a_strangers_without_credentials(monkeypatch):
    """As docs/add-a-remote.md adds one: it names the variable that makes its class of obstore send none."""
    pytest.importorskip("obstore", reason="obstore is not installed (make test-s3)")

    class R2(ObjectService):
        scheme = "r2"
        service = "Cloudflare R2"
        store = "S3Store"
        skips = "AWS_SKIP_SIGNATURE"

    def opened():
        return ObjectStorage(R2(), "r2://bucket/x", {"endpoint": "https://account.example"})

    monkeypatch.delenv("AWS_SKIP_SIGNATURE", raising=False)
    assert opened().stranger() == ""
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "1")
    assert opened().stranger() == "it is read without credentials (AWS_SKIP_SIGNATURE)"


def test_no_kind_of_object_store_is_left_out_above():
    kinds = {kind.module for kind in address.KINDS if ".objectstore." in kind.module}
    assert {address.kind_of(place).module for place, _ in UNSIGNED} == kinds


UNKNOWN = "who may write to a bucket cannot be asked"


@pytest.mark.feature("T2")
@pytest.mark.parametrize(
    ("said", "options", "demands"),
    [
        ("", {}, UNKNOWN),
        ("owner", {}, ""),
        ("all", {}, ""),
        ("signed", {}, "the settings ask for signatures"),
        ("", {"only": "owner"}, UNKNOWN),
        ("owner", {"only": "owner"}, ""),
        ("all", {"only": "owner"}, UNKNOWN),
        ("signed", {"only": "owner"}, "the settings ask for signatures"),
        ("owner", {"only": "signed"}, "--trust asks for signatures"),
        ("", {"everything": True}, ""),
    ],
)
def test_a_bucket_is_this_users_once_the_settings_say_so(tmp_path, said, options, demands):
    with serve("memory_store", tmp_path) as make:
        storage = make()
        trust = Trust(said={storage.name: said} if said else {}, **options)
        assert remote(storage, tmp_path, trust=trust).demands() == demands


@pytest.mark.feature("T2")
def test_what_a_stranger_puts_into_a_bucket_is_not_used_and_pushing_there_is_allowed(tmp_path):
    with serve("memory_store", tmp_path) as make:
        trust = Trust()
        eve = Watched(tmp_path / "eve", shared=[(make(), "rw")], trust=trust)
        warm(eve.session, eve.prepare())
        assert len(list(make().list(layout.RECORDS, ""))) == 1, "it was pushed"
        bob = Watched(tmp_path / "bob", shared=[(make(), "rw")], trust=trust)
        seen = plan(bob.prepare(), bob.store, bob.session.remotes)
        assert (seen.hit, seen.nearest) == (False, None)
        assert UNKNOWN in seen.untrusted[0]
        assert list(bob.store.records()) == []
        with pytest.raises(UntrustedError) as raised:
            pull_recipe(bob.session, bob.prepare())
        assert 'trust = "owner"' in raised.value.hint
        assert warm(bob.session, bob.prepare()).compiled, "and then it is bob's own"
        assert plan(bob.prepare(), bob.store, bob.session.remotes).hit
        ann = Watched(tmp_path / "ann", shared=[(make(), "r")], trust=Trust(said={make().name: "owner"}))
        assert plan(ann.prepare(), ann.store, ann.session.remotes).hit


# A folder


@pytest.mark.feature("T2")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_strangers_file_in_ones_own_folder_is_no_hit(tmp_path, monkeypatch):
    """It is told before anything is fetched, with what keeps it from being used."""
    monkeypatch.setattr("cachekit.remotes.layout.TINY", 0)
    folder = tmp_path / "shared"
    folder.mkdir()
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(folder), "rw")])
    record = warm(ann.session, ann.prepare()).record
    paths = [folder / file_path(module, file) for module in record.modules for file in module.files]
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(folder), "r")])
    assert plan(bob.prepare(), bob.store, bob.session.remotes).hit
    os.chown(paths[-1], 65534, 65534)
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(folder), "r")])
    seen = plan(bob.prepare(), bob.store, bob.session.remotes)
    assert not seen.hit
    assert f"{paths[-1]} belongs to another user (" in seen.untrusted[0]
    with pytest.raises(UntrustedError):
        warm(bob.session, bob.prepare(), require_warm=True)
    paths[-1].unlink()
    paths[-1].symlink_to("/etc/passwd")
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(folder), "r")])
    assert warm(bob.session, bob.prepare()).compiled, "what is not there is no reason to leave the remote"
    assert bob.session.remotes.readable[0].usable()


# Imports


def test_a_bundle_is_taken_only_where_somebody_says_so(tmp_path, whole):
    raw = whole[0].read_bytes()
    me = Watched(tmp_path / "me")
    with pytest.raises(UntrustedError, match=r"x\.tar is not used") as raised:
        import_bundle(me.session, io.BytesIO(raw), "x.tar")
    assert raised.value.cause.startswith("anybody can make a bundle, and toy (")
    assert raised.value.cause.endswith(") in it is not signed")
    assert list(me.store.records()) == []
    assert import_bundle(me.session, io.BytesIO(raw), "x.tar", dry_run=True).records, "looking is no use"
    trusting = Watched(tmp_path / "me", trust_all=True)
    assert import_bundle(trusting.session, io.BytesIO(raw), "x.tar").records


# What is said of it


def test_a_table_says_whom_to_trust():
    def link(**table):
        return address.parse(["local:rw", "team:r"], {"team": {"url": "/mnt/cache", **table}})[1]

    for said in ("owner", "signed", "all"):
        assert (link(trust=said).trust, dict(link(trust=said).options)) == (said, {})
    assert link().trust == ""
    with pytest.raises(UsageError, match=r"\[remotes\.team\]: trust = 'some' is not a known value"):
        link(trust="some")


@pytest.mark.feature("U1")
def test_the_command_line_says_it(command, machine, work, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    publish_recipe(tmp_path / "elsewhere")
    cache = f"local:rw,{shared}:rw"
    command("push", "tiny.yaml", "--home", str(tmp_path / "elsewhere"), "--cache", cache)
    shared.chmod(0o777)
    answer = command("plan", "tiny.yaml", "--cache", cache)
    assert answer.out.startswith("tiny: miss")
    assert "a record of this key is there, but it is not signed; every user of this machine" in " ".join(
        answer.out.split()
    )
    assert "a compiler cache is code" not in " ".join(answer.err.split()), "the warning is one sentence"
    for words in (["pull"], ["warm", "--require-warm"], ["train", "--require-warm"]):
        refused = command(*words, "tiny.yaml", "--cache", cache, code=5)
        code, _, cause, hint = the_error(refused)  # told once, and by no warning before it
        assert (code, hint.startswith("a compiler cache is code")) == ("untrusted", True)
        assert "it is not signed" in cause
    trusting = command("plan", "tiny.yaml", "--cache", cache, "--trust-all")
    assert trusting.out.startswith("tiny: hit")
    assert "a compiler cache is code that runs on this machine" in " ".join(trusting.err.split())
    (work / "cachekit.toml").write_text(f'cache = "local:rw,t:r"\n[remotes.t]\nurl = "{shared}"\ntrust = "all"\n')
    answer = command("plan", "tiny.yaml")
    assert answer.out.startswith("tiny: hit")
    assert answer.err == ""


def test_a_token_that_is_refused_is_no_question_of_trust(hub_storage, tmp_path):
    hub_storage.hub.faults.add(Fault("403", on="GET /api/whoami-v2", times=None))
    with pytest.raises(AuthError) as raised:
        demands(remote(hub_storage(), tmp_path))
    assert raised.value.exit_code == 4
