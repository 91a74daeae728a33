"""The remote of a Hub repo when the test Hub refuses, hangs, lies or is away; and what is not said."""

from __future__ import annotations

import gzip
import io
import logging
import socket
import traceback
import tracemalloc

import pytest

from cachekit.errors import (
    LONGEST_WAIT,
    AuthError,
    BusyError,
    CachekitError,
    ConflictError,
    IntegrityError,
    MissingRemoteError,
    RemoteError,
    UncertainError,
    UsageError,
)
from cachekit.remotes.hub import HubStorage, create, look
from cachekit.remotes.hub.client import Client
from cachekit.remotes.hub.errors import _wait
from cachekit.remotes.port import ABSENT, Commit, Write
from tests.remotes.hub_storage import (  # noqa: F401 - fixtures
    COUNTER,
    DOC,
    QUICK,
    hub,
    make,
    repo,
    some_bytes,
    storage,
    told_nothing,
    upload_of,
    way,
)
from tests.remotes.storage_makers.hub import LIMITS
from tests.support.processes import until

# What goes wrong

REFUSED = {
    "401": AuthError, "403": AuthError, "404-repo": AuthError, "404-revision": RemoteError, "500": RemoteError,
    "503": RemoteError, "504": RemoteError, "429-window": BusyError, "409": RemoteError, "413": RemoteError,
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_of_questions(storage, hub, repo, kind):
    revision = repo.head
    questions = [
        storage.revision, lambda: storage.stat([DOC], revision), lambda: list(storage.list("m", revision)),
        lambda: storage.read(DOC, revision, 100), lambda: list(storage.chunks("m/model.neff", revision)),
        storage.latest,
    ]  # fmt: skip
    for question in questions:
        hub.log.clear()
        hub.fault(kind, "*", seconds=7, times=None)
        with pytest.raises(CachekitError) as caught:
            question()
        hub.faults.clear()
        assert type(caught.value) is REFUSED[kind]
        assert len(hub.requests) - hub.count("GET */whoami-v2") == 1  # no second try
        if kind == "429-window":
            assert caught.value.wait == 8
        if kind in {"401", "404-repo"}:
            assert "HF_TOKEN" in caught.value.hint


@pytest.mark.feature("R6")
def test_whoever_sends_us_round_and_round_is_not_asked_again(storage, hub):
    """As the portal of a network does that does not let a login end."""
    hub.fault("302", "*", headers={"Location": f"{hub.endpoint}/api/models/round"}, times=None)
    with pytest.raises(RemoteError) as caught:
        storage.revision()
    assert caught.value.lasting
    assert "redirects" in caught.value.said


@pytest.mark.feature("R6")
@pytest.mark.parametrize(("kind", "options"), [("cut", {}), ("slow", {"rate": 0.001})])
def test_that_a_file_is_not_there_is_known_without_the_answers_body(make, hub, repo, kind, options):
    hub.fault(kind, "GET */resolve/*", times=None, **options)
    storage = make(limits=QUICK)
    assert storage.read("cachekit/v1/records/a/b/other.json", repo.head, 100) is None
    with pytest.raises(RemoteError) as caught:
        storage.read(DOC, repo.head, 100)
    assert not caught.value.lasting
    if kind == "slow":
        assert "stopped answering" in caught.value.message


@pytest.mark.feature("R4")
def test_a_document_has_to_begin_as_soon_as_any_answer(make, hub, repo, monkeypatch):
    """However large it may be: its headers may drip, each in time."""
    given = []

    def ask(client, question, call=None, seconds=None):
        given.append(seconds)
        return real(client, question, call, seconds)

    real = Client.ask
    monkeypatch.setattr(Client, "ask", ask)
    assert make().read(DOC, repo.head, 64 << 20)
    assert given == [None, 2 * LIMITS.read + 64]


COMMITS = {
    "412": ConflictError, "409": BusyError, "429-window": BusyError, "429-commits": BusyError, "500": UncertainError,
    "502": UncertainError, "503": UncertainError, "504": UncertainError, "drop": UncertainError, "cut": UncertainError,
    "401": AuthError, "403": AuthError, "404-repo": MissingRemoteError, "400": RemoteError, "413": RemoteError,
    "cut-request": UncertainError,
}  # fmt: skip


# Such an answer may also come where the commit was made.
LOST = [kind for kind in COMMITS if COMMITS[kind] is UncertainError and kind != "cut-request"]


@pytest.mark.feature("R2")
@pytest.mark.parametrize(("kind", "landed"), [(kind, False) for kind in COMMITS] + [(kind, True) for kind in LOST])
def test_refusals_of_commits(storage, hub, repo, kind, landed):
    revision = repo.head
    token = storage.read(DOC, revision, 100).token
    hub.log.clear()
    hub.fault(kind, "POST */commit/*", landed=landed, seconds=9)
    title = f"change {next(COUNTER)}"
    with pytest.raises(CachekitError) as caught:
        storage.commit(Commit(title, (), [Write(DOC, b"2", token)]), revision)
    assert type(caught.value) is COMMITS[kind]
    assert hub.count("POST */commit/*") == len(hub.requests) - hub.count("GET */whoami-v2") == 1
    if isinstance(caught.value, BusyError):
        assert caught.value.wait == {"409": 5, "429-window": 10, "429-commits": 600}[kind]
    done = landed or kind == "cut"
    assert [change.revision for change in storage.latest() if change.title == title] == ([repo.head] if done else [])
    assert (repo.head != revision) == done


DATE = "Mon, 23 Nov 2026 10:00:00 GMT"


def test_how_long_a_hub_asks_to_wait():
    for headers, wait in [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "Mon, 23 Nov 2026 10:00:30 GMT", "Date": DATE}, 30),
        ({"Retry-After": "Mon, 23 Nov 2026 09:00:30 GMT", "Date": DATE}, 0),
        ({"Retry-After": "Mon, 23 Nov 2099 09:00:30 GMT", "Date": ""}, LONGEST_WAIT),
        ({"Retry-After": "1000000"}, LONGEST_WAIT),
        *(({"Retry-After": said}, 0) for said in ("-5", "soon", "1e9", "\u00b2", "Mon, 32 Nov 99999 10:00:00 GMT", "")),
    ]:
        assert RemoteError("x", wait=_wait(headers, "")).wait == wait


