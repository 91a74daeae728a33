"""The test Hub against the real, unmodified client; CACHEKIT_HUB_PYTHONS names interpreters (blanks between them).

CACHEKIT_OLAH is the path of `olah-cli`, somebody else's mirror of the Hub, for a test that puts it in between.

Assertions go through the client wherever there is a choice: a server that is tested by its own words agrees with
itself. With other interpreters named, every test runs with Xet and without it.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hubserver import Client, ClientError, HubServer

PYTHONS = os.environ.get("CACHEKIT_HUB_PYTHONS", "").split() or [sys.executable]
MODES = list(itertools.product(PYTHONS, [True, False]))
OLAH = os.environ.get("CACHEKIT_OLAH") or shutil.which("olah-cli")
COUNTER = itertools.count()


def _mode_name(mode):
    name = Path(mode[0]).parent.parent.name if len(PYTHONS) > 1 else "client"
    return f"{name}-{'xet' if mode[1] else 'lfs'}"


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    with HubServer(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


def both_ways(test):
    """For tests of what depends on how bytes travel: also where a run keeps to one client, as fast runs do."""
    test.both_ways = True
    return test


def pytest_generate_tests(metafunc):
    if "shared_client" in metafunc.fixturenames:
        modes = MODES if len(PYTHONS) > 1 or hasattr(metafunc.function, "both_ways") else MODES[:1]
        metafunc.parametrize("shared_client", modes, indirect=True, ids=_mode_name, scope="module")


@pytest.fixture(scope="module")
def shared_client(request, shared_hub, tmp_path_factory):
    python, xet = request.param
    with Client(shared_hub, tmp_path_factory.mktemp("home"), python=python, xet=xet) as client:
        yield client.ready()


DEFAULTS = {
    "xet": True, "latency": 0.0, "commits_per_hour": None, "overlap_409": False, "commit_seconds": 0.0, "tree_page": 0,
    "multipart_above": 32 << 20, "part_size": 8 << 20,
}  # fmt: skip


@pytest.fixture
def hub(shared_hub):
    """The module's Hub without faults, its log empty."""
    shared_hub.log.clear()
    yield shared_hub
    shared_hub.faults.clear()
    for name, value in DEFAULTS.items():
        setattr(shared_hub, name, value)


@pytest.fixture
def client(shared_client, hub):
    return shared_client


@pytest.fixture
def repo(hub):
    """A private repository with a small and a large file, planted."""
    repo = hub.repo(f"team/repo-{next(COUNTER)}")
    repo.plant({"a/small.txt": b"small", "b.txt": b"b"}, "first")
    repo.plant({"a/large.bin": bytes(range(256)) * 1000}, "second", lfs=True)
    hub.log.clear()
    return repo


