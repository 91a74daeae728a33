"""`stats --by`: days, weeks and months add up to the same, also of runs whose journals are gone."""

import json
import os
import time
from datetime import datetime, timezone

import pytest

from cachekit.store.history import retire
from cachekit.store.layout import Layout
from cachekit.verbs.stats import stats, week_of
from tests.support.cli_session import the_error
from tests.verbs.report_store import train, warm

pytest_plugins = ["tests.support.cli_session"]

NOW = datetime(2027, 1, 4, 12, tzinfo=timezone.utc).timestamp()  # a Monday
DAY = 86_400


@pytest.fixture
def filled(tmp_path):
    """A run every three days, through the end of a year, the older ones without a journal."""
    for number in range(20):
        (warm if number % 3 else train)(tmp_path, "bert", NOW - number * 3 * DAY)
    layout = Layout(tmp_path)
    for path in layout.journal.rglob("*.jsonl"):
        begun = datetime.strptime(path.stem[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
        os.utime(path, (begun, begun))
    before = len(list(layout.journal.rglob("*.jsonl")))
    retire(layout, 30, NOW)
    assert 0 < len(list(layout.journal.rglob("*.jsonl"))) < before
    return layout


@pytest.mark.feature("D2")
@pytest.mark.parametrize(("by", "form"), [("week", "%G-W%V"), ("month", "%Y-%m")])
def test_periods_are_the_sums_of_their_days(filled, by, form):
    document = stats(filled, by=by).as_dict()
    sums = {}
    for part in stats(filled).as_dict()["periods"]:
        name = time.strftime(form, time.strptime(part["name"], "%Y-%m-%d"))
        runs, saved = sums.get(name, (0, 0.0))
        sums[name] = (runs + part["figures"]["runs"], saved + part["figures"]["saved_seconds"])
    found = {part["name"]: (part["figures"]["runs"], part["figures"]["saved_seconds"]) for part in document["periods"]}
    assert {name: runs for name, (runs, _) in found.items()} == {name: runs for name, (runs, _) in sums.items()}
    assert [saved for _, saved in found.values()] == pytest.approx([sums[name][1] for name in found])
    assert list(found) == sorted(found)
    assert sum(runs for runs, _ in found.values()) == document["total"]["runs"] == 20


@pytest.mark.parametrize(
    ("day", "week"),
    [("2026-12-31", "2026-W53"), ("2027-01-03", "2026-W53"), ("2027-01-04", "2027-W01"), ("2026-13-99", "")],
)
def test_a_week_begins_on_monday(day, week):
    assert week_of(day) == week


def test_people_get_the_table_that_they_ask_for(filled, command):
    home = str(filled.home)
    for by, heading, row in (("day", "day", "2027-01-04"), ("week", "week", "2027-W01"), ("month", "month", "2027-01")):
        lines = command("stats", "--home", home, "--by", by, "-v").out.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith(f"{heading} "))
        assert [line for line in lines[start:] if line.startswith(f"{row} ")]
    assert command("stats", "--home", home).out == command("stats", "--home", home, "--by", "day").out
    months = json.loads(command("stats", "--home", home, "--by", "month", "--format", "json").out)
    assert (months["by"], [part["name"] for part in months["periods"]]) == ("month", ["2026-11", "2026-12", "2027-01"])


def test_another_period_is_a_usage_error(command, home):
    assert the_error(command("stats", "--by", "year", code=2))[3] == "one of day, week, month"
