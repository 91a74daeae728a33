"""The test Hub's faults against the real, unmodified client: what each does, and how the client takes it."""

from __future__ import annotations

import hashlib
import os
import random
import signal

import pytest

from tests.support.hub_session import COUNTER, PUSH, ask, both_ways, failure, until
from tests.support.hubserver import Client

# The server itself, which every other test of the Hub believes: `make test-hub`, with each version of the client.
pytestmark = pytest.mark.slow
pytest_plugins = ["tests.support.hub_session"]

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
        pytest.skip("this client uploads without Xet: there is no xorb to damage")
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
    until(lambda: all(entry.seconds for entry in hub.requests))
    assert hub.log.entries("GET *")[0].seconds >= 0.1  # 5 bytes
    assert hub.log.entries("HEAD *")[0].seconds >= 0.2


def test_an_endless_body_never_ends(client, hub, repo, tmp_path):
    hub.fault("endless", "GET /api/models/*")
    python = client.process.args[0]
    with Client(hub, tmp_path, python=python, xet=client.xet) as other:
        other.start("api.repo_info(name)", name=repo.name)
        until(lambda: any(entry.sent > 1_000_000 for entry in hub.requests))
        assert other.process.poll() is None


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
        pytest.skip("this client sends every large file by Xet, never by LFS")
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
        until(lambda: hub.count("PUT *") or hub.count("POST /xet/v1/xorbs/*"))
        os.kill(other.process.pid, signal.SIGKILL)
    until(lambda: not [entry for entry in hub.requests if not entry.seconds])
    hub.faults.clear()
    assert repo.head == head
    assert not list((hub.folder / "objects" / "incoming").iterdir())
    assert hub.linked_size(hashlib.sha256(data).hexdigest()) == (None, None)
    assert client(push, name=repo.name, path=str(tmp_path / "x.neff")) == repo.head