def test_an_answer_has_a_bound_whatever_it_is_packed_in(storage, hub, repo, monkeypatch):
    hub.fault("rewrite", "*", change=gzip.compress, headers={"Content-Encoding": "gzip"}, times=None)
    assert storage.revision() == repo.head
    assert next(iter(storage.latest())).revision == repo.head
    hub.faults.clear()
    monkeypatch.setattr("cachekit.remotes.hub.session.ANSWER_LIMIT", 4 << 20)
    bomb = gzip.compress(bytes(64 << 20))
    hub.fault("rewrite", "*", change=lambda _: bomb, headers={"Content-Encoding": "gzip"}, times=None)
    tracemalloc.start()
    with pytest.raises(RemoteError) as caught:
        storage.revision()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.cause == "an answer of more than 4.2 MB"
    assert most < 16 << 20
    hub.faults.clear()
    hub.fault("rewrite", "*", body="x", headers={"Content-Encoding": "br"}, times=None)
    with pytest.raises(RemoteError) as caught:
        storage.latest()
    assert caught.value.cause == "an answer in an encoding that was not requested"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("black-hole", "", "nothing came for {read:g} s"),
        ("drop", "", "the connection was cut ("),
        ("rewrite", "<html>", "it is not JSON"),
        ("rewrite", "null", "its client cannot read it (TypeError)"),
        ("502", "", "502 Bad Gateway"),
    ],
)
def test_a_cause_is_said_in_words(make, hub, kind, body, said):
    hub.fault(kind, "*", body=body or None, times=None)
    with pytest.raises(RemoteError) as caught:
        make(limits=QUICK).revision()
    assert caught.value.cause.startswith(said.format(read=QUICK.read))


def test_the_quota_of_commits_is_waited_for_by_the_minute(storage, hub, repo):
    hub.commits_per_hour = 0
    with pytest.raises(BusyError) as caught:
        storage.commit(Commit("x", (), [Write("x", b"", ABSENT)]), repo.head)
    assert caught.value.wait >= 60


