"""The tier of a Hub repo against the test Hub, with the real client in this process: faults, requests, secrets."""

from __future__ import annotations

import hashlib
import logging
import random
import socket
import subprocess
import sys
import textwrap
import traceback
from itertools import count

import huggingface_hub.constants
import pytest
from hubserver import HubServer
from tier_makers.hub import LIMITS, online

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError, UsageError
from cachekit.tiers.hub import HubTier, create, look, reading
from cachekit.tiers.port import (
    ABSENT,
    BusyError,
    Change,
    ConflictError,
    Limits,
    Tier,
    UncertainError,
    Upload,
    Write,
)

QUICK = Limits(connect=2.0, read=1.0, commit=1.5)  # for servers that do not answer
COUNTER = count()
DOC = "cachekit/v1/records/a/b/c.json"


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    with online(), HubServer(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def hub(shared_hub):
    yield shared_hub
    shared_hub.faults.clear()
    shared_hub.commits_per_hour, shared_hub.xet, shared_hub.tree_page = None, True, 0


@pytest.fixture
def repo(hub):
    repo = hub.repo(f"team/cache-{next(COUNTER)}")
    repo.plant({DOC: b'{"a": 1}', "m/model.done": b"", "m/flags.json": b"[]"})
    repo.plant({"m/model.neff": bytes(range(256)) * 1000, "m/doc.json": b"{}"}, lfs=True)
    hub.log.clear()
    return repo


@pytest.fixture
def make(hub, repo):
    def make(**options):
        return HubTier(repo.name, **{"endpoint": hub.endpoint, "token": hub.token, "limits": LIMITS} | options)

    return make


@pytest.fixture
def tier(make):
    return make()


@pytest.fixture(params=["xet", "lfs"])
def way(request, monkeypatch):
    """How large files travel."""
    if request.param == "xet" and huggingface_hub.constants.HF_HUB_DISABLE_XET:
        pytest.skip("HF_HUB_DISABLE_XET is set")
    if request.param == "lfs":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    return request.param


def some_bytes(size=200_000):
    return random.Random(next(COUNTER)).randbytes(size)


def upload_of(path, data, source=None):
    return Upload(path, len(data), hashlib.sha256(data).hexdigest(), data if source is None else source)


def asked(hub):
    """What was asked, Xet's own requests left out; then forgotten."""
    kinds = [f"{entry.method} {entry.kind} {entry.status}" for entry in hub.requests if entry.kind != "xet"]
    hub.log.clear()
    return kinds


def told_nothing(size):
    raise AssertionError(size)


def test_it_is_a_tier(tier, repo):
    checked: Tier = tier
    assert (checked.name, checked.compares, checked.scarce) == (f"hf://{repo.name}", True, True)


# Reading, and what it costs


@pytest.mark.feature("R2")
def test_questions_cost_a_request_each(tier, hub, repo):
    revision = tier.revision()
    assert (revision, asked(hub)) == (repo.head, ["GET api 200"])
    paths = [f"none/{number}" for number in range(997)] + [DOC, "m/model.neff", "m"]
    found = tier.stat(paths, revision)
    assert set(found) == {DOC, "m/model.neff"}  # a folder is no file
    assert asked(hub) == ["POST api 200"]
    assert tier.stat([*paths, "one/more"], revision) == found
    assert asked(hub) == ["POST api 200"] * 2
    assert tier.stat([], revision) == {}
    assert asked(hub) == []
    assert found[DOC].equals(b'{"a": 1}')
    assert found["m/model.neff"].equals(bytes(range(256)) * 1000)
    assert tier.read(DOC, revision, 100).data == b'{"a": 1}'
    assert asked(hub) == ["GET resolve 200"]
    assert tier.read("m/doc.json", revision, 100).data == b"{}"
    assert asked(hub) == ["GET resolve 302", "GET cdn 200"]  # the CDN refuses a request that has a token
    assert tier.read("none.json", revision, 100) is None
    assert asked(hub) == ["GET resolve 404"]
    assert b"".join(tier.chunks("m/model.neff", revision, 255_000)) == (bytes(range(256)) * 1000)[255_000:]
    assert asked(hub) == ["GET resolve 302", "GET cdn 206"]


def test_a_folder_is_listed_by_pages_without_the_rest(tier, hub, repo):
    repo.plant({f"n/{number}": b"x" for number in range(25)} | {"m/deep/er/x": b"1"})
    revision = tier.revision()
    hub.tree_page = 10
    hub.log.clear()
    assert {entry.path for entry in tier.list("n", revision)} == {f"n/{number}" for number in range(25)}
    assert asked(hub) == ["GET api 200"] * 3
    assert {e.path for e in tier.list("m", revision)} == {
        "m/model.done", "m/flags.json", "m/model.neff", "m/doc.json", "m/deep/er/x",
    }  # fmt: skip
    assert list(tier.list("none", revision)) == []
    assert len(list(tier.list("", revision))) == len(repo.files())


def test_every_start_of_a_file(tier, hub, repo):
    data, revision = bytes(range(256)) * 1000, tier.revision()
    for path, whole in (("m/model.neff", data), (DOC, b'{"a": 1}'), ("m/model.done", b"")):
        for start in {0, 1, len(whole) // 2, max(0, len(whole) - 1), len(whole)}:
            if start <= len(whole):
                assert b"".join(tier.chunks(path, revision, start)) == whole[start:]
        with pytest.raises(RemoteError):
            list(tier.chunks(path, revision, len(whole) + 1))
    with pytest.raises(FileNotFoundError):
        list(tier.chunks("none", revision))


def test_a_server_without_ranges(tier, hub, repo):
    revision = tier.revision()
    path = hub.repos.objects.path(hashlib.sha256(bytes(range(256)) * 1000).hexdigest())
    hub.fault(
        "rewrite", "GET /cdn/*", change=lambda _: path.read_bytes(), headers={"Content-Range": "bytes 0-255999/256000"}
    )
    assert b"".join(tier.chunks("m/model.neff", revision, 1000)) == path.read_bytes()[1000:]


@pytest.mark.parametrize("large", [1, 1 << 40], ids=["round httpx", "through httpx"])
def test_a_large_body_that_is_cut_goes_on_where_it_ended(tier, hub, repo, large, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", large)
    data = random.Random(1).randbytes(5_000_000)
    repo.plant({"m/large": data}, lfs=True)
    revision = tier.revision()
    hub.fault("cut", "GET /cdn/*", at=3_000_000)
    came = []
    with pytest.raises(RemoteError):
        came.extend(tier.chunks("m/large", revision))  # what came before an error stays
    assert b"".join(came) == data[:3_000_000]
    hub.faults.clear()
    came.extend(tier.chunks("m/large", revision, 3_000_000))
    assert b"".join(came) == data
    assert b"".join(tier.chunks("m/large", revision)) == data  # over whatever connection is there now


def test_a_tag_and_a_commit_can_be_read_and_not_written(make, hub, repo):
    old = repo.head
    repo.tags = {"v1": old}
    repo.plant({DOC: b"2"})
    for name in ("v1", old):
        tier = make(branch=name)
        assert (tier.revision(), tier.name) == (old, f"hf://{repo.name}@{name}")
        document = tier.read(DOC, old, 100)
        assert document.data == b'{"a": 1}'
        with pytest.raises(RemoteError, match="can only be read"):
            tier.commit(Change("x", (), [Write(DOC, b"3", document.token)]), old)
        with pytest.raises(RemoteError, match="can only be read"):
            tier.upload([upload_of("x", b"x")], old, told_nothing)
    assert hub.count("POST */commit/*") == 0


def test_a_branch(make, hub, repo):
    repo.branches = {**repo.branches, "exp/x": repo.head}
    tier = make(branch="exp/x")
    revision = tier.revision()
    new = tier.commit(Change("on a branch", (), [Write("x.json", b"1", ABSENT)]), revision)
    assert (repo.branches["exp/x"], repo.head) == (new, revision)


def test_a_dataset(hub):
    repo = hub.repo(f"team/data-{next(COUNTER)}", "dataset")
    tier = HubTier(repo.name, kind="dataset", endpoint=hub.endpoint, token=hub.token, limits=LIMITS)
    assert tier.name == f"hf://datasets/{repo.name}"
    revision = tier.revision()
    data = some_bytes()
    tier.upload([upload_of("x.neff", data)], revision, lambda _: None)
    new = tier.commit(Change("t", [upload_of("x.neff", data)], [Write(DOC, b"1", ABSENT)]), revision)
    assert tier.read(DOC, new, 10).data == b"1"
    assert b"".join(tier.chunks("x.neff", new)) == data


# Writing


@pytest.mark.feature("R1")
def test_artifacts_and_their_record_in_one_commit(make, hub, repo, way, tmp_path):
    tier, large, small = make(), some_bytes(3_000_000), b"[1]"
    (tmp_path / "f").write_bytes(large)
    files = [upload_of("n/a.neff", large, tmp_path / "f"), upload_of("n/flags.json", small), upload_of("n/done", b"")]
    revision, sent = tier.revision(), []
    tier.upload(files, revision, sent.append)
    assert sum(sent) > 0 or way == "xet"
    assert repo.head == revision
    hub.log.clear()
    document = tier.read(DOC, revision, 100)
    new = tier.commit(Change("record 17", files, [Write(DOC, b"new", document.token)]), revision)
    assert asked(hub) == ["GET resolve 200", "POST api 200"]  # nothing is asked or sent twice
    assert (repo.head, repo.read(DOC)) == (new, b"new")
    found = tier.stat([file.path for file in files], new)
    assert [found[file.path].equals(data) for file, data in zip(files, (large, small, b""), strict=True)] == [True] * 3
    assert b"".join(make().chunks("n/a.neff", new)) == large
    assert tier.happened("record 17") == new
    assert tier.happened("record 18") == ""


def test_a_digest_that_is_known_is_not_computed_again(make, hub, repo, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    data = some_bytes()
    (tmp_path / "f").write_bytes(data)
    file = upload_of("n/a.neff", data, tmp_path / "f")
    from huggingface_hub import lfs

    monkeypatch.setattr(lfs, "sha_fileobj", lambda *_: pytest.fail("hashed"))
    tier = make()
    tier.upload([file], repo.head, lambda _: None)
    assert tier.commit(Change("x", [file]), repo.head) == repo.head


@pytest.mark.feature("R1")
def test_what_is_there_is_not_sent_again(make, hub, repo, way):
    data, revision = bytes(range(256)) * 1000, repo.head
    files = [upload_of("m/model.neff", data), upload_of("m/flags.json", b"[]"), upload_of("m/model.done", b"")]
    tier = make()
    tier.upload(files, revision, told_nothing)
    assert asked(hub) == ["POST api 200"]
    assert tier.commit(Change("nothing", files), revision) == revision
    assert asked(hub) == ["GET api 200"]  # nothing to change: which is so only if this is the head
    for path in ("m/model.neff", "m/flags.json"):
        with pytest.raises(ConflictError):
            tier.upload([upload_of(path, b"{}")], revision, told_nothing)
        with pytest.raises(ConflictError):
            make().commit(Change("other", [upload_of(path, b"{}")]), revision)
    assert repo.head == revision


def test_what_was_sent_lasts_for_the_next_attempt(make, hub, repo, way):
    tier, file, revision = make(), upload_of("n/a.neff", some_bytes()), repo.head
    tier.upload([file], revision, lambda _: None)
    repo.plant({"other": b"1"})
    with pytest.raises(ConflictError):
        tier.commit(Change("one", [file]), revision)
    head = tier.revision()
    hub.log.clear()
    tier.upload([file], head, told_nothing)
    assert tier.commit(Change("two", [file]), head) == repo.head
    assert [entry.path.split("/")[5] for entry in hub.requests] == ["paths-info", "commit"]


def test_a_commit_sends_what_was_not_uploaded(make, hub, repo, way):
    data = some_bytes()
    new = make().commit(Change("at once", [upload_of("n/a.neff", data)], [Write("x", b"1", ABSENT)]), repo.head)
    assert b"".join(make().chunks("n/a.neff", new)) == data


def test_tokens_of_documents_are_compared(make, hub, repo):
    tier, revision = make(), repo.head
    document = tier.read(DOC, revision, 100)
    new = make().commit(Change("a", (), [Write(DOC, b"2", document.token)]), revision)
    with pytest.raises(ConflictError):  # by the Hub: another parent
        tier.commit(Change("b", (), [Write(DOC, b"3", document.token)]), revision)
    for write in (Write(DOC, b"3", document.token), Write(DOC, b"3", ABSENT), Write("none", b"3", document.token)):
        with pytest.raises(ConflictError):  # by us, at the new parent
            make().commit(Change("c", (), [write]), new)
    with pytest.raises(ConflictError):
        make().commit(Change("d", (), [Write(DOC, None, document.token)]), new)
    assert (repo.head, repo.read(DOC)) == (new, b"2")
    token = tier.read(DOC, new, 100).token
    gone = tier.commit(Change("e", (), [Write(DOC, None, token)]), new)
    assert tier.read(DOC, gone, 100) is None
    linked = tier.read("m/doc.json", gone, 100)
    assert make().commit(Change("f", (), [Write("m/doc.json", b"{1}", linked.token)]), gone) == repo.head


@pytest.mark.feature("R2")
def test_a_swap_for_the_same_bytes_needs_the_right_parent(make, hub, repo):
    revision = repo.head
    token = make().read(DOC, revision, 100).token
    repo.plant({DOC: b"same"})
    hub.log.clear()
    with pytest.raises(ConflictError):  # the client alone would say that it is done
        make().commit(Change("x", (), [Write(DOC, b"same", token)]), revision)
    assert hub.count("POST */commit/*") == 1


def test_documents_stay_in_git_whatever_gitattributes_says(make, hub, repo):
    repo.plant({".gitattributes": b"*.json filter=lfs diff=lfs merge=lfs -text\n"})
    make().commit(Change("x", (), [Write("lease.json", b"{}", ABSENT)]), repo.head)
    assert not repo.tree(repo.head)["lease.json"]["lfs"]


def test_gitignore_is_an_error(make, hub, repo):
    hub.fault("rewrite", "POST */preupload/*", change=lambda body: body.replace(b'Ignore": false', b'Ignore": true'))
    with pytest.raises(RemoteError, match="gitignore"):
        make().upload([upload_of("x.neff", some_bytes())], repo.head, lambda _: None)


def test_a_source_that_changed_or_is_gone(make, hub, repo, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        make().upload([upload_of("x.neff", b"\0" * 100, tmp_path / "none")], repo.head, told_nothing)
    (tmp_path / "short").write_bytes(b"1")
    with pytest.raises(OSError, match="changed"):
        make().upload([upload_of("x.neff", b"\0" * 100, tmp_path / "short")], repo.head, told_nothing)
    assert not hub.count("POST */preupload/*")


def test_many_writers_one_winner(make, hub, repo):
    from concurrent.futures import ThreadPoolExecutor

    revision, tiers = repo.head, [make() for _ in range(6)]
    token = tiers[0].read(DOC, revision, 100).token

    def swap(number):
        try:
            return tiers[number].commit(Change(f"w{number}", (), [Write(DOC, b"%d" % number, token)]), revision)
        except ConflictError:
            return ""

    with ThreadPoolExecutor(6) as pool:
        won = [made for made in pool.map(swap, range(6)) if made]
    assert won == [repo.head]


# What goes wrong

REFUSED = {
    "401": AuthError, "403": AuthError, "404-repo": AuthError, "404-revision": RemoteError, "500": RemoteError,
    "503": RemoteError, "504": RemoteError, "429-window": BusyError, "409": RemoteError, "413": RemoteError,
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_of_questions(tier, hub, repo, kind):
    revision = repo.head
    questions = [
        tier.revision, lambda: tier.stat([DOC], revision), lambda: list(tier.list("m", revision)),
        lambda: tier.read(DOC, revision, 100), lambda: list(tier.chunks("m/model.neff", revision)),
        lambda: tier.happened("x"),
    ]  # fmt: skip
    for question in questions:
        hub.log.clear()
        hub.fault(kind, "*", seconds=7, times=None)
        with pytest.raises(CachekitError) as caught:
            question()
        hub.faults.clear()
        assert type(caught.value) is REFUSED[kind]
        assert len(hub.requests) == 1  # no second try
        if kind == "429-window":
            assert caught.value.wait == 8
        if kind in {"401", "404-repo"}:
            assert "HF_TOKEN" in caught.value.hint


COMMITS = {
    "412": ConflictError, "409": BusyError, "429-window": BusyError, "429-commits": BusyError, "500": UncertainError,
    "502": UncertainError, "503": UncertainError, "504": UncertainError, "drop": UncertainError, "cut": UncertainError,
    "401": AuthError, "403": AuthError, "404-repo": AuthError, "400": RemoteError, "413": RemoteError,
    "cut-request": UncertainError,
}  # fmt: skip


@pytest.mark.feature("R2")
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", COMMITS)
def test_refusals_of_commits(tier, hub, repo, kind, landed):
    if landed and (COMMITS[kind] is not UncertainError or kind == "cut-request"):
        pytest.skip("such an answer comes only where nothing was done")
    revision = repo.head
    token = tier.read(DOC, revision, 100).token
    hub.log.clear()
    hub.fault(kind, "POST */commit/*", landed=landed, seconds=9)
    title = f"change {next(COUNTER)}"
    with pytest.raises(CachekitError) as caught:
        tier.commit(Change(title, (), [Write(DOC, b"2", token)]), revision)
    assert type(caught.value) is COMMITS[kind]
    assert hub.count("POST */commit/*") == len(hub.requests) == 1
    if isinstance(caught.value, BusyError):
        assert caught.value.wait == {"409": 5, "429-window": 10, "429-commits": 600}[kind]
    done = landed or kind == "cut"
    assert tier.happened(title) == (repo.head if done else "")
    assert (repo.head != revision) == done


def test_the_quota_of_commits_is_waited_for_by_the_minute(tier, hub, repo):
    hub.commits_per_hour = 0
    with pytest.raises(BusyError) as caught:
        tier.commit(Change("x", (), [Write("x", b"", ABSENT)]), repo.head)
    assert caught.value.wait >= 60


def test_a_head_that_lags_is_no_matter_for_who_goes_on(tier, hub, repo):
    revision = repo.head
    new = tier.commit(Change("a", (), [Write("a.json", b"1", ABSENT)]), revision)
    hub.fault("lag", "GET /api/*", times=1)
    assert tier.revision() == revision
    assert tier.commit(Change("b", (), [Write("b.json", b"1", ABSENT)]), new) == repo.head
    with pytest.raises(ConflictError):
        tier.commit(Change("c", (), [Write("c.json", b"1", ABSENT)]), revision)


@pytest.mark.feature("R4")
def test_a_black_hole_on_every_call(make, hub, repo, way):
    tier, revision, file = make(limits=QUICK), repo.head, upload_of("n/x.neff", some_bytes())
    calls = {
        "* /api/models/*/revision/*": tier.revision,
        "* */paths-info/*": lambda: tier.stat([DOC], revision),
        "* */tree/*": lambda: list(tier.list("m", revision)),
        "* */resolve/*": lambda: tier.read(DOC, revision, 10),
        "* /cdn/file/*": lambda: list(tier.chunks("m/model.neff", revision)),
        "* */commits/*": lambda: tier.happened("x"),
        "* */preupload/*": lambda: tier.upload([file], revision, lambda _: None),
        "PUT /cdn/*" if way == "lfs" else "* /xet/*": lambda: tier.upload([file], revision, lambda _: None),
    }
    for pattern, call in calls.items():
        hub.log.clear()
        hub.fault("black-hole", pattern, times=None)
        with pytest.raises(RemoteError) as caught:
            call()
        hub.faults.clear()
        assert type(caught.value) is RemoteError
        assert [entry for entry in hub.requests if entry.fault], pattern
    hub.fault("black-hole", "* */commit/*")
    with pytest.raises(UncertainError):
        tier.commit(Change("x", (), [Write("x", b"", ABSENT)]), revision)
    assert make().revision() == revision


def test_after_an_upload_that_hung_the_next_one_works(make, hub, repo, way):
    file = upload_of("n/x.neff", some_bytes())
    hub.fault("black-hole", "PUT /cdn/*" if way == "lfs" else "* /xet/*", times=None)
    with pytest.raises(RemoteError):
        make(limits=QUICK).upload([file], repo.head, lambda _: None)
    hub.faults.clear()
    tier = make()
    tier.upload([file], repo.head, lambda _: None)
    assert tier.commit(Change("x", [file]), repo.head) == repo.head


def test_nobody_is_there(make, repo):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        tier = make(endpoint=f"http://127.0.0.1:{port}")
        file = upload_of("x.neff", some_bytes())
        for call in (
            tier.revision, lambda: tier.stat([DOC], repo.head), lambda: list(tier.list("m", repo.head)),
            lambda: tier.read(DOC, repo.head, 10), lambda: list(tier.chunks(DOC, repo.head)),
            lambda: tier.upload([file], repo.head, told_nothing),
            lambda: tier.commit(Change("x", (), [Write("x", b"", ABSENT)]), repo.head),
        ):  # fmt: skip
            with pytest.raises(RemoteError, match="cannot be reached") as caught:
                call()
            assert type(caught.value) is RemoteError


@pytest.mark.feature("R4")
@pytest.mark.parametrize("kind", ["endless", "slow", "cut", "drop", "wrong-size"])
def test_bodies_that_do_not_end_as_they_should(make, hub, repo, kind):
    tier, revision = make(limits=QUICK), repo.head
    whole = bytes(range(256)) * 1000
    hub.fault(kind, "GET /cdn/*", times=None, rate=2000, extra=-7)
    with pytest.raises((RemoteError, IntegrityError)):
        tier.read("m/model.neff", revision, 256_000)
    if kind != "slow":  # which is no error as long as it moves
        read = []
        with pytest.raises(RemoteError):
            read.extend(tier.chunks("m/model.neff", revision))
        assert whole.startswith(b"".join(read))
    hub.faults.clear()
    for pattern in ("GET /api/*", "POST */paths-info/*"):
        hub.fault(kind, pattern, times=None, rate=20, extra=-7)
    for call in (tier.revision, lambda: tier.stat([DOC], revision), lambda: list(tier.list("", revision))):
        with pytest.raises(RemoteError):
            call()


def test_a_cut_download_goes_on_where_it_ended(tier, hub, repo):
    whole, read = bytes(range(256)) * 1000, b""
    hub.fault("cut", "GET /cdn/*", at=100_000, times=2)
    for _ in range(5):
        try:
            for piece in tier.chunks("m/model.neff", repo.head, len(read)):
                read += piece
            break
        except RemoteError:
            continue
    assert read == whole


def test_no_more_than_the_limit_is_read(tier, hub, repo):
    with pytest.raises(IntegrityError):
        tier.read("m/model.neff", repo.head, 255_999)
    assert len(tier.read("m/model.neff", repo.head, 256_000).data) == 256_000
    hub.fault("endless", "GET */resolve/*")
    with pytest.raises(IntegrityError):
        tier.read(DOC, repo.head, 1000)


@pytest.mark.parametrize("body", ["", "[", "null", "[[1]]", '{"a": 1}', '[{"type": "file"}]', "[" * 100_000, "<html>"])
def test_answers_that_are_no_answers(tier, hub, repo, body):
    hub.fault("rewrite", "* /api/*", body=body, times=None)
    for call in (tier.revision, lambda: tier.stat([DOC], repo.head), lambda: list(tier.list("", repo.head))):
        try:
            found = call()
        except RemoteError:
            continue
        assert not found


def test_names_that_lead_elsewhere(tier, hub, repo):
    for name in ("../x", "a//b", "/etc/passwd", "a/../b", "", "a/."):
        with pytest.raises(UsageError, match="cannot be the path"):
            tier.stat([name], repo.head)
        with pytest.raises(UsageError, match="cannot be the path"):
            tier.read(name, repo.head, 10)
    hub.fault("rewrite", "GET */tree/*", change=lambda body: body.replace(b"m/flags", b"m/../flags"))
    assert "m/flags.json" not in {entry.path for entry in tier.list("m", repo.head)}
    assert hub.requests
    with pytest.raises(UsageError):
        HubTier("nobody")
    with pytest.raises(UsageError):
        HubTier("team/cache", kind="space")


# Who may, and what is not said


def test_who_may_not(make, hub, repo):
    for token in (hub.other_token, "hf_nobody"):
        with pytest.raises(AuthError):
            make(token=token).revision()
    reader = make(token=hub.read_token)
    assert reader.revision() == repo.head
    with pytest.raises(AuthError):
        reader.commit(Change("x", (), [Write("x", b"", ABSENT)]), repo.head)
    with pytest.raises(AuthError):
        reader.upload([upload_of("x.neff", some_bytes())], repo.head, told_nothing)


@pytest.mark.feature("S5")
def test_no_token_is_ever_shown(make, hub, repo, caplog):
    secret = "hf_verysecret123"
    from hubserver.accounts import Account

    hub.accounts.add(secret, Account("admin", "write", ("team",)))
    tier, texts = make(token=secret, limits=QUICK), []
    assert secret not in repr(tier) + str(vars(tier)["name"])
    caplog.set_level(logging.DEBUG)
    file = upload_of("x.neff", some_bytes())
    for kind in ("401", "403", "404", "500", "drop", "black-hole", "429-window", "400", "rewrite"):
        for call in (
            tier.revision, lambda: list(tier.chunks("m/model.neff", repo.head)),
            lambda: tier.upload([file], repo.head, lambda _: None),
            lambda: tier.commit(Change("x", (), [Write("x", b"", ABSENT)]), repo.head),
        ):  # fmt: skip
            hub.fault(kind, "*", times=None, body=f"Bearer {secret} https://x/y?grant=1.{secret}", seconds=0)
            try:
                call()
            except CachekitError as error:
                texts += ["".join(traceback.format_exception(error)), repr(error), str(error.as_dict())]
            finally:
                hub.faults.clear()
    assert len(texts) > 60
    assert not [text for text in texts if secret in text or "grant=" in text]
    assert secret not in caplog.text


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


# The process around it


def run_python(code, hub, tmp_path, **environment):
    variables = {
        "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": hub.token, "HF_HOME": str(tmp_path), "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(path for path in sys.path if path),
    } | environment  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_environment_is_honoured_and_the_client_is_imported_late(hub, repo, tmp_path):
    code = f"""
        import sys
        from cachekit.tiers.hub import HubTier
        tier = HubTier({repo.name!r})
        assert not [name for name in sys.modules if name.startswith(("huggingface_hub", "httpx", "requests"))]
        print(tier.revision())
    """
    assert run_python(code, hub, tmp_path).stdout.strip() == repo.head
    hub.log.clear()
    offline = run_python(code, hub, tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in offline.stderr
    assert hub.requests == []
    assert "AuthError" in run_python(code, hub, tmp_path, HF_TOKEN=hub.other_token).stderr


def test_a_process_ends_though_an_upload_hangs(hub, repo, tmp_path):
    hub.fault("black-hole", "* /xet/*", times=None)
    hub.fault("black-hole", "PUT *", times=None)
    code = f"""
        import hashlib, os
        from cachekit.errors import RemoteError
        from cachekit.tiers.hub import HubTier
        from cachekit.tiers.port import Limits, Upload
        data = os.urandom(200_000)
        try:
            HubTier({repo.name!r}, limits=Limits(2, 2, 1)).upload(
                [Upload("x.neff", len(data), hashlib.sha256(data).hexdigest(), data)], {repo.head!r}, print)
        except RemoteError as error:
            print("gave up", flush=True)
    """
    ended = run_python(code, hub, tmp_path)
    assert (ended.returncode, ended.stdout.strip().splitlines()[-1]) == (0, "gave up"), ended.stderr


def test_requests_of_others_pass_as_they_are(tier, hub, repo):
    """The library's own calls in this process keep their retries, their errors, and a factory of the user's."""
    tier.revision()
    hub.fault("500", "GET /api/models/*", times=1)
    api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError):
        api.repo_info(repo.name)
    assert api.repo_info(repo.name).sha == repo.head


def test_a_factory_of_the_user_is_kept(make, hub, repo, monkeypatch):
    from huggingface_hub.utils import _http, get_session

    name = "_GLOBAL_CLIENT_FACTORY" if hasattr(_http, "_GLOBAL_CLIENT_FACTORY") else "_GLOBAL_BACKEND_FACTORY"
    before, made = getattr(_http, name), []

    def factory():
        made.append(before())
        made[-1].headers["X-Of-User"] = "1"
        return made[-1]

    if name == "_GLOBAL_CLIENT_FACTORY":
        huggingface_hub.set_client_factory(factory)
    else:
        huggingface_hub.configure_http_backend(factory)
    try:
        hub.fault("black-hole", "GET /api/*", times=None)
        with pytest.raises(RemoteError):
            make(limits=QUICK).revision()
        assert made
        assert get_session().headers["X-Of-User"] == "1"
    finally:
        if name == "_GLOBAL_CLIENT_FACTORY":
            huggingface_hub.set_client_factory(before)
        else:
            huggingface_hub.configure_http_backend(before)
