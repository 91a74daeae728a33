"""`cachekit why` as people and programs see it: the nearest record, here or elsewhere, and only the difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachekit.key.canonical import key_of
from cachekit.remotes.folder import FolderStorage
from tests.cli.test_cli import steady
from tests.remotes.test_nearest import fill
from tests.support.cli_session import golden, publish, the_error

pytest_plugins = ["tests.support.cli_session"]

EDIT = ("--set", "training.max_seq_length=16")


@pytest.fixture
def shared(tmp_path):
    """A remote with the record of `tiny.yaml`, and its address."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def share(shared, *records):
    """Put records on the remote."""
    fill(FolderStorage(shared), [(record, {}) for record in records])


# One recipe


@pytest.mark.feature("W2")
def test_a_miss_names_the_changed_ingredient_and_nothing_else(command, home, machine):
    record = publish(home)
    answer = command("why", "tiny.yaml", *EDIT)
    golden("why", steady(answer.out))
    assert answer.err == ""
    found = command("why", "tiny.yaml", *EDIT, "--format", "json").json
    assert (found["status"], found["nearest"]["key"], found["nearest"]["remote"]) == ("miss", record.key, "local")
    assert [(change["name"], change["old"], change["new"]) for change in found["changes"]] == [
        ("training.max_seq_length", 8, 16)
    ]
    assert command("why", "tiny.yaml", *EDIT, "--format", "quiet").out == "training.max_seq_length\n"


def test_a_plan_tells_of_the_difference_as_why_does(command, home, machine):
    publish(home)
    edit = ("--set", "training.per_device_train_batch_size=4")
    told = command("why", "tiny.yaml", *edit, "--format", "json").json["changes"]
    planned = command("plan", "tiny.yaml", *edit, "--format", "json").json["nearest"]["changes"]
    assert planned == told
    assert [one["name"] for one in planned[0]["follows"]] == ["training.per_device_eval_batch_size"]
    text = command("plan", "tiny.yaml", *edit).out
    assert "it differs in 1 ingredient:\n    training.per_device_train_batch_size: 2 → 4\n" in text
    assert "with it: training.per_device_eval_batch_size" in text


def test_a_hit_says_so_and_where(command, home, machine, shared):
    record = publish(home)
    assert command("why", "tiny.yaml").out == f"tiny: hit in the local store, key {record.key[:16]}\n"
    assert command("why", "tiny.yaml", "--format", "quiet").out == "hit\n"


@pytest.mark.feature("W4")
def test_with_an_empty_store_the_near_miss_on_a_shared_cache_is_named(command, home, machine, shared, tmp_path):
    record = publish(tmp_path / "other")
    share(shared, record)
    cache = ("--cache", f"local:rw,{shared}:r")
    answer = command("why", "tiny.yaml", *EDIT, *cache)
    text = " ".join(answer.out.split())
    assert f"nearest is {record.key[:16]} (tiny) on {shared}" in text
    assert "training.max_seq_length: 8 → 16" in text
    found = command("why", "tiny.yaml", *EDIT, *cache, "--format", "json").json
    assert (found["nearest"]["remote"], len(found["changes"])) == (str(shared), 1)
    hit = command("why", "tiny.yaml", *cache).out
    assert hit.split() == f"tiny: hit on {shared}, key {record.key[:16]}".split()


@pytest.mark.feature("P3", "P4", "W4")
def test_with_an_empty_store_plan_takes_the_time_from_a_shared_cache(command, home, machine, shared, tmp_path):
    """Before a machine is rented, on a laptop that never compiled."""
    record = publish(tmp_path / "other")
    share(shared, record)
    words = ("plan", "tiny.yaml", *EDIT, "--cache", f"local:rw,{shared}:r", "--price", "3600")
    found = command(*words, "--format", "json").json
    assert (found["status"], found["nearest"]["key"], found["nearest"]["remote"]) == ("miss", record.key, str(shared))
    assert [change["name"] for change in found["nearest"]["changes"]] == ["training.max_seq_length"]
    assert found["dollars"] == pytest.approx(found["expected_seconds"], abs=0.01)
    assert f"({record.recipe}) on {shared}; it differs in 1 ingredient:" in " ".join(command(*words).out.split())
    assert command("plan", "tiny.yaml", *EDIT, "--format", "json").json["expected"] is None
    for there in filter(Path.is_file, shared.rglob("*.json")):
        there.write_text("{")
    assert command(*words, "--format", "json").json["status"] == "miss", "what is damaged there fails no plan"


def test_a_miss_says_which_remotes_were_not_asked(command, home, machine):
    """Whether it is there is another question than whether anybody was asked."""
    answer = command("plan", "tiny.yaml", "--offline", "--cache", "local:rw,hf://team/cache:r")
    assert "not asked, because no connection may be opened: hf://team/cache" in " ".join(answer.out.split())