def test_a_head_that_lags_is_no_matter_for_who_goes_on(storage, hub, repo):
    revision = repo.head
    new = storage.commit(Commit("a", (), [Write("a.json", b"1", ABSENT)]), revision)
    hub.fault("lag", "GET /api/*", times=1)
    assert storage.revision() == revision
    assert storage.commit(Commit("b", (), [Write("b.json", b"1", ABSENT)]), new) == repo.head
    with pytest.raises(ConflictError):
        storage.commit(Commit("c", (), [Write("c.json", b"1", ABSENT)]), revision)


@pytest.mark.feature("R4")
def test_a_black_hole_on_every_call(make, hub, repo):
    storage, revision, file = make(limits=QUICK), repo.head, upload_of("n/x.neff", some_bytes())
    calls = {
        "* /api/models/*/revision/*": storage.revision,
        "* */paths-info/*": lambda: storage.stat([DOC], revision),
        "* */tree/*": lambda: list(storage.list("m", revision)),
        "* */resolve/*": lambda: storage.read(DOC, revision, 10),
        "* /cdn/file/*": lambda: list(storage.chunks("m/model.neff", revision)),
        "* */commits/*": storage.latest,
        "* */preupload/*": lambda: storage.upload([file], revision, lambda _: None),
    }
    for pattern, call in calls.items():
        hub.log.clear()
        hub.fault("black-hole", pattern, times=None)
        with pytest.raises(RemoteError) as caught:
            call()
        assert type(caught.value) is RemoteError
        # On a loaded machine the Hub may look at it after who asked has gone.
        until(lambda: [entry for entry in hub.requests if entry.fault], pattern)
        hub.faults.clear()
    hub.fault("black-hole", "* */commit/*")
    with pytest.raises(UncertainError):
        storage.commit(Commit("x", (), [Write("x", b"", ABSENT)]), revision)
    assert make().revision() == revision


def test_after_an_upload_that_hung_the_next_one_works(make, hub, repo, way):
    file = upload_of("n/x.neff", some_bytes())
    hub.fault("black-hole", "PUT /cdn/*" if way == "lfs" else "* /xet/*", times=None)
    with pytest.raises(RemoteError):
        make(limits=QUICK).upload([file], repo.head, lambda _: None)
    hub.faults.clear()
    storage = make()
    storage.upload([file], repo.head, lambda _: None)
    assert storage.commit(Commit("x", [file]), repo.head) == repo.head


def test_nobody_is_there(make, repo):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        storage = make(endpoint=f"http://127.0.0.1:{port}")
        file = upload_of("x.neff", some_bytes())
        for call in (
            storage.revision, lambda: storage.stat([DOC], repo.head), lambda: list(storage.list("m", repo.head)),
            lambda: storage.read(DOC, repo.head, 10), lambda: list(storage.chunks(DOC, repo.head)),
            lambda: storage.upload([file], repo.head, told_nothing),
            lambda: storage.commit(Commit("x", (), [Write("x", b"", ABSENT)]), repo.head),
        ):  # fmt: skip
            with pytest.raises(RemoteError, match="cannot be reached") as caught:
                call()
            assert type(caught.value) is RemoteError


@pytest.mark.feature("R4")
@pytest.mark.parametrize("kind", ["endless", "slow", "cut", "drop", "wrong-size"])
def test_bodies_that_do_not_end_as_they_should(make, hub, repo, kind):
    storage, revision = make(limits=QUICK), repo.head
    whole = bytes(range(256)) * 1000
    hub.fault(kind, "GET /cdn/*", times=None, rate=2000, extra=-7)
    with pytest.raises((RemoteError, IntegrityError)):
        storage.read("m/model.neff", revision, 256_000)
    if kind != "slow":  # which is no error as long as it moves
        read = []
        with pytest.raises(RemoteError):
            read.extend(storage.chunks("m/model.neff", revision))
        assert whole.startswith(b"".join(read))
    hub.faults.clear()
    for pattern in ("GET /api/*", "POST */paths-info/*"):
        hub.fault(kind, pattern, times=None, rate=20, extra=-7)
    for call in (storage.revision, lambda: storage.stat([DOC], revision), lambda: list(storage.list("", revision))):
        with pytest.raises(RemoteError):
            call()


