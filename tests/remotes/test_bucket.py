"""The bucket tier beyond the common contract: requests, faults, secrets, old clients. The test Hub serves."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError, UsageError
from cachekit.remotes.bucket import BucketTier
from cachekit.remotes.port import ABSENT, BusyError, Change, ConflictError, Limits, UncertainError, Upload, Write
from tests.remotes.tier_makers.bucket import BUCKET, bucket_hub, make_tier
from tests.support.hubserver import HubServer

RECORDS = "cachekit/v1/records/neuronxcc-2.26.6360.0+6f180f47/bert"
DOCUMENT = f"{RECORDS}/aa.json"
CLIENT_WAITS = 1.0  # seconds before the client's first new try
SHORT = Limits(connect=0.5, read=0.5, commit=1.0)
QUIET = [].append  # tells nobody
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hub(tmp_path):
    with bucket_hub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def tier(hub):
    return make_tier(hub)


def upload_of(path: str, data: bytes | Path) -> Upload:
    content = data if isinstance(data, bytes) else data.read_bytes()
    return Upload(path, len(content), hashlib.sha256(content).hexdigest(), data)


def write(tier, path, data, token=ABSENT):
    tier.commit(Change("t", (), [Write(path, data, token)]), "")


def collect(chunks, got: bytearray) -> None:
    """Keep what came before an error."""
    for chunk in chunks:
        got += chunk


def asked(hub) -> list[str]:
    """Requests to the Hub itself: methods, and the last part of the path."""
    return [f"{entry.method} {entry.path.partition('?')[0].rsplit('/', 1)[1]}" for entry in hub.requests
            if entry.kind in {"api", "resolve"}]  # fmt: skip


def every_call(tier):
    return {
        "stat": lambda: tier.stat(["a/b"], ""),
        "list": lambda: list(tier.list("a", "")),
        "read": lambda: tier.read("a/b", "", 100),
        "chunks": lambda: list(tier.chunks("a/b", "")),
        "upload": lambda: tier.upload([upload_of("a/b", b"x")], "", QUIET),
        "commit": lambda: write(tier, "a/b", b"x"),
    }


# Requests.


@pytest.mark.feature("R2")
def test_a_thousand_paths_are_one_request(hub, tier):
    paths = [f"{RECORDS}/{n:04}.json" for n in range(2500)]
    tier.upload([upload_of(path, b"{}") for path in paths[::5]], "", QUIET)
    hub.log.clear()
    assert set(tier.stat(paths[:1000], "")) == set(paths[:1000:5])
    assert asked(hub) == ["POST paths-info"]
    assert len(tier.stat(paths, "")) == 500
    assert len(hub.requests) == 4
    hub.log.clear()
    assert {entry.path for entry in tier.list(RECORDS, "")} == set(paths[::5])
    assert len(hub.requests) == 1


def test_pages_of_a_listing_are_followed(hub, tier):
    tier.upload([upload_of(f"m/{n}", b"x") for n in range(7)] + [upload_of("m-other/x", b"x")], "", QUIET)
    hub.tree_page = 3
    assert sorted(entry.path for entry in tier.list("m", "")) == [f"m/{n}" for n in range(7)]
    assert sum(1 for _ in tier.list("", "")) == 8
    assert list(tier.list("nothing", "")) == []


@pytest.mark.feature("R3")
def test_what_is_there_is_not_sent_again(hub, tier, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 << 20))
    files = [upload_of(f"m/{n}", b"%d" % n) for n in range(50)] + [upload_of("m/empty", b""), upload_of("m/l", large)]
    told: list[int] = []
    tier.upload(files, "", told.append)
    assert sum(told) == sum(file.size for file in files)
    hub.log.clear()
    make_tier(hub).upload(files, "", told.append)
    assert asked(hub) == ["POST paths-info"]
    assert len(hub.requests) == 1
    for other in (b"01", b"1"):  # of another size, and of the same
        with pytest.raises(ConflictError, match="m/0"):
            tier.upload([upload_of("m/new", b"n"), upload_of("m/0", other)], "", QUIET)
    assert tier.stat(["m/new"], "") == {}


def test_documents_go_in_one_batch_after_one_look(hub, tier):
    writes = [Write("README.md", b"card", ABSENT), Write(DOCUMENT, b"{}", ABSENT)]
    tier.commit(Change("t", (), writes), "")
    assert [request for request in asked(hub) if "token" not in request] == ["POST paths-info", "POST batch"]
    token = tier.read(DOCUMENT, "", 100).token
    hub.log.clear()
    with pytest.raises(ConflictError, match="README"):
        tier.commit(Change("t", (), [Write(DOCUMENT, b"2", token), Write("README.md", b"2", "old")]), "")
    assert asked(hub) == ["POST paths-info"]
    assert tier.read(DOCUMENT, "", 100).data == b"{}"
    write(tier, DOCUMENT, None, token)
    assert tier.read(DOCUMENT, "", 100) is None
    assert [entry.path for entry in tier.list("", "")] == ["README.md"]


def test_files_lie_below_the_prefix_and_another_client_reads_them(hub, tier, tmp_path):
    from huggingface_hub import HfApi

    data = os.urandom(100_000)
    tier.upload([upload_of("neuronxcc-2+6/MODULE_1+f/a b~é.neff", data)], "", QUIET)
    path = "some/where/neuronxcc-2+6/MODULE_1+f/a b~é.neff"
    api = HfApi(endpoint=hub.endpoint, token=hub.token)
    assert [file.path for file in api.get_bucket_paths_info(BUCKET, [path])] == [path]
    api.download_bucket_files(BUCKET, [(path, tmp_path / "copy")])
    assert (tmp_path / "copy").read_bytes() == data


@pytest.mark.feature("R5")
def test_reading_goes_on_where_it_stopped(hub, tier):
    data = os.urandom(300_000)
    tier.upload([upload_of("m/a", data)], "", QUIET)
    hub.fault("cut", "GET /cdn/*", at=200_000)
    got = bytearray()
    with pytest.raises(RemoteError):
        collect(tier.chunks("m/a", ""), got)
    assert 0 < len(got) <= 200_000
    hub.log.clear()
    assert b"".join(tier.chunks("m/a", "", len(got))) == data[len(got) :]
    assert sum(entry.sent for entry in hub.requests) < 150_000
    assert b"".join(tier.chunks("m/a", "", len(data))) == b""
    with pytest.raises(FileNotFoundError, match="m/b"):
        list(tier.chunks("m/b", ""))


def test_a_server_that_knows_no_ranges_is_read_from_its_beginning(hub, tier, monkeypatch):
    data = os.urandom(300_000)
    tier.upload([upload_of("m/a", data)], "", QUIET)
    monkeypatch.setattr("tests.support.hubserver.buckets.RANGES", False)
    assert b"".join(tier.chunks("m/a", "", 123_456)) == data[123_456:]


@pytest.mark.feature("S2")
def test_documents_that_are_too_large_or_have_no_end_are_not_read(hub, tier):
    write(tier, DOCUMENT, b"x" * 1001)
    with pytest.raises(IntegrityError, match="too large"):
        tier.read(DOCUMENT, "", 1000)
    assert len(tier.read(DOCUMENT, "", 1001).data) == 1001
    hub.fault("endless", "GET /cdn/*", times=None)
    with pytest.raises(IntegrityError, match="too large"):
        tier.read(DOCUMENT, "", 5000)


@pytest.mark.parametrize(
    "body", ["", "{}", "[1]", '[{"size": 1}]', "[" * 100_000, '[{"path": "some/where/a", "size": "x", "type": "file"}]']
)
def test_answers_that_no_hub_gives_are_errors(hub, tier, body):
    hub.fault("rewrite", "* /api/buckets/*", body=body, times=None)
    for call in (lambda: tier.stat(["a"], ""), lambda: list(tier.list("", ""))):
        with pytest.raises((RemoteError, IntegrityError)):
            call()


# What goes wrong.


@pytest.mark.feature("R4")
def test_a_dead_hub_is_told(hub):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        tier = BucketTier(f"hf://buckets/{BUCKET}", limits=Limits(2, 20, 20), endpoint=endpoint, token="hf_x")
        for call in every_call(tier).values():
            with pytest.raises(RemoteError) as caught:
                call()
            assert type(caught.value) is RemoteError
            assert caught.value.cause == "it cannot be reached"


@pytest.mark.feature("R4")
@pytest.mark.parametrize("kind", ["black-hole", "slow", "endless"])
def test_a_hub_that_never_answers_is_given_up(hub, kind):
    tier = make_tier(hub, limits=SHORT)
    tier.upload([upload_of("a/b", b"x" * 1000)], "", QUIET)
    hub.fault(kind, rate=1.0, times=None)
    calls = every_call(tier)
    for what in ("stat", "list", "upload", "commit") if kind != "black-hole" else calls:
        with pytest.raises(RemoteError):
            calls[what]()


@pytest.mark.feature("S5")
@pytest.mark.parametrize("token", ["hf_outsider", "hf_nobody_has_this_token"])
def test_who_may_not_is_told_without_the_token(hub, token):
    calls = every_call(make_tier(hub, token=token))
    for call in calls.values():
        with pytest.raises(AuthError) as caught:
            call()
        assert token not in shown(caught.value)


def test_who_may_only_read_cannot_write(hub, tier):
    write(tier, DOCUMENT, b"{}")
    reader = make_tier(hub, token=hub.read_token)
    assert reader.read(DOCUMENT, "", 100).data == b"{}"
    for call in (lambda: reader.upload([upload_of("a", b"a")], "", QUIET), lambda: write(reader, "a", b"a")):
        with pytest.raises((AuthError, RemoteError)) as caught:
            call()
        assert hub.read_token not in shown(caught.value)
    assert tier.stat(["a"], "") == {}


def test_a_missing_bucket_is_told_by_every_call(hub):
    tier = BucketTier("hf://buckets/team/none", endpoint=hub.endpoint, token=hub.token)
    for call in every_call(tier).values():
        with pytest.raises(AuthError, match="not there"):
            call()


def test_a_full_window_says_how_long_to_wait(hub, tier):
    hub.fault("429-window", "*", seconds=7, times=None)
    for what, call in every_call(tier).items():
        with pytest.raises(BusyError) as caught:
            call()
        assert caught.value.wait == 7, what


def test_an_answer_that_was_lost_is_looked_for(hub):
    tier = make_tier(hub, limits=SHORT)
    hub.fault("black-hole", "POST */batch", landed=True, times=None)
    write(tier, DOCUMENT, b"one")  # it is there, so it happened
    assert tier.read(DOCUMENT, "", 100).data == b"one"
    hub.faults.clear()
    token = tier.read(DOCUMENT, "", 100).token
    hub.fault("black-hole", "POST */batch", times=None)
    with pytest.raises(UncertainError):
        write(tier, DOCUMENT, b"two", token)
    with pytest.raises(RemoteError):
        tier.upload([upload_of("m/a", b"a")], "", QUIET)


@pytest.mark.feature("R4")
@pytest.mark.feature("R3")
def test_what_was_given_up_is_not_sent_again_over_what_somebody_wrote_meanwhile(hub):
    """A bucket compares nothing: the client's own next try, once the line is cut, would write an old document."""
    hub.fault("black-hole", "POST */batch", times=1)
    with pytest.raises(UncertainError):
        write(make_tier(hub, limits=SHORT), DOCUMENT, b"old")
    other = make_tier(hub)
    write(other, DOCUMENT, b"new")
    sent = hub.count("POST */batch")
    hub.hang_up()  # as a proxy does, some minutes later
    end = time.monotonic() + 3 * CLIENT_WAITS
    while time.monotonic() < end and hub.count("POST */batch") == sent:
        time.sleep(0.1)
    assert hub.count("POST */batch") == sent
    assert other.read(DOCUMENT, "", 100).data == b"new"


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_files_are_sent_again_where_a_try_fails_and_documents_are_looked_for(hub, kind):
    tier = make_tier(hub)
    hub.fault(kind, "POST */batch", times=2)
    tier.upload([upload_of("m/a", b"a")], "", QUIET)
    assert (tier.stat(["m/a"], "").keys(), hub.count("POST */batch")) == ({"m/a"}, 3)
    hub.fault(kind, "POST */batch", times=1)
    with pytest.raises((UncertainError, RemoteError)):
        write(tier, DOCUMENT, b"one")
    assert hub.count("POST */batch") == 4
    write(tier, DOCUMENT, b"one")


