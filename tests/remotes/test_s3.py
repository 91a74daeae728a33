"""The S3 remote beyond the common contract: requests, artifacts, documents."""

from __future__ import annotations

import hashlib
import os
import re
import time
from itertools import product

import pytest
from msgspec import structs

from cachekit.errors import BusyError, ConflictError, RemoteError, UncertainError
from cachekit.key.canonical import key_of
from cachekit.remotes import derived, index, layout, parts
from cachekit.remotes.document import Shared
from cachekit.remotes.index import Known
from cachekit.remotes.objectstore.objects import REMOVED
from cachekit.remotes.objectstore.remote import SINGLE
from cachekit.remotes.port import ABSENT, Commit, Write
from cachekit.remotes.push import offer, push
from cachekit.store.record import Module
from cachekit.verbs.coverage import coverage_of_all
from cachekit.verbs.hub import contents
from cachekit.verbs.why import why, with_nearest
from tests.remotes.s3_server import refusal
from tests.remotes.s3_storage import SHORT, name, open_s3, server, shared_server, storage  # noqa: F401 - fixtures
from tests.remotes.storage_calls import QUIET, upload_of, write
from tests.remotes.test_nearest import fill_whole, made_from, others
from tests.remotes.test_parts import long_record, pushed
from tests.support.cli_session import publish
from tests.support.doctor_cases import fine, the_problem
from tests.support.standins import Watched, make_record, recipe
from tests.support.standins import publish as made_here
from tests.trust.flow_cases import ALICE, trust

pytestmark = pytest.mark.servers
pytest_plugins = ["tests.support.cli_session"]

RECORDS = "cachekit/v1/records/neuronxcc-2.26.6360.0+6f180f47/bert"
DOCUMENT = f"{RECORDS}/aa.json"


def collect(chunks, got: bytearray) -> None:
    """Keep what came before an error."""
    for chunk in chunks:
        got += chunk


# Whose it is.


