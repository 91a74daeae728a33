"""The remote of a Hub repo against the test Hub, with the real client in this process: what it costs."""

from __future__ import annotations

import functools
import hashlib
import random
import subprocess
import sys
import textwrap

import pytest

from cachekit.errors import AuthError, ConflictError, RemoteError
from cachekit.remotes import ranges
from cachekit.remotes.port import ABSENT, Commit, Entry, PastCommit, Write
from cachekit.remotes.ranges import in_order
from tests.remotes.hub_storage import (  # noqa: F401 - fixtures
    COUNTER,
    DOC,
    QUICK,
    asked,
    hub,
    make,
    repo,
    some_bytes,
    storage,
    told_nothing,
    upload_of,
    way,
)

# Reading, and what it costs


@pytest.mark.feature("R2")
def test_questions_cost_a_request_each(storage, hub, repo):
    revision = storage.revision()
    assert (revision, asked(hub)) == (repo.head, ["GET api 200"])
    paths = [f"none/{number}" for number in range(997)] + [DOC, "m/model.neff", "m"]
    found = storage.stat(paths, revision)
    assert set(found) == {DOC, "m/model.neff"}  # a folder is no file
    assert asked(hub) == ["POST api 200"]
    assert storage.stat([*paths, "one/more"], revision) == found
    assert asked(hub) == ["POST api 200"], "what lies at a commit does not change"
    assert storage.stat([*paths, "one/more"], "") == found
    assert asked(hub) == ["POST api 200"] * 2
    assert storage.stat([], revision) == {}
    assert asked(hub) == []
    assert found[DOC].equals(b'{"a": 1}')
    assert found["m/model.neff"].equals(bytes(range(256)) * 1000)
    assert storage.read(DOC, revision, 100).data == b'{"a": 1}'
    assert asked(hub) == ["GET resolve 200"]
    assert storage.read("m/doc.json", revision, 100).data == b"{}"
    assert asked(hub) == ["GET resolve 302", "GET cdn 200"]  # the CDN refuses a request that has a token
    assert storage.read("none.json", revision, 100) is None
    assert asked(hub) == ["GET resolve 404"]
    assert b"".join(storage.chunks("m/model.neff", revision, 255_000)) == (bytes(range(256)) * 1000)[255_000:]
    assert asked(hub) == ["GET resolve 302", "GET cdn 206"]


def test_a_folder_is_listed_by_pages_without_the_rest(storage, hub, repo):
    repo.plant({f"n/{number}": b"x" for number in range(25)} | {"m/deep/er/x": b"1"})
    revision = storage.revision()
    hub.tree_page = 10
    hub.log.clear()
    assert {entry.path for entry in storage.list("n", revision)} == {f"n/{number}" for number in range(25)}
    assert asked(hub) == ["GET api 200"] * 3
    assert {e.path for e in storage.list("m", revision)} == {
        "m/model.done", "m/flags.json", "m/model.neff", "m/doc.json", "m/deep/er/x",
    }  # fmt: skip
    assert list(storage.list("none", revision)) == []
    assert len(list(storage.list("", revision))) == len(repo.files())


def test_the_hub_is_asked_once_where_a_large_file_is(storage, hub, repo, monkeypatch):
    monkeypatch.setattr(ranges, "RANGE", 1000)
    data = random.Random(2).randbytes(10_500)
    repo.plant({"m/large": data}, lfs=True)
    chunks = functools.partial(storage.chunks, "m/large", storage.revision())
    hub.log.clear()
    assert b"".join(in_order(chunks, 0, len(data), 2)) == data
    kinds = asked(hub)
    assert kinds.count("GET cdn 206") == 11
    assert kinds.count("GET resolve 302") == 1
    hub.fault("403", "GET /cdn/*")  # the signed address is too old
    assert b"".join(in_order(chunks, 0, len(data), 2)) == data
    kinds = asked(hub)
    assert kinds.count("GET cdn 403") == 1
    assert kinds.count("GET resolve 302") <= 2
    hub.fault("403", "GET /cdn/*", times=None)  # no token goes there: that is no matter of tokens
    with pytest.raises(RemoteError, match="redirected to an address that refuses access"):
        list(in_order(chunks, 0, len(data), 2))
    repo.plant({"m/large": data + b"x"})  # which git itself holds now
    chunks = functools.partial(storage.chunks, "m/large", storage.revision())
    assert b"".join(in_order(chunks, 0, len(data) + 1, 2)) == data + b"x"