@pytest.mark.parametrize("kind", ["500", "black-hole"])
def test_a_broken_store_behind_the_hub_is_given_up_and_the_process_ends(hub, tmp_path, kind):
    """hf_xet tries again without end, in Rust, where no exception reaches it."""
    hub.fault(kind, "* /xet/*", times=None)
    code = f"""
import hashlib
from cachekit.errors import RemoteError
from cachekit.remotes.bucket import BucketTier
from cachekit.remotes.port import Limits, Upload
tier = BucketTier("hf://buckets/{BUCKET}", limits=Limits(1, 1, 1), endpoint={hub.endpoint!r}, token={hub.token!r})
try:
    tier.upload([Upload("a", 3, hashlib.sha256(b"abc").hexdigest(), b"abc")], "", print)
except RemoteError as error:
    print("given up", "hf_" in repr(error.as_dict()))
"""
    environment = {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.stdout == "given up False\n", done.stderr
    assert done.returncode == 0
    assert hub.token not in done.stderr


@pytest.mark.feature("R4")
def test_offline_is_told_and_opens_no_socket(hub, tier):
    # Undone here: the fixture's own change of it is undone before the test's would be.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        for call in every_call(tier).values():
            with pytest.raises(RemoteError, match="offline"):
                call()
    assert hub.requests == []


# Names, and what is installed.


@pytest.mark.parametrize(
    "name", ["hf://buckets/", "hf://buckets/team", "hf://team/cache", "hf://buckets/team/cache/../x", "s3://a/b", ""]
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="no bucket"):
        BucketTier(name)


def test_a_client_without_buckets_is_named(monkeypatch):
    import huggingface_hub

    monkeypatch.delattr(huggingface_hub.HfApi, "batch_bucket_files", raising=False)
    with pytest.raises(UsageError, match=r"huggingface_hub 1\.5") as caught:
        BucketTier("hf://buckets/team/cache")
    assert huggingface_hub.__version__ in caught.value.cause
    assert caught.value.hint == 'pip install "huggingface_hub>=1.5"'


def shown(error: CachekitError) -> str:
    """All that a person, a log or a journal could get to see."""
    return "\n".join([*traceback.format_exception(error), *error.lines(), repr(error), repr(error.as_dict())])


def test_a_hub_of_ones_own_is_asked_once_each(hub: HubServer, tier):
    """The token travels to the Hub only: bytes come from another host, by a signed address."""
    write(tier, DOCUMENT, b"{}")
    hub.log.clear()
    tier.read(DOCUMENT, "", 100)
    assert [(entry.kind, entry.user) for entry in hub.requests] == [("resolve", "admin"), ("cdn", "")]


def test_a_bucket_that_anybody_can_read_is_known(hub):
    import huggingface_hub

    api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
    private = make_tier(hub)
    private.revision()
    api.delete_bucket(BUCKET)
    api.create_bucket(BUCKET, private=False)
    public = make_tier(hub)
    hub.log.clear()
    for _ in range(2):
        public.revision()
    assert len(hub.log.entries()) == 1
    assert (private.public, public.public) == (False, True)