def test_without_any_record_it_says_where_it_looked(command, home, machine, shared):
    assert command("why", "tiny.yaml").out == "tiny: miss; there is no record to compare with in the store\n"
    asked = command("why", "tiny.yaml", "--cache", f"local:rw,{shared}:r").out
    assert asked.split() == f"tiny: miss; there is no record to compare with in the store or {shared}".split()


@pytest.mark.feature("T2")
def test_what_is_not_trusted_is_told_once_and_never_as_what_is_not_there(command, home, machine, shared, tmp_path):
    record = publish(tmp_path / "other")
    share(shared, record)
    shared.chmod(0o777)
    there = ("--cache", f"local:rw,{shared}:r")
    for words in (
        ("plan", "tiny.yaml"),
        ("why", "tiny.yaml"),
        ("coverage", "tiny.yaml"),
        ("plan", "tiny.yaml", "demo"),
    ):
        answer = command(*words, *there)
        assert "a record of this key is there, but it is not signed" in " ".join(answer.out.split())
        assert "warning" not in answer.err
    assert "a record of this key is there, but it is not signed" in " ".join(
        command("plan", "tiny.yaml", *there, "--format", "quiet").err.split()
    )
    assert the_error(command("why", record.key[:12], *there, code=5))[0] == "untrusted"


def test_several_changes_and_long_values_fit_the_screen(command, home, machine, monkeypatch):
    publish(home, "training.gradient_accumulation_steps=4")
    many = [f"--set=environment.XLA_FLAGS={'--xla_flag ' * 40}", "--set=training.per_device_train_batch_size=32"]
    answer = command("why", "tiny.yaml", *EDIT, *many)
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    golden("why-several", steady(answer.out))
    monkeypatch.setenv("COLUMNS", "120")
    assert max(len(line) for line in command("why", "tiny.yaml", *EDIT, *many).out.splitlines()) > 80


# Two


@pytest.mark.feature("W2")
def test_two_records_are_compared_by_their_keys(command, home, machine):
    old, new = publish(home), publish(home, EDIT[1])
    answer = command("why", old.key[:8], new.key[:8])
    golden("why-two", steady(answer.out))
    assert command("why", old.key[:8], old.key[:12]).out.endswith(f": same key {old.key[:16]}\n")


def test_set_changes_the_second(command, home, machine):
    found = command("why", "tiny.yaml", "tiny.yaml", *EDIT, "--format", "json").json
    assert [change["name"] for change in found["changes"]] == ["training.max_seq_length"]
    assert found["new"]["name"] == f"tiny.yaml {' '.join(EDIT)}"
    record = publish(home)
    code, message, _, hint = the_error(command("why", "tiny.yaml", record.key[:8], *EDIT, code=2))
    assert code == "usage"
    assert "is a key" in message
    assert hint


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"a": 1}', '{"record": 1}', '{"hard": {"a": null}, "soft": 1}x'),
        *('{"hard": {"a": 1}, "key": "00"}', '{"hard": {"a": 1}, "key": []}'),
    ],
)
def test_a_file_that_is_no_record_is_refused(command, work, machine, content):
    (work / "no.json").write_text(content)
    code, message, cause, hint = the_error(command("why", "tiny.yaml", "no.json", code=2))
    assert (code, bool(cause), bool(hint)) == ("usage", True, True)
    assert "neither a record nor a plan" in message


def test_a_file_that_is_nested_too_deeply_is_refused(command, work, machine):
    for depth in (900, 100_000):
        deep = f"{'[' * depth}{']' * depth}"
        for content in (f'{{"hard": {{"a": {deep}}}}}', f'{{"hard": {{"a": 1}}, "soft": {{"a": {deep}}}}}'):
            (work / "deep.json").write_text(content)
            message = the_error(command("why", "tiny.yaml", "deep.json", code=2))[1]
            assert "neither a record nor a plan" in message


def test_a_record_of_an_older_key_is_told_as_such(command, work, machine):
    old = {"hard": {"a": 1}, "key": key_of({"a": 1}, 1)}
    (work / "old.json").write_text(json.dumps(old))
    message, cause = the_error(command("why", "tiny.yaml", "old.json", code=2))[1:3]
    assert "older cachekit" in message
    assert "no recipe has this one" in cause


def test_a_records_file_alone_is_told_to_need_a_second(command, work, machine):
    (work / "r.json").write_text('{"hard": {"a": 1}}')
    code, message, _, hint = the_error(command("why", "r.json", code=2))
    assert code == "usage"
    assert "is a record or a plan" in message
    assert "cachekit why r.json RECIPE" in hint


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("tiny.yaml", "--run", "last"),
        ("nosuch",),
        ("tiny.yaml", "nosuch"),
        ("abcd1234", "tiny.yaml"),
        ("--run", "x"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_answered_is_refused_with_a_hint(command, home, machine, arguments):
    assert the_error(command("why", *arguments, code=2))[3]
