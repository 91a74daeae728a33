"""`verify`, `gc`, `pin`, `unpin` and `rm` on the command line."""

import os
import time
from pathlib import Path

import pytest

from cachekit.cli import out
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store.layout import Layout
from cachekit.store.notes import Last, note_last
from tests.support.cli_session import publish, publish_record, small_record, the_error
from tests.support.standins import overwrite

pytest_plugins = ["tests.support.cli_session"]


def several(home, count=3):
    """Records that were made 0, 1, 2, … days ago."""
    made = []
    for days in range(count):
        record = publish_record(home, small_record(f"recipe-{days}", number=days))
        path = home / "v1" / "records" / record.directory / record.model_type / f"{record.key}.json"
        os.utime(path, (time.time() - days * 86_400,) * 2)
        made.append(record)
    return made


@pytest.mark.feature("S6")
def test_verify_exits_5_and_names_what_is_bad(command, home):
    made = several(home)
    assert command("store", "verify").out.startswith("3 records, 3 files, ")
    bad = made[1].files[0]
    overwrite(Layout(home).blob(bad.sha256), bytes(bad.size))
    answer = command("store", "verify", code=5)
    assert made[1].key[:12] in answer.out
    assert made[1].files[0].path[:20] in answer.out.replace("\n", "")
    assert made[0].key[:12] not in answer.out
    code, message, _, hint = the_error(answer)
    assert (code, hint) == ("damaged", "cachekit store verify --repair")
    assert "1 of 3 records" in message
    assert command("store", "verify", "--quick").out.splitlines()[0].endswith("all good")
    document = command("store", "verify", "--format", "json", code=5).json
    assert [one["keys"] for one in document["problems"]] == [[made[1].key]]
    assert document["error"]["exit_code"] == 5
    assert command("store", "verify", "--format", "quiet", code=5).out.strip() == made[1].key
    assert max(map(len, answer.out.splitlines())) <= 120


@pytest.mark.feature("G1", "G4")
def test_gc_says_what_goes_and_then_removes_that(command, home):
    made = several(home)
    told = command("store", "gc", "--max-age", "36h", "--dry-run")
    assert told.out.startswith("would remove 1 record and 0 other files, ")
    assert made[2].key[:12] in told.out
    done = command("store", "gc", "--max-age", "36h")
    assert done.out.startswith("removed 1 record and 0 other files, ")
    assert told.out.splitlines()[1:] == done.out.splitlines()[1:]
    assert set(command("store", "ls", "--format", "quiet").out.split()) == {record.key for record in made[:2]}
    assert command("store", "gc", "--max-age", "36h").out.startswith("nothing to remove; ")


@pytest.mark.feature("G1")
def test_limits_come_from_the_settings_where_nothing_is_said(command, home, work):
    made = several(home)
    (work / "cachekit.toml").write_text('gc_max_age = "36h"\ngc_max_size = "none"\n')
    assert command("store", "gc", "--all-of", "neuron*", "--format", "json").json["max_age"] is None
    assert command("store", "gc", "--max-age", "none", "--format", "json").json["records"] == []
    assert [one["key"] for one in command("store", "gc", "--format", "json").json["records"]] == [made[2].key]
    (work / "cachekit.toml").write_text('gc_max_size = "much"\n')
    assert the_error(command("store", "gc", code=2))[0] == "usage"
    (work / "cachekit.toml").unlink()
    assert "--max-size 5XB" in the_error(command("store", "gc", "--max-size", "5XB", code=2))[1]


@pytest.mark.feature("G2")
def test_a_pinned_recipe_survives_gc_to_0_bytes(command, home, machine):
    record = publish(home)
    several(home)
    assert command("store", "pin", "tiny.yaml").out.startswith(f"pinned {record.key[:12]} tiny, ")
    assert command("store", "pin", record.key[:8]).out.startswith("was pinned already: ")
    assert record.key[:12] in command("store", "pin", "--list").out
    answer = command("store", "gc", "--max-size", "0")
    said = " ".join(answer.out.split())
    assert f"{out.size(record.size)} pinned what stays is more than the limit of 0 B: each of these records is" in said
    assert command("store", "ls", "--format", "quiet").out.split() == [record.key]
    assert the_error(command("store", "rm", "tiny.yaml", code=2))[3].startswith("cachekit store unpin ")
    assert command("store", "unpin", "tiny.yaml").out.startswith("unpinned ")
    assert command("store", "pin", "--list").out.startswith("nothing is pinned")
    assert command("store", "rm", "tiny.yaml", "--dry-run").out.startswith("would remove ")
    assert command("store", "rm", "tiny.yaml").out.startswith("removed ")
    assert command("store", "ls", "--format", "quiet").out == ""


def test_what_is_asked_wrongly(command, home):
    assert the_error(command("store", "pin", code=2))[0] == "usage"
    assert the_error(command("store", "pin", "--list", "abcd", code=2))[0] == "usage"
    assert the_error(command("store", "rm", "abcdef", code=2))[0] == "unknown-name"
    assert the_error(command("store", "unpin", "abcdef", code=2))[0] == "unknown-name"
    assert not (home / "v1" / "pins").exists()


@pytest.mark.feature("U2")
def test_verbs_about_records_take_a_recipe_in_small(command, home, tmp_path):
    """What `warm bert --tiny` made is named by the same words everywhere."""
    key = command("plan", "bert", "--tiny", "--format", "json").json["key"]
    assert key != command("plan", "bert", "--format", "json").json["key"]
    for verb in ("pin", "unpin"):
        (one,) = command("store", verb, "bert", "--tiny", "--format", "json").json
        assert (one["key"], one["recipe"]) == (key, "bert-tiny")
    (tmp_path / "team").mkdir()
    team = ("--cache", f"local:rw,{tmp_path / 'team'}:rw")
    for verb, hint in (
        (("store", "rm"), "store ls"),
        (("store", "export", "bert.tar"), "warm bert"),
        (("push", *team), "warm bert"),
    ):
        code, told, _, helps = the_error(command(*verb, "bert", "--tiny", code=3))
        assert (code, f"is not in the store: key {key[:16]} has" in told, hint in helps) == ("not-warm", True, True)
    assert the_error(command("store", "rm", key, code=2))[1] == f"no record has the key {key[:16]}"
    team = team[1]
    missed = command("pull", "bert", "--tiny", "--cache", team, "--format", "json", code=3)
    assert [one["key"] for one in missed.json["pulled"]] == [key]


def test_notes_that_are_nested_without_end_are_as_good_as_none(command, home, machine):
    """Nothing in the store is a reason for a traceback, whoever wrote it."""
    record, store = publish(home), Store(home, Journal(None, "test"))
    command("store", "pin", record.key)
    assert note_last(store.layout, Path.cwd(), Last("tiny.yaml", (), "auto"))
    notes = [*store.layout.pins.iterdir(), *(store.layout.state / "last" / str(os.geteuid())).iterdir()]
    assert len(notes) == 2
    for path in notes:
        path.write_bytes(b"[" * 100_000)
    assert record.key[:12] in command("store", "pin", "--list").out
    assert "none was warmed in this directory" in the_error(command("train", code=2))[1]