def test_git_lfs_is_asked_once_where_many_files_are(storage, hub, repo):
    large = {f"m/{number}.neff": random.Random(number).randbytes(5000) for number in range(4)}
    repo.plant(large, lfs=True)
    repo.plant({"m/graph.pb": b"small"})  # git's own
    files = large | {"m/graph.pb": b"small"}
    revision = storage.revision()
    entries = [Entry(path, len(data), {"sha256": hashlib.sha256(data).hexdigest()}) for path, data in files.items()]
    hub.log.clear()
    storage.expect(entries[:3], revision)
    assert asked(hub) == []  # a question would cost more than it spares
    storage.expect(entries, revision)
    assert asked(hub) == ["POST lfs 200"]
    for path, data in files.items():
        assert b"".join(storage.chunks(path, revision)) == data
    assert asked(hub) == ["GET cdn 200"] * 4 + ["GET resolve 200"]
    # Whoever fetches one again had wrong bytes: it comes by the Hub's own way.
    assert b"".join(storage.chunks("m/0.neff", revision)) == large["m/0.neff"]
    assert asked(hub) == ["GET resolve 302", "GET cdn 200"]

    for fault in ("500", "404-entry", "rewrite"):
        hub.fault(fault, "POST */info/lfs/*", body="[1]")
        storage.expect(entries, revision)
        assert b"".join(storage.chunks("m/0.neff", revision)) == large["m/0.neff"]
        assert asked(hub)[1:] == ["GET resolve 302", "GET cdn 200"]


def test_a_large_body_that_is_cut_goes_on_where_it_ended(storage, hub, repo):
    data = random.Random(1).randbytes(5_000_000)
    repo.plant({"m/large": data}, lfs=True)
    revision = storage.revision()
    hub.fault("cut", "GET /cdn/*", at=3_000_000)
    came = []
    with pytest.raises(RemoteError):
        came.extend(storage.chunks("m/large", revision))  # what came before an error stays
    assert b"".join(came) == data[:3_000_000]
    hub.faults.clear()
    came.extend(storage.chunks("m/large", revision, 3_000_000))
    assert b"".join(came) == data
    assert b"".join(storage.chunks("m/large", revision)) == data  # over whatever connection is there now


def test_a_tag_and_a_commit_can_be_read_and_not_written(make, hub, repo):
    old = repo.head
    repo.tags = {"v1": old}
    repo.plant({DOC: b"2"})
    for name in ("v1", old):
        storage = make(branch=name)
        assert (storage.revision(), storage.name) == (old, f"hf://{repo.name}@{name}")
        document = storage.read(DOC, old, 100)
        assert document.data == b'{"a": 1}'
        with pytest.raises(AuthError, match="can only be read"):
            storage.commit(Commit("x", (), [Write(DOC, b"3", document.token)]), old)
        with pytest.raises(AuthError, match="can only be read"):
            storage.upload([upload_of("x", b"x")], old, told_nothing)
    assert hub.count("POST */commit/*") == 0


# Writing


@pytest.mark.feature("R1")
def test_artifacts_and_their_record_in_one_commit(make, hub, repo, way, tmp_path):
    storage, large, small = make(), some_bytes(3_000_000), b"[1]"
    (tmp_path / "f").write_bytes(large)
    files = [upload_of("n/a.neff", large, tmp_path / "f"), upload_of("n/flags.json", small), upload_of("n/done", b"")]
    revision, sent = storage.revision(), []
    storage.upload(files, revision, sent.append)
    assert sum(sent) > 0 or way == "xet"
    assert repo.head == revision
    hub.log.clear()
    document = storage.read(DOC, revision, 100)
    new = storage.commit(Commit("record 17", files, [Write(DOC, b"new", document.token)]), revision)
    assert asked(hub) == ["GET resolve 200", "POST api 200"]  # nothing is asked or sent twice
    assert (repo.head, repo.read(DOC)) == (new, b"new")
    found = storage.stat([file.path for file in files], new)
    assert [found[file.path].equals(data) for file, data in zip(files, (large, small, b""), strict=True)] == [True] * 3
    assert b"".join(make().chunks("n/a.neff", new)) == large
    assert (storage.latest()[0].revision, storage.latest()[0].title) == (new, "record 17")
    assert PastCommit(new, "record 17") not in storage.latest(revision)