@pytest.mark.parametrize("body", ["", "[", "null", "[[1]]", '{"a": 1}', '[{"type": "file"}]', "[" * 100_000, "<html>"])
def test_answers_that_are_no_answers(storage, hub, repo, body):
    hub.fault("rewrite", "* /api/*", body=body, times=None)
    for call in (storage.revision, lambda: storage.stat([DOC], repo.head), lambda: list(storage.list("", repo.head))):
        try:
            found = call()
        except RemoteError:
            continue
        assert not found


def test_names_that_lead_elsewhere(storage, hub, repo):
    hub.fault("rewrite", "GET */tree/*", change=lambda body: body.replace(b"m/flags", b"m/../flags"))
    assert "m/flags.json" not in {entry.path for entry in storage.list("m", repo.head)}
    assert hub.requests
    with pytest.raises(UsageError):
        HubStorage("nobody")
    with pytest.raises(UsageError):
        HubStorage("team/cache", kind="space")


# Who may, and what is not said


def test_who_may_not(make, hub, repo):
    for token in (hub.other_token, "hf_nobody"):
        with pytest.raises(AuthError):
            make(token=token).revision()
    reader = make(token=hub.read_token)
    assert reader.revision() == repo.head
    with pytest.raises(AuthError):
        reader.commit(Commit("x", (), [Write("x", b"", ABSENT)]), repo.head)
    with pytest.raises(AuthError):
        reader.upload([upload_of("x.neff", some_bytes())], repo.head, told_nothing)


@pytest.mark.feature("S5")
def test_no_token_is_ever_shown(make, hub, repo, monkeypatch):
    secret = "hf_verysecret123"
    from tests.support.hubserver.accounts import Account

    hub.accounts.add(secret, Account("admin", "write", ("team",)))
    storage, texts = make(token=secret, limits=QUICK), []
    assert secret not in repr(storage) + str(vars(storage)["name"])
    logged = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(logged)])
    logging.root.setLevel(logging.DEBUG)
    file = upload_of("x.neff", some_bytes())
    for kind in ("401", "403", "404", "500", "drop", "black-hole", "429-window", "400", "rewrite"):
        for call in (
            storage.revision, lambda: list(storage.chunks("m/model.neff", repo.head)),
            lambda: storage.upload([file], repo.head, lambda _: None),
            lambda: storage.commit(Commit("x", (), [Write("x", b"", ABSENT)]), repo.head),
        ):  # fmt: skip
            hub.fault(kind, "*", times=None, body=f"Bearer {secret} https://x/y?grant=1.{secret}", seconds=0)
            try:
                call()
            except CachekitError as error:
                texts += ["".join(traceback.format_exception(error)), repr(error), str(error.document)]
            finally:
                hub.faults.clear()
    assert len(texts) > 60
    assert not [text for text in texts if secret in text or "grant=" in text]
    logging.root.setLevel(logging.WARNING)
    assert logged.getvalue()
    assert secret not in logged.getvalue()


def test_a_repo_is_made_private_and_looked_at(hub):
    name = f"team/new-{next(COUNTER)}"
    where = {"endpoint": hub.endpoint, "token": hub.token, "limits": LIMITS}
    assert look(name, **where) is None
    made = create(name, **where)
    assert (made.repo, made.private, made.new) == (name, True, True)
    assert hub.repo(name).private
    again = create(name, private=False, **where)
    assert (again.private, again.new) == (True, False)
    assert look(name, **where) == again
    public = create(f"{name}-public", private=False, kind="dataset", **where)
    assert not public.private
    assert not look(f"{name}-public", kind="dataset", **where).private
    with pytest.raises(AuthError):
        create(f"{name}-2", **{**where, "token": hub.read_token})
    with pytest.raises(AuthError):
        create(name, **{**where, "token": hub.other_token})