@pytest.mark.feature("T2")
@pytest.mark.usefixtures("server")
def test_a_bucket_needs_signatures_until_the_settings_vouch_for_it(command, work, name, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    publish(tmp_path / "elsewhere")
    there = f"local:rw,{name}:rw"
    command("push", "tiny.yaml", "--home", str(tmp_path / "elsewhere"), "--cache", there)
    why = "who may write to a bucket cannot be asked"
    answer = command("plan", "tiny.yaml", "--cache", there)
    assert answer.out.startswith("tiny: miss")
    assert why in " ".join(answer.out.split())
    for words in (["pull", "tiny.yaml"], ["plan", "tiny.yaml", "--require-warm"], ["trust", "check"]):
        answer = command(*words, "--cache", there, code=5)
        assert why in " ".join((answer.out + answer.err).split())
        assert 'trust = "owner"' in " ".join(answer.err.split())
    listed = " ".join(command("trust", "ls", "--cache", there).out.split())
    assert f"{name}: records need a signature: {why}" in listed
    assert why in command("hub", "ls", "--cache", there, "--format", "json").json[0]["demands"]
    assert why in the_problem("remotes", cache=there)["said"]
    assert fine("remotes", cache=f"local:rw,{name}:w")

    table = f'cache = "local:rw,team:r"\n[remotes.team]\nurl = "{name}/"\n'
    (work / "cachekit.toml").write_text(f'{table}trust = "owner"\n')
    for more in ([], ["--trust", "owner"], ["--cache", there]):
        assert command("plan", "tiny.yaml", *more).out.startswith("tiny: hit")
    assert command("plan", "tiny.yaml", "--trust", "signed").out.startswith("tiny: miss")
    checked = " ".join(command("trust", "check").out.split())
    assert f"{why}; the settings say that only your own people may" in checked
    (work / "cachekit.toml").write_text(f'{table}trust = "all"\n')
    assert command("plan", "tiny.yaml").out.startswith("tiny: hit")
    assert command("plan", "tiny.yaml", "--trust", "owner").out.startswith("tiny: miss")


# Requests.


@pytest.mark.feature("R2")
def test_a_thousand_records_are_asked_for_in_a_few_requests(server, storage):
    paths = [f"{RECORDS}/{n:04}.json" for n in range(1000)]
    storage.upload([upload_of(path, b"{}") for path in paths[::2]], "", QUIET)
    storage.upload([upload_of(f"{RECORDS}/{n:04}.other", b"{}") for n in range(0, 1000, 3)], "", QUIET)
    server.requests.clear()
    assert set(storage.stat(paths, "")) == set(paths[::2])
    assert server.count() <= 10
    assert server.count() == server.count("GET")


@pytest.mark.feature("R2")
def test_few_files_cost_a_request_each_and_say_their_digest(server, storage):
    storage.upload([upload_of("m/a", b"a"), upload_of("m/empty", b"")], "", QUIET)
    server.requests.clear()
    found = storage.stat(["m/a", "m/empty", "m/none"], "")
    assert server.count("HEAD") == server.count() == 3
    assert found["m/a"].holds(1, hashlib.sha256(b"a").hexdigest()) is True
    assert found["m/empty"].size == 0


@pytest.mark.feature("R7")
def test_a_push_and_questions_beside_three_thousand_records_ask_and_send_little(server, name, tmp_path, monkeypatch):
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    wanted = Watched(tmp_path / "any").prepare()
    far = [recipe(batch=batch, max_seq_length=512, gradient_accumulation_steps=4) for batch in range(200, 240)]
    zoo = [Watched(tmp_path / "any").prepare(one) for one in far]
    recorded, code = [made_from(prepared)[0] for prepared in zoo[:30]], made_from(zoo[0])[1]
    made = [*recorded, *(record for record, _ in others(wanted, 2_970))]
    lying = {layout.record_path(record.place): Shared(record).raw for record in made}
    indexed = structs.replace(index.RemoteIndex().with_(map(Known.of, made)), listed=time.time())
    lying[layout.INDEX] = index.encode(indexed)
    lying |= {path: code[digest] for digest, (_, path) in Shared(recorded[0]).paths.items()}
    below = name.split("/", 3)[3]
    for path, data in lying.items():
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(server.bucket, f"{below}/{path}", data)
    near, _ = made_from(wanted, **{"training.max_seq_length": 64, "training.seed": 9})
    new, files = make_record(1, "wxyz", size=7000)
    near = structs.replace(near, modules=new.modules)
    # The first push since there are so many moves them to a document of their own.
    fill_whole(tmp_path / "bob", open_s3(name), others(wanted, 2_971)[-1:])
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    monkeypatch.setattr(parts, "MODULES", 64)
    long, code = long_record(130, size=50)
    more, contents_of_more = make_record(1, "ijkl", size=7000)
    grown = structs.replace(
        long, modules=(*long.modules, structs.replace(more.modules[0], name="standin-1.0/MODULE_X"))
    )
    first = others(wanted, 2_972)[-1]  # whose two files lie there, which is found out by sending them
    with ann.session.remotes.writable[0].call() as storage:  # with its lease a store finds out what the server heeds
        storage.commit(Commit("a lease", writes=[Write(layout.lease_path(near.key), b"{}", ABSENT)]), "")
    for most, made in ((7, first), (6, (near, files)), (200, (long, code)), (6, (grown, code | contents_of_more))):
        ann.session.remotes.find(made[0].place)  # as before each compile
        server.requests.clear()
        server.sent = server.received = 0
        pushed(ann, made)
        assert server.count() <= most, server.requests
        assert server.sent + server.received < 3 * 28_000 + 100_000
    all_of = [(str(number), lambda one=one: one) for number, one in enumerate(zoo)]
    questions = {
        "a miss": lambda me: why(me.session, me.prepare()).nearest.key,
        "why KEY": lambda me: with_nearest(me.session, near.key[:16])[1].key,
        "coverage": lambda me: coverage_of_all(me.session, all_of, skip=False, certain=False).covered,
        "hub ls": lambda me: sum(len(there.records) for there in contents(me.session)),
    }
    answers = {}
    policies = {"": {}, "signs": {"key": ALICE}, "revokes": {"revoked": {"before": "2020-01-01"}}}
    for (policy, says), (question, ask) in product(policies.items(), questions.items()):
        me = Watched(
            tmp_path / f"{policy} {question}", shared=[(open_s3(name), "r")], trust=trust(said={name: "owner"}, **says)
        )
        server.requests.clear()
        server.sent = 0
        answers[question, policy] = ask(me)
        # Where something is revoked, each record that is told of is read, with its signatures; and for many at once
        # all names are listed.
        read = {"coverage": 30, "hub ls": 0}.get(question, 1) if policy == "revokes" else 0
        bounds = server.count() <= 4 + 2 * read + read // 3, server.sent < 300_000 + 60_000 * read
        assert bounds == (True, True), (policy, question, server.requests)
    one = {"a miss": near.key, "why KEY": near.key, "coverage": 30, "hub ls": 3_004}
    assert answers == {(question, policy): one[question] for policy in policies for question in questions}


@pytest.mark.feature("R7")
@pytest.mark.parametrize("ignores", ["", "HTTP_IF_"])
def test_a_push_on_what_was_seen_before_others_pushed_loses_nothing(server, name, tmp_path, ignores):
    """Neither the record of its own key, which was absent then, nor a row of the index; whether the server compares."""
    server.ignores = ignores
    ann, bob, cat = (Watched(tmp_path / who, shared=[(open_s3(name), "rw")]) for who in ("ann", "bob", "cat"))
    first, mine, (record, built) = make_record(1), make_record(2, "cd"), make_record(2, "e")
    theirs = structs.replace(record, modules=(Module("standin-1.0/MODULE_2", record.files),)), built
    pushed(cat, first)
    for one, number in ((ann, 5), (bob, 6)):
        pushed(one, make_record(number))
        assert not one.session.remotes.find(mine[0].place)
        assert contents(one.session)[0].records
    pushed(bob, theirs)
    pushed(bob, make_record(3))
    pushed(ann, mine)
    pushed(ann, make_record(4))
    ours, code = make_record(2, "f")  # on what each last saw of a record that both have written
    for who, number in ((bob, 7), (ann, 8)):
        grown = Module(f"standin-1.0/MODULE_{number}", ours.files)
        pushed(who, (structs.replace(ours, modules=(grown,)), code))
    eve = Watched(tmp_path / "eve", shared=[(open_s3(name), "r")])
    server.requests.clear()
    assert {record.key for record in contents(eve.session)[0].records} == {make_record(n)[0].key for n in range(1, 7)}
    found = eve.session.remotes.find(mine[0].place).shared.record
    assert {file.sha256 for file in found.files} == {*mine[1], *theirs[1], *code}
    assert {module.name[-1] for module in found.modules} == set("1278")


@pytest.mark.feature("R3")
@pytest.mark.parametrize("ignores", ["", "HTTP_IF_", "HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_module_with_other_bytes_is_never_overwritten_whatever_a_server_ignores(server, name, tmp_path, ignores):
    """By a store that knows nothing of the server, by one that found out how it is; with few files and with many."""
    server.ignores = ignores
    ann, bob, eve = (Watched(tmp_path / who, shared=[(open_s3(name), "rw")]) for who in ("ann", "bob", "eve"))
    records = []
    for number, artifacts in enumerate(["a", "abcdef", "b"]):
        for who, size in ((ann, 4000), (bob, 5000)):
            made, contents = make_record(10 * number + size // 1000, artifacts, size=size)
            module = Module(f"standin-1.0/MODULE_{number}", made.files)
            records.append(structs.replace(made, modules=(module,)))
            pushed(who, (records[-1], contents))
    for record in records:
        assert eve.pull(eve.session.remotes.find(record.place)).record == record


@pytest.mark.feature("R7")
def test_a_push_whose_guess_was_wrong_says_what_it_sent_and_sends_it_once(server, name, tmp_path):
    """And warns of no other build that is not there any more."""
    storage = open_s3(name)
    ann, bob, cat = (Watched(tmp_path / who, shared=[(open_s3(name), "rw")]) for who in ("ann", "bob", "cat"))
    ours, code = make_record(1, "ab", size=5000)
    theirs = make_record(1, "a", size=4000)
    pushed(ann, make_record(5))
    pushed(ann, theirs)
    for path in (layout.record_path(ours.place), "standin-1.0/MODULE_1/model-a.code"):
        write(storage, path, None, storage.read(path, "", 1 << 20).token)
    module = Module("standin-1.0/MODULE_1", (ours.files[0],))
    pushed(bob, (structs.replace(ours, modules=(module,)), code))
    pushed(cat, make_record(6))
    for who, rows in ((ann, (module, "2")), (cat, (module, "3"))):
        made, more = make_record(1, f"{rows[1]}xyz")
        grown = structs.replace(ours, modules=(module, Module(f"standin-1.0/MODULE_{rows[1]}", made.files)))
        server.requests.clear()
        done = pushed(who, (grown, code | more))
        assert {file.path for file in done.files} >= {
            f"standin-1.0/MODULE_{rows[1]}/{file.path}" for file in made.files
        }

        assert server.count(f"PUT .*/MODULE_{rows[1]}/") == len(made.files)
        assert not [told for told in who.told("record.differs") if name in str(told)]


@pytest.mark.feature("R3")
def test_what_was_found_before_others_removed_it_is_not_believed_by_a_later_push(name, tmp_path):
    storage = open_s3(name)
    ann, eve = (Watched(tmp_path / who, shared=[(open_s3(name), "rw")]) for who in ("ann", "eve"))
    first, contents = make_record(1)
    pushed(ann, (first, contents))
    path = "standin-1.0/MODULE_1/model-a.code"
    assert ann.session.remotes.writable[0].exist([path])
    write(storage, path, None, storage.read(path, "", 1 << 20).token)
    second = structs.replace(make_record(2)[0], modules=first.modules)
    pushed(ann, (second, contents))
    assert eve.pull(eve.session.remotes.find(second.place)).record == second


@pytest.mark.feature("R7")
def test_a_record_that_was_set_back_since_it_was_seen_gets_what_it_lacks(name, tmp_path):
    """By what was last seen there, nothing is to be written."""
    storage = open_s3(name)
    ann, bob = (Watched(tmp_path / who, shared=[(open_s3(name), "rw")]) for who in ("ann", "bob"))
    (mine, code), (record, built) = make_record(1, "a"), make_record(1, "b")
    path = layout.record_path(mine.place)
    pushed(bob, (structs.replace(record, modules=(Module("standin-1.0/MODULE_2", record.files),)), built))
    before = storage.read(path, "", 1 << 20)
    pushed(ann, make_record(2))
    pushed(ann, (mine, code))
    write(storage, path, before.data, storage.read(path, "", 1 << 20).token)
    pushed(ann, (mine, code))
    assert {file.sha256 for file in ann.session.remotes.find(mine.place).shared.record.files} == {*code, *built}


@pytest.mark.feature("R7")
@pytest.mark.parametrize(("modules", "files"), [(1, 4), (15, 1)])
def test_what_a_push_asked_for_it_neither_sends_nor_asks_for_again(server, name, tmp_path, modules, files):
    """It asks for files that should be there only where it is told to."""
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    made, contents = make_record(1, [str(number) for number in range(files * (modules + 2))])
    rows = [made.modules[0].files[at : at + files] for at in range(0, len(contents), files)]
    all_of = tuple(Module(f"standin-1.0/MODULE_{number}", row) for number, row in enumerate(rows))
    pushed(ann, (structs.replace(made, modules=all_of[:-2]), contents))
    for last, recheck in ((-1, False), (None, True)):
        server.requests.clear()
        pushed(ann, (structs.replace(made, modules=all_of[:last]), contents), recheck=recheck)
        assert server.count("PUT .*/MODULE_") == files
        asked = [one for one in server.requests if "list-type" in one or re.match("HEAD .*/MODULE_", one)]
        assert len(asked) == len(set(asked))
        assert bool(asked) == recheck


@pytest.mark.feature("R7")
def test_one_more_module_of_a_long_record_costs_few_requests_and_bytes(server, name, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MODULES", 64)
    monkeypatch.setattr(derived, "SHORT", 500)  # so that the index is as that of many records: the card stays as it is
    made, contents = long_record(321, size=50)
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    pushed(ann, (structs.replace(made, modules=made.modules[:320]), contents))
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    server.requests.clear()
    server.sent = server.received = 0
    pushed(ann, (made, contents))
    assert server.count() <= 7, server.requests  # five of them, as the index is divided anew each time
    assert server.sent + server.received < 100_000
    bob = Watched(tmp_path / "bob", shared=[(open_s3(name), "r")])
    assert bob.session.remotes.find(made.place).shared.record == made


@pytest.mark.feature("R7")
@pytest.mark.parametrize("records", [1, 7])
def test_a_push_of_what_is_there_is_one_request_and_of_one_more_few(server, name, tmp_path, monkeypatch, records):
    monkeypatch.setattr(parts, "MODULES", 2)
    many = [long_record(20 + number, size=50) for number in range(records)]
    many = [(structs.replace(made, hard={**made.hard, "n": number}), raw) for number, (made, raw) in enumerate(many)]
    many = [(structs.replace(made, key=key_of(made.hard)), contents) for made, contents in many]

    def push_of(*made):
        ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
        for one in made:
            made_here(ann.store, one)
        server.requests.clear()
        (done,) = push(ann.store, ann.session.remotes, list(ann.store.records()))
        assert done.error is None
        return done

    push_of(*many)
    assert (push_of().unchanged, server.count()) == (records, 1), server.requests
    push_of(make_record(99))
    assert server.count() <= 12, server.requests  # its file, itself, the index, the card, how the server compares


@pytest.mark.feature("R3")
def test_a_part_that_is_gone_is_put_back_by_whoever_has_the_record(server, name, tmp_path, monkeypatch):
    """By `push --recheck`, with its row; a part that somebody had sent already is no conflict without end."""
    monkeypatch.setattr(parts, "MODULES", 2)
    made, contents = long_record(8, size=50)
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    pushed(ann, (structs.replace(made, modules=made.modules[:7]), contents))
    storage = open_s3(name)
    made_here(ann.store, (made, contents))
    fresh = {layout.blob_path(sha256): raw for sha256, raw in offer(ann.store, made).shared.parts.items()}
    (last,) = fresh.keys() - {entry.path for entry in storage.list(layout.BLOBS, "")}
    write(storage, last, fresh[last])
    assert pushed(Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")]), (made, contents)).tries == 2
    gone = next(iter(fresh))
    write(storage, gone, None, storage.read(gone, "", 1 << 20).token)
    there, token = index.recent(storage, "")
    write(storage, layout.INDEX, index.encode(index.RemoteIndex(listed=there.listed)), token)
    pushed(Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")]), (made, contents), recheck=True)
    assert len(index.recent(storage, "")[0]) == 1
    bob = Watched(tmp_path / "bob", shared=[(open_s3(name), "r")])
    assert bob.session.remotes.find(made.place).shared.record == made


@pytest.mark.feature("R3")
def test_what_is_there_is_not_sent_again(server, storage, name, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(SINGLE + 5))
    files = [upload_of(f"m/{n}", b"%d" % n) for n in range(300)] + [upload_of("m/large", large)]
    told: list[int] = []
    storage.upload(files, "", told.append)
    assert sum(told) == sum(file.size for file in files)
    server.requests.clear()
    open_s3(name).upload(files, "", told.append)
    assert server.count() == server.count("GET") == 1


def test_the_files_of_a_change_that_were_not_sent_are_sent_before_its_documents(server, storage):
    files = [upload_of("m/1", b"1")]
    storage.commit(Commit("t", files, [Write(DOCUMENT, b"{}", ABSENT)]), "")
    puts = [request for request in server.requests if request.startswith("PUT")]
    assert [put.rsplit("/", 1)[1] for put in puts] == ["1", "aa.json"]
    files = [upload_of("m/2", b"2")]
    storage.upload(files, "", QUIET)
    server.requests.clear()
    storage.commit(Commit("t", files, [Write(f"{RECORDS}/bb.json", b"{}", ABSENT)]), "")
    assert server.count() == server.count("PUT") == 1


def test_other_bytes_of_the_same_size_are_a_conflict(storage, tmp_path):
    large, other = tmp_path / "large", tmp_path / "other"
    large.write_bytes(b"a" * (SINGLE + 1))
    other.write_bytes(b"b" * (SINGLE + 1))
    storage.upload([upload_of("m/s", b"abc"), upload_of("m/l", large)], "", QUIET)
    for file in (upload_of("m/s", b"abd"), upload_of("m/l", other), upload_of("m/s", b"abcd")):
        with pytest.raises(ConflictError, match=file.path):
            storage.upload([file, upload_of("m/new", b"n")], "", QUIET)
    assert b"".join(storage.chunks("m/s", "")) == b"abc"


# Artifacts.


def test_what_another_tool_put_there_is_compared_by_reading(server, storage):
    import boto3

    data = os.urandom(6 << 20)
    client = boto3.client("s3")
    key = f"{storage.name.split('/', 3)[3]}/m/theirs"
    begun = client.create_multipart_upload(Bucket=server.bucket, Key=key)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": client.upload_part(
            Bucket=server.bucket, Key=key, UploadId=begun, PartNumber=n, Body=part)["ETag"]}
        for n, part in ((1, data[: 5 << 20]), (2, data[5 << 20 :]))
    ]  # fmt: skip
    client.complete_multipart_upload(Bucket=server.bucket, Key=key, UploadId=begun, MultipartUpload={"Parts": parts})
    client.close()
    storage.upload([upload_of("m/theirs", data)], "", QUIET)
    with pytest.raises(ConflictError):
        storage.upload([upload_of("m/theirs", data[:-1] + bytes([data[-1] ^ 1]))], "", QUIET)


def test_a_lost_answer_to_an_artifact_is_no_conflict(server, storage):
    lost = iter([True])
    server.lost = lambda request: request.startswith("PUT") and next(lost, False)
    storage.upload([upload_of("m/a", b"a")], "", QUIET)
    assert server.count("PUT") == 2  # tried again, and found its own
    assert b"".join(storage.chunks("m/a", "")) == b"a"


def test_a_body_that_is_cut_is_an_error_and_can_be_gone_on_with(server, storage):
    data = os.urandom(300_000)
    storage.upload([upload_of("m/a", data)], "", QUIET)
    headers = [("Content-Length", str(len(data))), ("ETag", '"x"'), ("Connection", "close"),
               ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]  # fmt: skip
    answers = iter([("200 OK", headers, [data[:200_000]])])
    server.fault = lambda request: next(answers, refusal(500, "InternalError")) if request.startswith("GET") else None
    got = bytearray()
    with pytest.raises(RemoteError) as caught:
        collect(open_s3(storage.name, limits=SHORT).chunks("m/a", ""), got)
    assert not isinstance(caught.value, ConflictError | BusyError)
    assert data.startswith(bytes(got))
    with pytest.raises(RemoteError):
        open_s3(storage.name, limits=SHORT).read("m/a", "", 1 << 20)
    server.fault = lambda _: None
    got += b"".join(storage.chunks("m/a", "", len(got)))
    assert bytes(got) == data
    assert list(storage.chunks("m/a", "", len(data))) == []


# Documents.


def test_a_file_as_long_as_the_marker_is_no_marker(storage):
    data = b"x" * len(REMOVED)
    storage.upload([upload_of("m/a", data)], "", QUIET)
    assert storage.stat(["m/a"], "")["m/a"].size == len(data)
    assert [entry.path for entry in storage.list("m", "")] == ["m/a"]


def test_an_answer_that_was_lost_is_looked_for(server, storage):
    server.lost = lambda request: request.startswith("PUT")
    write(storage, DOCUMENT, b"one")  # it is there, so it happened
    assert storage.read(DOCUMENT, "", 100).data == b"one"
    assert server.count("PUT") == 1
    server.lost = lambda _: False
    server.fault = lambda request: refusal(500, "InternalError") if request.startswith("PUT") else None
    with pytest.raises(UncertainError):
        write(storage, DOCUMENT, b"two", storage.read(DOCUMENT, "", 100).token)
    assert storage.read(DOCUMENT, "", 100).data == b"one"