def ask(url, token="", body=None, *, method="GET"):
    """Status, headers and body of one request, without any client's cleverness."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, f"{address.path}?{address.query}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def failure(client, code, **arguments) -> ClientError:
    with pytest.raises(ClientError) as caught:
        client(code, **arguments)
    return caught.value


# Accounts and repositories


def test_who_am_i(client, hub):
    assert client("[api.whoami()['name'], [o['name'] for o in api.whoami()['orgs']]]") == ["admin", ["team"]]
    assert client("api.whoami(token='hf_reader')['auth']['accessToken']['role']") == "read"
    assert failure(client, "api.whoami(token='hf_nobody')").status == 401


@pytest.mark.parametrize("repo_type", ["model", "dataset"])
def test_repositories_are_made_once_and_deleted(client, hub, repo_type):
    name = f"team/made-{next(COUNTER)}"
    url = client("str(api.create_repo(name, repo_type=kind, private=True))", name=name, kind=repo_type)
    assert url.endswith(name)
    assert client("api.create_repo(name, repo_type=kind, exist_ok=True).repo_id", name=name, kind=repo_type) == name
    assert failure(client, "api.create_repo(name, repo_type=kind)", name=name, kind=repo_type).status == 409
    info = client("vars(api.repo_info(name, repo_type=kind))['private']", name=name, kind=repo_type)
    assert info is True
    assert client("api.list_repo_files(name, repo_type=kind)", name=name, kind=repo_type) == [".gitattributes"]
    client("api.delete_repo(name, repo_type=kind)", name=name, kind=repo_type)
    gone = failure(client, "api.repo_info(name, repo_type=kind)", name=name, kind=repo_type)
    assert gone.name == "RepositoryNotFoundError"
    client("api.delete_repo(name, repo_type=kind, missing_ok=True)", name=name, kind=repo_type)
    assert failure(client, "api.create_repo('strangers/name')").status == 403


def test_a_private_repository_is_not_there_for_others(client, repo):
    for token in (False, "hf_outsider"):
        error = failure(client, "api.repo_info(name, token=token)", name=repo.name, token=token)
        assert (error.name, error.status) == ("RepositoryNotFoundError", 404 if token else 401)
    assert failure(client, "api.repo_info(name, token='hf_nobody')", name=repo.name).status == 401
    assert client("api.repo_info(name, token='hf_reader').sha", name=repo.name) == repo.head
    write = "api.create_commit(name, [Add('x', b'x')], commit_message='x', token='hf_reader')"
    assert failure(client, write, name=repo.name).status == 403
    client("api.update_repo_settings(name, private=False)", name=repo.name)
    assert client("api.repo_info(name, token=False).sha", name=repo.name) == repo.head


# Listing


def test_trees_come_in_pages(client, hub, repo):
    repo.plant({f"many/{number:04}/f": b"" for number in range(1200)})
    code = "[[type(e).__name__, e.path] for e in api.list_repo_tree(name, recursive=True)]"
    entries = client(code, name=repo.name)
    assert sorted(path for kind, path in entries if kind == "RepoFile") == repo.files()
    assert ["RepoFolder", "many/0007"] in entries
    assert hub.count("GET */tree/*") == 3  # 2,406 entries
    assert client("[e.path for e in api.list_repo_tree(name, 'a')]", name=repo.name) == ["a/large.bin", "a/small.txt"]
    titles = client(
        "return {e.path: e.last_commit.title for e in api.list_repo_tree(name, 'a', expand=True)}", name=repo.name
    )
    assert titles == {"a/large.bin": "second", "a/small.txt": "first"}
    assert "EntryNotFoundError" in failure(client, "list(api.list_repo_tree(name, 'none'))", name=repo.name).kinds


def test_a_thousand_paths_are_one_question(client, hub, repo):
    code = """
        found = api.get_paths_info(name, ["a/small.txt", "a/large.bin", "a"] + [f"none/{n}" for n in range(count)])
        return [[f.path, getattr(f, "size", None), f.lfs.sha256 if getattr(f, "lfs", None) else None] for f in found]
    """
    large = hashlib.sha256(bytes(range(256)) * 1000).hexdigest()
    expected = [["a/small.txt", 5, None], ["a/large.bin", 256_000, large], ["a", None, None]]
    assert client(code, name=repo.name, count=997) == expected
    assert hub.log.kinds() == {"api": 1}
    assert failure(client, code, name=repo.name, count=998).status == 413


def test_branches_tags_and_history(client, repo):
    client("api.create_branch(name, branch='exp/x')", name=repo.name)
    client("api.create_tag(name, tag='v1', revision='exp/x')", name=repo.name)
    assert failure(client, "api.create_tag(name, tag='v1')", name=repo.name).status == 409
    client("api.create_commit(name, [Add('x', b'x')], commit_message='on x', revision='exp/x')", name=repo.name)
    assert client("api.list_repo_files(name, revision='exp/x')", name=repo.name)[-1] == "x"
    assert "x" not in client("api.list_repo_files(name, revision='v1')", name=repo.name)
    refs = client(
        "refs = api.list_repo_refs(name)\nreturn [[b.name for b in refs.branches], [t.name for t in refs.tags]]",
        name=repo.name,
    )
    assert refs == [["main", "exp/x"], ["v1"]]
    titles = client("[c.title for c in api.list_repo_commits(name, revision='exp/x')]", name=repo.name)
    assert titles == ["on x", "second", "first", "initial commit"]
    old = repo.head
    assert client("api.repo_info(name, revision=old).sha", name=repo.name, old=old) == old
    client("api.delete_tag(name, tag='v1')\nreturn api.delete_branch(name, branch='exp/x')", name=repo.name)
    client("api.super_squash_history(name)", name=repo.name)
    assert len(client("[c.title for c in api.list_repo_commits(name)]", name=repo.name)) == 1
    gone = failure(client, "api.repo_info(name, revision=old)", name=repo.name, old=old)
    assert gone.name == "RevisionNotFoundError"


# Commits

PUSH = """
    adds = [Add(path, bytes.fromhex(data)) for path, data in files.items()]
    return api.create_commit(name, adds, commit_message="push", parent_commit=parent).oid
