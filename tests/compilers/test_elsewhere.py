"""`pull`, `lock` and `export` for another machine and for a recipe in small: the same key as `plan` has."""

import json

import pytest

from cachekit.key.canonical import key_of
from cachekit.store import lock_file
from cachekit.store.record import Record
from tests.support.cli_session import provenance, publish_record, the_error

pytest_plugins = ["tests.support.cli_session"]

TRN1 = ("--target", "trn1", "--toolchain", "neuron-2.31")


@pytest.fixture
def shared(work):
    folder = work.parent / "shared"
    folder.mkdir()
    return folder


def put(command, home, *words):
    """A record of what `plan` says with these words, in a store."""
    planned = command("plan", *words, "--format", "json").json
    record = Record(
        key=key_of(planned["ingredients"]["hard"]),
        compiler=planned["compiler"],
        directory=planned["directory"],
        model_type=planned["model_type"],
        recipe=planned["recipe"],
        hard=planned["ingredients"]["hard"],
        soft={},
        modules=(),
        graphs=3,
        compile_seconds=29.7,
        provenance=provenance(),
    )
    return publish_record(home, record)


@pytest.mark.parametrize("words", [("tiny.yaml", *TRN1), ("tiny.yaml", "--tiny")], ids=["elsewhere", "small"])
def test_what_plan_means_is_what_the_others_mean(command, machine, shared, words):
    theirs, box = shared.parent / "theirs", str(shared.parent / "box")
    record = put(command, theirs, *words)
    remotes = ("--cache", f"local:rw,{shared}:rw")
    command("push", record.key, "--home", str(theirs), *remotes)
    pulled = command("pull", *words, *remotes, "--format", "json").json["pulled"]
    assert [(one["key"], one["state"]) for one in pulled] == [(record.key, "fetched")]
    locked = command("store", "lock", *words, *remotes, "--format", "json").json["locked"]
    assert [one["key"] for one in locked] == [record.key]
    assert command("store", "lock", "--check", *remotes, "--format", "json").json["checked"][0]["status"] == "fits"
    assert (
        command("pull", "--locked", "--home", box, *remotes, "--format", "json").json["pulled"][0]["key"] == record.key
    )
    exported = command("store", "export", "here.tar", *words, "--format", "json").json["records"]
    assert [one["key"] for one in exported] == [record.key]


def test_a_lock_file_names_the_machine_that_a_target_meant(command, machine, home, work):
    put(command, home, "tiny.yaml", *TRN1)
    command("store", "lock", "tiny.yaml", *TRN1)
    (entry,) = lock_file.read(work / "cachekit.lock")
    assert (entry.toolchain, entry.instance, entry.tiny) == ("neuron-2.31", "trn1.2xlarge", False)
    before = (work / "cachekit.lock").read_bytes()
    command("store", "lock")
    assert (work / "cachekit.lock").read_bytes() == before, "locked anew it is the same machine"


def test_in_small_and_whole_stand_beside_each_other(command, machine, home, work):
    whole, small = put(command, home, "tiny.yaml"), put(command, home, "tiny.yaml", "--tiny")
    assert whole.key != small.key
    command("store", "lock", "tiny.yaml")
    assert "tiny.yaml --tiny: 1 module" in command("store", "lock", "tiny.yaml", "--tiny").out
    assert {entry.record.key for entry in lock_file.read(work / "cachekit.lock")} == {whole.key, small.key}
    (work / "tiny.yaml").write_text((work / "tiny.yaml").read_text() + "  learning_rate: 1.0e-4\n  optim: sgd\n")
    answer = command("store", "lock", "--check", "tiny.yaml", code=3)
    assert "tiny.yaml --tiny: changed" in answer.out
    assert "--tiny without a recipe" in command("store", "lock", "--tiny", code=2).err


@pytest.mark.parametrize("told", ["yes", 1, None])
def test_a_lock_file_that_is_small_in_no_known_way_is_none(command, machine, home, work, told):
    put(command, home, "tiny.yaml", "--tiny")
    command("store", "lock", "tiny.yaml", "--tiny")
    document = json.loads((work / "cachekit.lock").read_text())
    document["locked"][0]["tiny"] = told
    (work / "cachekit.lock").write_text(json.dumps(document))
    assert "is not a lock file" in command("store", "lock", "--check", code=2).err


def test_what_does_not_go_together_is_said(command, machine, home, work, shared):
    remotes = ("--cache", f"local:rw,{shared}:rw")
    for verb in (
        ("pull", "tiny.yaml", *remotes),
        ("store", "lock", "tiny.yaml"),
        ("store", "export", "x.tar", "tiny.yaml"),
    ):
        answer = command(*verb, "--target", "trn2", "--instance", "trn1.2xlarge", code=2)
        assert the_error(answer)[3] == "leave out --target or --instance"
    assert "--locked takes recipes" in command("pull", "--locked", "--target", "trn1", code=2).err
    assert (
        "cachekit pull tiny.yaml --target trn1"
        in command("store", "export", "x.tar", "tiny.yaml", *TRN1[:2], code=3).err
    )


@pytest.mark.parametrize("verb", ["plan", "coverage"])
def test_the_hint_of_a_miss_names_the_machine_that_can_compile(command, verb):
    hint = the_error(command(verb, "tiny.yaml", *TRN1, "--require-warm", code=3))[3]
    assert hint == "on a trn1.2xlarge: cachekit warm tiny.yaml"
