"""The test Hub against the real, unmodified client: routes, many clients at once, a life after the server's.

Assertions go through the client wherever there is a choice: a server that is tested by its own words agrees with
itself.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys

import pytest

from tests.support.hub_session import COUNTER, PUSH, ask, both_ways, failure
from tests.support.hubserver import Client, HubServer
from tests.support.places import ROOT

# The server itself, which every other test of the Hub believes: `make test-hub`, with each version of the client.
pytestmark = pytest.mark.slow
pytest_plugins = ["tests.support.hub_session"]


# Accounts and repositories


def test_who_am_i(client, hub):
    assert client("[api.whoami()['name'], [o['name'] for o in api.whoami()['orgs']]]") == ["admin", ["team"]]
    assert client("api.whoami(token='hf_reader')['auth']['accessToken']['role']") == "read"
    assert failure(client, "api.whoami(token='hf_nobody')").status == 401


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


# Commits


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


# Large files


@both_ways
def test_lfs_uploads_once(client, hub, repo):
    if client.xet and client.version >= (1, 20):
        pytest.skip("this client sends every large file by Xet, never by LFS")
    hub.xet = False
    data = random.Random(next(COUNTER)).randbytes(200_001)
    files = {"x.neff": data.hex()}
    client(PUSH, name=repo.name, files=files, parent=None)
    assert repo.read("x.neff") == data
    assert hub.count("PUT /cdn/*") == 1
    client(PUSH, name=hub.repo(f"team/repo-{next(COUNTER)}").name, files=files, parent=None)
    assert hub.count("PUT /cdn/*") == 1  # the bytes were there


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


# Many clients, and a life after the server's


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


def test_buckets(client, hub):
    if client.version < (1, 5) or not client.xet:
        pytest.skip("buckets need Xet and a client from 1.5 on")
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
    command = [sys.executable, "-m", "tests.support.hubserver", str(tmp_path / "hub"), "--port", "0", "--fault", fault]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
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