"""


@both_ways
def test_commits_add_copy_and_delete(client, hub, repo):
    large = random.Random(1).randbytes(300_000)
    files = {"new/empty": b"", "new/text": b"text", "new/large.neff": large}
    arguments = {"files": {path: data.hex() for path, data in files.items()}, "parent": repo.head}
    oid = client(PUSH, name=repo.name, **arguments)
    assert oid == repo.head == client("api.repo_info(name).sha", name=repo.name)
    for path, data in files.items():
        assert client("sha(hf_hub_download(name, path))", name=repo.name, path=path) == hashlib.sha256(data).hexdigest()
    client(
        """
        operations = [Copy("new/large.neff", "copied.neff"), Delete("new/"), Delete("b.txt")]
        api.create_commit(name, operations, commit_message="move")
        """,
        name=repo.name,
    )
    assert repo.files() == [".gitattributes", "a/large.bin", "a/small.txt", "copied.neff"]
    assert client("sha(hf_hub_download(name, 'copied.neff'))", name=repo.name) == hashlib.sha256(large).hexdigest()
    missing = failure(client, "api.delete_file('b.txt', name)", name=repo.name)
    assert "EntryNotFoundError" in missing.kinds


def test_a_stale_parent_is_refused_and_nothing_new_is_no_commit(client, hub, repo):
    old = repo.commit(repo.head).parent
    error = failure(client, PUSH, name=repo.name, files={"x": "00"}, parent=old)
    assert (error.status, "A commit has happened since" in error.text) == (412, True)
    head = repo.head
    assert client(PUSH, name=repo.name, files={"b.txt": b"b".hex()}, parent=old) == head  # the client's own doing
    assert hub.count("POST */commit/*") == 1


def test_an_empty_payload_leaves_the_head(hub, repo):
    lines = [{"key": "header", "value": {"summary": "same"}},
             {"key": "file", "value": {"path": "b.txt", "content": "Yg==", "encoding": "base64"}}]  # fmt: skip
    body = "\n".join(map(json.dumps, lines)).encode()
    _, _, answer = ask(f"{hub.endpoint}/api/models/{repo.name}/commit/main", hub.token, body, method="POST")
    assert json.loads(answer)["commitOid"] == repo.head


@both_ways
def test_a_folder_goes_up_and_comes_down(client, repo):
    code = """
        for n in range(60):
            (home / "up" / str(n)).mkdir(parents=True, exist_ok=True)
            (home / "up" / str(n) / "graph.neff").write_bytes(bytes([n]) * (n + 1) * 100 + bytes(range(256)))
            (home / "up" / str(n) / "done").write_bytes(b"")
        api.upload_folder(repo_id=name, folder_path=home / "up", path_in_repo="up")
        down = Path(snapshot_download(name, allow_patterns=["up/*"]))
        some = Path(snapshot_download(name, allow_patterns=["up/1/*"], local_dir=home / "some"))
        same = [sha(down / "up" / str(n) / "graph.neff") == sha(home / "up" / str(n) / "graph.neff") for n in range(60)]
        return [same.count(True), sorted(str(p.relative_to(some)) for p in some.glob("up/*/*"))]
    """
    assert client(code, name=repo.name) == [60, ["up/1/done", "up/1/graph.neff"]]


# Large files


@both_ways
@pytest.mark.parametrize("parts", [False, True])
def test_lfs_uploads_whole_and_in_parts(client, hub, repo, parts):
    if client.xet and client.version >= (1, 20):
        pytest.skip("always Xet")
    hub.xet = False
    hub.multipart_above, hub.part_size = (100_000, 64_000) if parts else (1 << 30, 1)
    data = random.Random(next(COUNTER)).randbytes(200_001)
    files = {"x.neff": data.hex()}
    client(PUSH, name=repo.name, files=files, parent=None)
    assert repo.read("x.neff") == data
    assert hub.count("PUT /cdn/*") == (4 if parts else 1)
    client(PUSH, name=hub.repo(f"team/repo-{next(COUNTER)}").name, files=files, parent=None)
    assert hub.count("PUT /cdn/*") == (4 if parts else 1)  # the bytes were there


CONTENTS = {
    "random": random.Random(3).randbytes(400_000),
    "text": b"".join(b"line %d of some text\n" % (number % 1000) for number in range(60_000)),
    "zeros": bytes(500_000),
    "floats": b"".join(number.to_bytes(4, "little") for number in range(1_000_000, 1_150_000)),
}


@both_ways
@pytest.mark.parametrize("kind", CONTENTS)
def test_files_cross_between_xet_and_plain_http(client, hub, repo, kind):
    data = CONTENTS[kind] + client.home.name.encode()
    client(PUSH, name=repo.name, files={"x.bin": data.hex()}, parent=None)
    digest = hashlib.sha256(data).hexdigest()
    code = "sha(hf_hub_download(name, 'x.bin', cache_dir=str(home / 'fresh')))"
    assert client(code, name=repo.name) == digest
    xet = client.xet and "xet" in repo.tree(repo.head)["x.bin"]
    assert bool(hub.count("GET /xet/v1/reconstructions/*")) == xet
    status, headers, _ = ask(f"{hub.endpoint}/{repo.name}/resolve/main/x.bin", hub.token, method="HEAD")
    assert (status, headers["X-Linked-Etag"]) == (302, f'"{digest}"')
    assert ask(headers["Location"])[2] == data
    assert ask(headers["Location"], hub.token)[0] == 400  # a token that was given away


def test_the_file_system_reads_ranges(client, hub, repo):
    code = """
        from huggingface_hub import HfFileSystem
        with HfFileSystem().open(f"{name}/a/large.bin", block_size=1000) as file:
            file.seek(100_000)
            return [file.read(10).hex(), file.size]
    """
    data = bytes(range(256)) * 1000
    assert client(code, name=repo.name) == [data[100_000:100_010].hex(), len(data)]
    assert [entry for entry in hub.requests if entry.method == "GET" and entry.status == 206]


@both_ways
def test_metadata_of_small_and_large_files(client, repo):
    code = """
        out = []
        for path in ["b.txt", "a/large.bin"]:
            meta = hh.get_hf_file_metadata(hh.hf_hub_url(name, path), token=token)
            out.append([meta.etag, meta.size, meta.commit_hash, meta.location.startswith("http://localhost")])
        return out
    """
    files = repo.tree(repo.head)
    small, large = client(code, name=repo.name)
    assert small == [files["b.txt"]["oid"], 1, repo.head, False]
    assert large == [files["a/large.bin"]["sha256"], 256_000, repo.head, True]
    error = failure(client, "hf_hub_download(name, 'none')", name=repo.name)
    assert "EntryNotFoundError" in error.kinds


@pytest.fixture
def lfs_repo(hub):
    """A repository whose large file came by LFS, so that every client fetches it by HTTP; new bytes each time."""
    repo = hub.repo(f"team/repo-{next(COUNTER)}")
    repo.plant({"large.bin": random.Random(next(COUNTER)).randbytes(14_000_000)}, lfs=True)
    hub.log.clear()
    return repo


# Faults

DIGEST = "sha(hf_hub_download(name, 'large.bin', cache_dir=str(home / name)))"
STATUSES = {
    "400": "BadRequestError", "401": "HfHubHTTPError", "403": "HfHubHTTPError", "404-repo": "RepositoryNotFoundError",
    "404-revision": "RevisionNotFoundError", "404-entry": "EntryNotFoundError", "408": "HfHubHTTPError",
    "409": "HfHubHTTPError", "412": "HfHubHTTPError", "413": "HfHubHTTPError", "429-window": "HfHubHTTPError",
    "429-commits": "HfHubHTTPError", "500": "HfHubHTTPError", "502": "HfHubHTTPError", "503": "HfHubHTTPError",
    "504": "HfHubHTTPError",
}  # fmt: skip


@pytest.mark.parametrize("kind", STATUSES)
def test_a_status_is_raised_as_the_client_names_it(client, hub, repo, kind):
    fault = hub.fault(kind, "GET /api/models/*", nth=2)
    assert client("api.repo_info(name).sha", name=repo.name) == repo.head
    error = failure(client, "api.repo_info(name)", name=repo.name)
    assert error.status == int(kind[:3])
    assert STATUSES[kind] in error.kinds
    assert client("api.repo_info(name).sha", name=repo.name) == repo.head
    assert fault.hits == 1
    assert [entry.fault for entry in hub.requests] == ["", kind, ""]


def test_the_window_of_a_rate_limit_is_waited_for(client, hub, repo):
    hub.fault("429-window", "POST */preupload/*", seconds=0, retry_after=True)
    if client.version >= (1, 0):
        assert client(PUSH, name=repo.name, files={"x": "00"}, parent=None) == repo.head
        assert [entry.status for entry in hub.log.entries("POST */preupload/*")] == [429, 200]
    else:
        assert failure(client, PUSH, name=repo.name, files={"x": "00"}, parent=None).status == 429


def test_the_quota_of_commits(client, hub, repo):
    hub.commits_per_hour = 2
    for number in range(2):
        client(PUSH, name=repo.name, files={"x": f"0{number}"}, parent=None)
    error = failure(client, PUSH, name=repo.name, files={"x": "09"}, parent=None)
    assert (error.status, "repository commits (2 per hour)" in error.text) == (429, True)


@both_ways
def test_a_commit_lands_though_its_answer_is_lost(client, hub, repo):
    hub.fault("504", "POST */commit/*", landed=True)
    assert failure(client, PUSH, name=repo.name, files={"x": "00"}, parent=None).status == 504
    assert client("[c.title for c in api.list_repo_commits(name)][0]", name=repo.name) == "push"
    hub.fault("drop", "POST */commit/*", landed=True)
    assert failure(client, PUSH, name=repo.name, files={"x": "01"}, parent=None).status is None
    assert repo.read("x") == b"\1"


def test_a_commit_during_another_is_a_conflict(client, hub, repo):
    hub.overlap_409, hub.commit_seconds = True, 0.3
    code = """
        from concurrent.futures import ThreadPoolExecutor
        def push(number):
            try:
                return api.create_commit(name, [Add(f"x{number}", b"x")], commit_message="x") and 200
            except Exception as error:
                return error.response.status_code
        with ThreadPoolExecutor(4) as pool:
            return sorted(pool.map(push, range(4)))
    """
    statuses = client(code, name=repo.name)
    assert set(statuses) <= {200, 409}
    assert statuses.count(200) == sum(path.startswith("x") for path in repo.files()) < 4


def test_a_download_that_is_cut(client, hub, lfs_repo):
    hub.fault("cut", "GET /cdn/file/*", at=12_000_000)  # the client keeps pieces of 10 MB
    digest = hashlib.sha256(lfs_repo.read("large.bin")).hexdigest()
    if client.version >= (1, 0):
        assert client(DIGEST, name=lfs_repo.name) == digest
        assert [entry.status for entry in hub.log.entries("GET /cdn/*")] == [200, 206]  # it resumes
    else:
        assert failure(client, DIGEST, name=lfs_repo.name).status is None
        assert client(DIGEST, name=lfs_repo.name) == digest


def test_wrong_bytes_go_unnoticed_and_a_wrong_size_does_not(client, hub, lfs_repo):
    hub.fault("wrong-size", "GET /cdn/file/*", extra=-1000, times=None)
    assert "size" in failure(client, DIGEST, name=lfs_repo.name).text
    hub.faults.clear()
    hub.fault("wrong-bytes", "GET /cdn/file/*", count=3)
    digest = client(DIGEST, name=lfs_repo.name)
    assert digest != hashlib.sha256(lfs_repo.read("large.bin")).hexdigest()  # why cachekit checks every byte itself


def test_wrong_bytes_go_unnoticed_by_xet_too(client, hub, repo):
    data = random.Random(f"xet{next(COUNTER)}").randbytes(2_000_000)
    client(PUSH, name=repo.name, files={"x.bin": data.hex()}, parent=None)
    if "xet" not in repo.tree(repo.head)["x.bin"]:
        pytest.skip("no Xet here")
    hub.fault("wrong-bytes", "GET /cdn/xorb/*", count=3)
    code = "sha(hf_hub_download(name, 'x.bin', cache_dir=str(home / 'damaged')))"
    assert client(code, name=repo.name) != hashlib.sha256(data).hexdigest()
    hub.fault("cut", "GET /cdn/xorb/*")
    code = "sha(hf_hub_download(name, 'x.bin', cache_dir=str(home / 'cut')))"
    assert client(code, name=repo.name) == hashlib.sha256(data).hexdigest()  # asked for again


def test_answers_may_be_rewritten(client, hub, repo):
    hub.fault("rewrite", "GET */tree/*", change=lambda body: body.replace(b"b.txt", b"../b.txt"))
    assert "../b.txt" in client("[e.path for e in api.list_repo_tree(name)]", name=repo.name)


def test_headers_may_be_rewritten_for_one_user(client, hub, repo):
    hub.fault("rewrite", "HEAD *", headers={"X-Linked-Size": "7"}, user="reader", times=None)
    code = "hh.get_hf_file_metadata(hh.hf_hub_url(name, 'a/large.bin'), token=who).size"
    assert client(code, name=repo.name, who=hub.token) == 256_000
    assert client(code, name=repo.name, who=hub.read_token) == 7


@both_ways
def test_a_head_that_lags(client, hub, repo):
    old = repo.head
    hub.fault("lag", f"GET /api/models/{repo.name}", times=2)
    client(PUSH, name=repo.name, files={"x": "00"}, parent=old)
    heads = [client("api.repo_info(name).sha", name=repo.name) for _ in range(3)]
    assert heads == [old, old, repo.head]


def test_a_black_hole_holds_until_the_client_goes(client, hub, repo):
    hub.fault("black-hole", "GET /api/models/*")
    error = failure(client, "api.repo_info(name, timeout=0.3)", name=repo.name)
    assert "Timeout" in error.name
    assert [entry.status for entry in hub.requests] == [0]
    assert client("api.repo_info(name, timeout=3).sha", name=repo.name) == repo.head


def test_slow_bodies_and_latency_take_their_time(client, hub, repo):
    hub.fault("slow", "GET /*/resolve/*", rate=50)
    hub.fault("latency", "HEAD *", seconds=0.2)
    code = "Path(hf_hub_download(name, 'a/small.txt', cache_dir=str(home / 'slow'))).read_text()"
    assert client(code, name=repo.name) == "small"
    _until(lambda: all(entry.seconds for entry in hub.requests))
    assert hub.log.entries("GET *")[0].seconds >= 0.1  # 5 bytes
    assert hub.log.entries("HEAD *")[0].seconds >= 0.2


def test_an_endless_body_never_ends(client, hub, repo, tmp_path):
    hub.fault("endless", "GET /api/models/*")
    python = client.process.args[0]
    with Client(hub, tmp_path, python=python, xet=client.xet) as other:
        other.start("api.repo_info(name)", name=repo.name)
        _until(lambda: any(entry.sent > 1_000_000 for entry in hub.requests))
        assert other.process.poll() is None


def _until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_chances_repeat_with_their_seed(hub, repo):
    def statuses():
        hub.faults.clear()
        hub.fault("500", "GET /api/models/*", chance=0.3, seed=5, times=None)
        hub.log.clear()
        for _ in range(30):
            ask(f"{hub.endpoint}/api/models/{repo.name}", hub.token)
        return [entry.status for entry in hub.requests]

    first = statuses()
    assert set(first) == {200, 500}
    assert statuses() == first


@both_ways
def test_an_upload_that_is_cut_leaves_nothing(client, hub, repo):
    if client.xet and client.version >= (1, 20):
        pytest.skip("always Xet")
    hub.xet = False
    data = random.Random(next(COUNTER)).randbytes(2_000_000)
    hub.fault("cut-request", "PUT /cdn/*", at=500_000)
    client(PUSH, name=repo.name, files={"x.neff": data.hex()}, parent=None)  # the client tries again
    assert repo.read("x.neff") == data
    assert [entry.status for entry in hub.log.entries("PUT *")] == [0, 200]


@both_ways
def test_a_client_that_is_killed_leaves_nothing(client, hub, repo, tmp_path):
    hub.fault("latency", "PUT *", seconds=0.3, times=None)
    hub.fault("latency", "POST /xet/v1/xorbs/*", seconds=0.3, times=None)
    head, python = repo.head, client.process.args[0]
    data = random.Random(next(COUNTER)).randbytes(20_000_000)
    (tmp_path / "x.neff").write_bytes(data)
    push = "api.create_commit(name, [Add('x.neff', path)], commit_message='x').oid"
    with Client(hub, tmp_path / "home", python=python, xet=client.xet) as other:
        other.start(push, name=repo.name, path=str(tmp_path / "x.neff"))
        _until(lambda: hub.count("PUT *") or hub.count("POST /xet/v1/xorbs/*"))
        os.kill(other.process.pid, signal.SIGKILL)
    _until(lambda: not [entry for entry in hub.requests if not entry.seconds])
    hub.faults.clear()
    assert repo.head == head
    assert not list((hub.folder / "objects" / "incoming").iterdir())
    assert hub.linked_size(hashlib.sha256(data).hexdigest()) == (None, None)
    assert client(push, name=repo.name, path=str(tmp_path / "x.neff")) == repo.head


# Many clients, and a life after the server's


def test_racing_clients_lose_nothing(client, hub, repo, tmp_path):
    code = """
        from concurrent.futures import ThreadPoolExecutor
        def push(number):
            for tries in range(200):
                parent = api.repo_info(name).sha
                try:
                    adds = [Add(f"{who}/{number}", b"x"), Add(f"{who}/{number}.neff", os.urandom(1000))]
                    api.create_commit(name, adds, commit_message="x", parent_commit=parent)
                    return tries
                except hh.errors.HfHubHTTPError as error:
                    if error.response.status_code != 412:
                        raise
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(push, range(5)))
    """
    python = client.process.args[0]
    others = [Client(hub, tmp_path / str(number), python=python, xet=client.xet) for number in range(2)]
    for number, other in enumerate(others):
        other.start(code, name=repo.name, who=number)
    lost = sum(other.result() for other in others)
    for other in others:
        other.kill()
    assert hub.count("POST */commit/*") == 10 + lost
    assert sum(path.endswith(".neff") for path in repo.files()) == 10
    assert len(list(repo.history(repo.head))) == 10 + 3


def test_a_server_starts_again_where_it_was(client, hub, tmp_path):
    first = HubServer(tmp_path / "hub")
    with Client(first, tmp_path / "home", python=client.process.args[0], xet=client.xet) as other:
        with first:
            other("api.create_repo('team/kept', private=True)")
            head = other(PUSH, name="team/kept", files={"x.neff": "00ff" * 5000, "y": "00"}, parent=None)
        with HubServer(tmp_path / "hub", first.port) as second:
            assert other("api.repo_info('team/kept').sha") == second.repo("team/kept").head == head
            digest = other("sha(hf_hub_download('team/kept', 'x.neff'))")
    assert digest == hashlib.sha256(bytes.fromhex("00ff" * 5000)).hexdigest()


def test_no_token_is_logged(client, hub, repo):
    client(PUSH, name=repo.name, files={"x.neff": "00ff" * 5000}, parent=None)
    client("hf_hub_download(name, 'x.neff') and None", name=repo.name)
    assert hub.requests
    assert hub.token not in (hub.folder / "requests.ndjson").read_text()


def test_buckets(client, hub):
    if client.version < (1, 5) or not client.xet:
        pytest.skip("no buckets without Xet, or before 1.5")
    name = f"team/bucket-{next(COUNTER)}"
    code = """
        api.create_bucket(name, private=True)
        api.create_bucket(name, exist_ok=True)
        api.batch_bucket_files(name, add=[(b"one", "a/one"), (b"two" * 100_000, "a/two"), (b"x", "x")])
        api.batch_bucket_files(name, delete=["x"], add=[(b"ONE", "a/one")])
        infos = [[f.path, f.size] for f in api.get_bucket_paths_info(name, ["a/one", "a/two", "x"])]
        tree = [f.path for f in api.list_bucket_tree(name, recursive=True)]
        api.download_bucket_files(name, [("a/one", home / "one"), ("a/two", home / "two")])
        total = api.bucket_info(name).total_files
        return [infos, tree, total, (home / "one").read_text(), sha(home / "two")]
    """
    two = b"two" * 100_000
    expected = [[["a/one", 3], ["a/two", len(two)]], ["a/one", "a/two"], 2, "ONE", hashlib.sha256(two).hexdigest()]
    assert client(code, name=name) == expected
    client("api.delete_bucket(name)", name=name)
    assert failure(client, "api.bucket_info(name)", name=name).status == 404


def test_a_shell_of_its_own(tmp_path):
    fault = json.dumps({"kind": "403", "on": "GET /api/whoami-v2"})
    command = [sys.executable, "-m", "hubserver", str(tmp_path / "hub"), "--port", "0", "--fault", fault]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as server:
        endpoint = server.stdout.readline().split()[1].partition("=")[2]
        try:
            assert ask(f"{endpoint}/api/whoami-v2", "hf_admin")[0] == 403
            status, _, who = ask(f"{endpoint}/api/whoami-v2", "hf_admin")
            assert (status, json.loads(who)["name"]) == (200, "admin")
            ask(f"{endpoint}/_test/faults", "", json.dumps({"kind": "500"}).encode(), method="POST")
            assert ask(f"{endpoint}/api/whoami-v2", "hf_admin")[0] == 500
            seen = json.loads(ask(f"{endpoint}/_test/requests")[2])
            assert [entry["status"] for entry in seen] == [403, 200, 500]
        finally:
            server.terminate()
    assert server.returncode == 0


@pytest.mark.skipif(not OLAH, reason="no olah-cli (CACHEKIT_OLAH)")
def test_somebody_elses_mirror_in_front(client, hub, tmp_path):
    repo = hub.repo(f"team/repo-{next(COUNTER)}", private=False)  # olah 0.5 passes no token on by default
    large = random.Random(next(COUNTER)).randbytes(3_000_000)
    repo.plant({"m/small.json": b"{}", "m/empty": b""})
    hub.repo("Salesforce/wikitext", "dataset", private=False)  # by which olah finds out whether it is offline
    repo.plant({"m/model.neff": large}, lfs=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    up, here = hub.endpoint.removeprefix("http://"), f"127.0.0.1:{port}"
    options = {
        "host": "127.0.0.1", "port": str(port), "hf-scheme": "http", "hf-netloc": up, "hf-lfs-netloc": up,
        "mirror-scheme": "http", "mirror-netloc": here, "mirror-lfs-netloc": here,
        "repos-path": str(tmp_path / "repos"), "log-path": str(tmp_path / "logs"),
    }  # fmt: skip
    command = [str(OLAH), *itertools.chain.from_iterable((f"--{name}", value) for name, value in options.items())]
    with (tmp_path / "olah.txt").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as mirror:
        try:
            _until(lambda: _listens(port))
            settings = {"HF_ENDPOINT": f"http://{here}"}
            python = client.process.args[0]
            with Client(hub, tmp_path / "home", python=python, xet=client.xet, token="", environment=settings) as other:
                code = """
                    folder = Path(snapshot_download(name, token=False))
                    return {str(p.relative_to(folder)): sha(p) for p in sorted(folder.rglob("m/*"))}
                """
                found = other(code, name=repo.name)
        finally:
            mirror.terminate()
    expected = {"m/empty": b"", "m/model.neff": large, "m/small.json": b"{}"}
    assert found == {path: hashlib.sha256(data).hexdigest() for path, data in expected.items()}
    assert hub.count("GET /cdn/file/*") + hub.count("GET */resolve/*") > 0


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
