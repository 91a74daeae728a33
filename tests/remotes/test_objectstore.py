"""The object-store adapter on obstore's memory, and what Google Cloud Storage and Azure do differently."""

import os
import threading

import pytest

from cachekit.errors import AuthError, ConflictError, UsageError
from cachekit.remotes import address
from cachekit.remotes.address import make, parse
from cachekit.remotes.objectstore.azure import Azure
from cachekit.remotes.objectstore.connect import translated
from cachekit.remotes.objectstore.gcs import GCS
from cachekit.remotes.objectstore.s3 import S3
from cachekit.remotes.port import ABSENT
from tests.remotes.storage_makers.memory_store import InMemory, LikeAzure, serve
from tests.remotes.storage_processes import put, write


@pytest.fixture(params=[InMemory, LikeAzure])
def opened(request, tmp_path):
    with serve(tmp_path, request.param) as make:
        yield make


@pytest.mark.feature("R1")
def test_of_eight_writers_one_wins_each_round(opened):
    token = ABSENT
    for turn in range(10):
        start, won = threading.Barrier(8), []

        def one(number, turn=turn, token=token, start=start, won=won):
            remote = opened()
            start.wait()
            try:
                write(remote, "x.json", b"%d %d" % (turn, number), token)
                won.append(number)
            except ConflictError:
                pass

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        document = opened().read("x.json", "", 100)
        assert [b"%d %d" % (turn, number) for number in won] == [document.data]
        token = document.token


@pytest.mark.feature("R2")
def test_many_are_found_however_the_service_lists(opened):
    paths = [f"r/{number:04}" for number in range(2500)]
    put(opened(), dict.fromkeys(paths[::5], b"x"))
    assert set(opened().stat(paths, "")) == set(paths[::5])
    assert set(opened().stat([*paths[::500], "zz"], "")) == set(paths[::500])


def linked(address, **table):
    name = "there" if table else address
    return make(parse(["local:rw", f"{name}:rw"], {"there": {"url": address, **table}} if table else {})[1])


def test_addresses_lead_to_their_services(monkeypatch):
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert linked("gs://team-bucket/a/b/").name == "gs://team-bucket/a/b"
    assert linked("az://cache/team", account="ours").name == "az://cache/team"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "ours")
    assert linked("az://cache").name == "az://cache"


def test_an_option_that_a_kind_needs_is_asked_for(monkeypatch):
    kind = address.Kind(("r2://",), "nowhere", ("endpoint",), "r2://BUCKET/PREFIX", needs=("endpoint",))
    monkeypatch.setattr(address, "KINDS", (*address.KINDS, kind))
    for remotes, tables, table in (
        (["local", "far"], {"far": {"url": "r2://team"}}, "far"),
        (["local", "r2://team"], {}, "NAME"),
    ):
        with pytest.raises(UsageError, match="endpoint is missing") as raised:
            make(parse(remotes, tables)[1])
        assert raised.value.hint == f'add endpoint = "…" next to url in [remotes.{table}] of cachekit.toml'


@pytest.mark.parametrize(
    ("address", "table", "said"),
    [
        ("gs://UPPER/x", {}, "not a bucket of Google Cloud Storage"),
        ("gs://bucket/../x", {}, "not a bucket of Google Cloud Storage"),
        ("gs://bucket", {"region": "x"}, "unknown setting 'region'"),
        ("az://a_b/x", {"account": "ours"}, "not a container of Azure Blob Storage"),
        ("az://cache", {}, "names no account"),
        ("az://cache", {"account": "ours", "endpoint": "nowhere"}, "an endpoint that is not a URL"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(monkeypatch, address, table, said):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError, match=said):
        linked(address, **table)


@pytest.mark.feature("T7")
@pytest.mark.parametrize("word", ["e.test/", "e.test:1/x", "@e.test/", "e.test?", "e.test#", "E.", "us\n"])
@pytest.mark.parametrize(
    ("url", "option", "variable"),
    [("az://cache", "account", "AZURE_STORAGE_ACCOUNT_NAME"), ("s3://bucket", "region", "AWS_REGION")],
)
def test_no_account_and_no_region_leads_to_another_server(monkeypatch, url, option, variable, word):
    """The server is told credentials, and a project's settings may be a stranger's."""
    with pytest.raises(UsageError, match=f"its {option} is not in the form of a name"):
        linked(url, **{option: word})
    monkeypatch.setenv(variable, word)
    with pytest.raises(UsageError, match=f"its {option} is not in the form of a name"):
        linked(url)


@pytest.mark.parametrize("variable", ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"])
def test_credentials_in_a_pipe_are_not_waited_for(monkeypatch, tmp_path, variable):
    os.mkfifo(tmp_path / "key.json")
    monkeypatch.setenv(variable, str(tmp_path / "key.json"))
    with pytest.raises(UsageError, match="not a regular file") as raised:
        GCS().settings("bucket", {})
    assert variable in raised.value.hint


def test_credentials_that_are_not_there_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(UsageError, match="GOOGLE_APPLICATION_CREDENTIALS names a file that is not there"):
        GCS().settings("bucket", {})


@pytest.mark.feature("S5")
@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (GCS(), "http://metadata.google.internal/token: error sending request", "no credentials"),
        (GCS(), "status code: 403, <Code>AccessDenied</Code> secret", "not allowed"),
        (GCS(), "status code: 404, <Code>NoSuchBucket</Code>", "there is no such bucket"),
        (Azure(), "http://169.254.169.254/metadata: error sending request", "no credentials"),
        (Azure(), "status code: 404, <Code>ContainerNotFound</Code>", "there is no such container"),
    ],
)
def test_a_refusal_is_told_and_quotes_nothing(kind, text, said):
    error = translated(kind, RuntimeError(f"{text} {'s3cr3t' * 3}"), f"{kind.scheme}://cache", "look")
    assert isinstance(error, AuthError)
    assert said in error.message
    assert "s3cr3t" not in "".join(error.lines())


def test_a_user_without_a_home_directory_has_no_keys_in_files(monkeypatch, tmp_path):
    """And whoever works in a folder with one that is called `~` gets none out of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / ".aws").mkdir(parents=True)
    (tmp_path / "~" / ".aws" / "credentials").write_text("[default]\naws_access_key_id=A\naws_secret_access_key=b\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert S3().settings("bucket", {}) == {}
