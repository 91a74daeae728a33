"""`why KEY`: what differs between a record and the nearest other one."""

from tests.support.cli_session import publish, the_error
from tests.verbs.test_why import share, shared  # noqa: F401 - a fixture

pytest_plugins = ["tests.support.cli_session"]


def test_a_record_is_compared_with_the_nearest_other_one(command, home, machine):
    record = publish(home)
    far = publish(home, "training.max_seq_length=16", "training.optim=sgd")
    near = publish(home, "training.max_seq_length=32")
    answer = command("why", record.key[:12])
    assert answer.out.splitlines() == [
        f"{near.key[:16]} (tiny) → {record.key[:16]} (tiny)",
        "  training.max_seq_length: 32 → 8",
        "    tokens per row: each length needs its own graph",
    ]
    found = command("why", record.key, "--format", "json").json
    assert (found["old"]["key"], found["new"]["key"], found["same"]) == (near.key, record.key, False)
    assert command("why", far.key[:12], "--format", "quiet").out.splitlines() == [
        "training.max_seq_length",
        "training.optim",
    ]


def test_one_of_a_shared_cache_counts_on_either_side(command, home, machine, shared):
    elsewhere = home.parent / "elsewhere"
    here, there = publish(home), publish(elsewhere, "training.max_seq_length=32")
    share(shared, there)
    remotes = ("--cache", f"local:rw,{shared}:r")
    found = command("why", here.key[:12], *remotes, "--format", "json").json
    assert (found["old"]["key"], found["old"]["remote"]) == (there.key, str(shared))
    found = command("why", there.key[:12], *remotes, "--format", "json").json
    assert (found["new"]["remote"], found["old"]["key"], found["old"]["remote"]) == (str(shared), here.key, "local")


def test_a_record_alone_wants_something_to_be_compared_with(command, home, machine):
    record = publish(home)
    _, message, _, hint = the_error(command("why", record.key[:12], code=2))
    assert record.key[:16] in message
    assert hint == f"name a recipe, too: cachekit why {record.key[:16]} RECIPE"


def test_a_key_has_nothing_to_be_changed(command, home, machine):
    record = publish(home)
    for words in (("--set", "training.max_seq_length=16"), ("--tiny",), ("--target", "trn1")):
        assert "is a key" in command("why", record.key[:12], *words, code=2).err


def test_digits_that_no_key_begins_with_are_told_as_such(command, home, machine):
    publish(home)
    assert the_error(command("why", "00000000", code=2))[1] == "no record begins with '00000000'"