@pytest.mark.feature("R1")
def test_what_is_there_is_not_sent_again(make, hub, repo, way):
    data, revision = bytes(range(256)) * 1000, repo.head
    files = [upload_of("m/model.neff", data), upload_of("m/flags.json", b"[]"), upload_of("m/model.done", b"")]
    storage = make()
    storage.upload(files, revision, told_nothing)
    assert asked(hub) == ["POST api 200"]
    assert storage.commit(Commit("nothing", files), revision) == revision
    assert asked(hub) == ["GET api 200"]  # nothing to change: which is so only if this is the head
    for path in ("m/model.neff", "m/flags.json"):
        with pytest.raises(ConflictError):
            storage.upload([upload_of(path, b"{}")], revision, told_nothing)
        with pytest.raises(ConflictError):
            make().commit(Commit("other", [upload_of(path, b"{}")]), revision)
    assert repo.head == revision


def test_what_was_sent_lasts_for_the_next_attempt(make, hub, repo, way):
    storage, file, revision = make(), upload_of("n/a.neff", some_bytes()), repo.head
    storage.upload([file], revision, lambda _: None)
    repo.plant({"other": b"1"})
    with pytest.raises(ConflictError):
        storage.commit(Commit("one", [file]), revision)
    head = storage.revision()
    hub.log.clear()
    storage.upload([file], head, told_nothing)
    assert storage.commit(Commit("two", [file]), head) == repo.head
    assert [entry.path.split("/")[5] for entry in hub.requests] == ["paths-info", "commit"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_body_that_came_wrong_replaces_no_document(storage, repo, monkeypatch, asked):
    revision = storage.revision()
    if asked:
        storage.stat([DOC], revision)
    monkeypatch.setattr(storage._client, "document", lambda *_: (b"wrong", "", "0" * 40))
    token = storage.read(DOC, revision, 100).token
    with pytest.raises(ConflictError):
        storage.commit(Commit("a", (), [Write(DOC, b"mine", token)]), revision)
    assert repo.read(DOC) == b'{"a": 1}'


@pytest.mark.feature("R2")
def test_a_swap_for_the_same_bytes_needs_the_right_parent(make, hub, repo):
    revision = repo.head
    token = make().read(DOC, revision, 100).token
    repo.plant({DOC: b"same"})
    hub.log.clear()
    with pytest.raises(ConflictError):  # the client alone would say that it is done
        make().commit(Commit("x", (), [Write(DOC, b"same", token)]), revision)
    assert hub.count("POST */commit/*") == 1


def test_documents_stay_in_git_whatever_gitattributes_says(make, hub, repo):
    repo.plant({".gitattributes": b"*.json filter=lfs diff=lfs merge=lfs -text\n"})
    make().commit(Commit("x", (), [Write("lease.json", b"{}", ABSENT)]), repo.head)
    assert not repo.tree(repo.head)["lease.json"]["lfs"]


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
        from cachekit.remotes.hub import HubStorage
        remote = HubStorage({repo.name!r})
        assert not [name for name in sys.modules if name.startswith(("huggingface_hub", "httpx", "requests"))]
        print(remote.revision())
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
        from cachekit.errors import AuthError, RemoteError
        from cachekit.remotes.hub import HubStorage
        from cachekit.remotes.port import Limits, Upload
        data = os.urandom(200_000)
        try:
            HubStorage({repo.name!r}, limits=Limits(2, 2, 1)).upload(
                [Upload("x.neff", len(data), hashlib.sha256(data).hexdigest(), data)], {repo.head!r}, print)
        except RemoteError as error:
            print("gave up", flush=True)
    """
    ended = run_python(code, hub, tmp_path)
    assert (ended.returncode, ended.stdout.strip().splitlines()[-1]) == (0, "gave up"), ended.stderr
