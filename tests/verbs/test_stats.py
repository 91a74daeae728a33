"""`cachekit stats`: on real runs, whose journals a hand count comes to the same with."""

import json
import re
from datetime import datetime, timezone
from pathlib import Path

import jsonschema
import pytest

from cachekit.api import schema
from cachekit.cli.stats import about
from cachekit.errors import CachekitError, UnknownNameError, UsageError
from cachekit.events import Journal
from cachekit.recipe import zoo
from cachekit.recipe.price import machine, read
from cachekit.remotes.folder import FolderStorage
from cachekit.store.layout import Layout
from cachekit.verbs.stats import Figures, Stats, since_day, stats
from cachekit.verbs.train import train as train_action
from cachekit.verbs.warm import warm as warm_action
from tests.remotes.watched_storages import Broken
from tests.support.processes import PATIENCE
from tests.support.standins import Watched, recipe
from tests.verbs.report_store import Written, train, warm

pytest_plugins = ["tests.support.cli_session"]
AS_IF = ("--price", "trn1.2xlarge")  # these tests' machine has no price
DOCS = Path(__file__).resolve().parents[2] / "docs"


class Runs:
    """Runs of a store, each with a journal of its own."""

    def __init__(self, home, shared=()):
        self.layout = Layout(home)
        self._shared = shared

    def run(self, verb, action, **options):
        journal = Journal(self.layout.journal, verb)
        watched = Watched(self.layout.home, journal=journal, wait=PATIENCE, shared=self._shared)
        try:
            return action(watched.session, watched.prepare(recipe(options.pop("batch", 8))), **options)
        except CachekitError as error:
            journal.emit("run.failed", error=type(error).__name__)
            return error
        finally:
            journal.close()

    def warm(self, **options):
        return self.run("warm", warm_action, **options)

    def train(self, output, **options):
        return self.run("train", train_action, output_dir=output, **options)


def figures(found: Figures):
    return {name: getattr(found, name) for name in Figures.__struct_fields__}


@pytest.mark.feature("D1", "D2", "D3")
def test_real_runs_are_counted_as_they_went(tmp_path):
    (tmp_path / "team").mkdir()
    team = FolderStorage(tmp_path / "team")
    runs = Runs(tmp_path / "home", [(team, "rw")])
    runs.warm()
    assert stats(runs.layout, run="last").total.graphs_compiled == 3
    runs.warm()
    last = stats(runs.layout, run="last").total
    assert (last.hits, last.misses, last.graphs_found, last.graphs_compiled) == (1, 0, 3, 0)
    runs.train(tmp_path / "out")
    runs.train(tmp_path / "other", batch=4)
    runs.warm(batch=2, require_warm=True)
    runs.warm(recache=True)
    other = Runs(tmp_path / "elsewhere", [(team, "r")])
    other.warm()
    fetched = stats(other.layout).total
    assert (fetched.hits, fetched.fetches) == (1, 1)
    assert fetched.bytes_fetched > 0
    assert fetched.saved_seconds == pytest.approx(30 - fetched.retrieval_seconds)
    total = stats(runs.layout)
    assert (total.total.runs, total.total.failed, total.total.unfinished) == (6, 1, 0)
    assert (total.total.hits, total.total.misses) == (2, 4)
    assert (total.total.graphs_found, total.total.graphs_compiled) == (6, 9)
    assert (total.total.compile_seconds, total.total.recorded_seconds) == (90, 60), "ten for each graph"
    assert total.total.saved_seconds == pytest.approx(60 - total.total.retrieval_seconds)
    assert (total.total.pushes, total.total.fetches, total.total.bypasses) == (4, 0, {"recache": 1})
    assert total.total.bytes_restored > total.total.bytes_pushed > 0
    (storage,) = [part for part in total.remotes if part.name == "local"]
    assert storage.figures.hits == 2
    (remote,) = stats(other.layout).remotes
    assert (remote.name, remote.figures.graphs_found) == (team.name, 3)


def test_what_could_not_be_asked_is_counted_with_the_time_that_it_took(tmp_path):
    (tmp_path / "team").mkdir()
    runs = Runs(tmp_path / "home", [(Broken(FolderStorage(tmp_path / "team"), "all"), "r")])

    def ask(session, prepared):
        warm_action(session, prepared)
        session.remotes.tell_time()

    runs.run("warm", ask)
    total = stats(runs.layout).total
    assert (total.hits, total.misses, total.unknown, total.remote_failures) == (0, 0, 1, 1)
    assert total.ask_seconds >= total.lost_seconds >= 0


@pytest.mark.feature("D4")
@pytest.mark.parametrize(
    ("said", "per_hour"),
    [
        (["trn1.2xlarge"], zoo.instance("trn1.2xlarge").price.per_hour),
        (["0.40"], 0.40),
        (["trn2.48xlarge=7"], 7.0),
    ],
)
def test_dollars_are_hours_saved_at_the_price(tmp_path, said, per_hour):
    for number in range(3):
        train(tmp_path, "bert", 1_790_000_000 + number, recorded=3600.0)
    found = stats(Layout(tmp_path), price=machine(read(said)))
    # 3 h were not spent compiling; each run took 7 s to restore and 9 s to load what was there.
    assert found.total.saved_seconds == 3 * (3600 - 7 - 9)
    assert found.total.saved_dollars == pytest.approx((3 * 3584) / 3600 * per_hour, abs=0.01)
    assert found.price.per_hour == per_hour


@pytest.mark.parametrize("said", [["trn1.2xlarge=1", "trn2.48xlarge=2"], ["1", "trn1.2xlarge=2"], ["1e308"]])
def test_one_price_is_counted_with(said):
    with pytest.raises(UsageError, match="--price"):
        machine(read(said))


@pytest.mark.feature("D4")
def test_this_machines_price_is_for_the_runs_on_its_type_alone(tmp_path, command, monkeypatch):
    """A home on a network file system has the runs of other machines, too."""
    for number, product in enumerate(["trn1.2xlarge", "c5.large", ""]):
        train(tmp_path, "bert", 1_790_000_000 + number, recorded=3600.0, host=product)
    for path in Layout(tmp_path).journal.rglob("*.jsonl"):
        path.write_text(path.read_text().replace('"host":', '"instance":', 1))
    monkeypatch.setattr("cachekit.host.PRODUCT", tmp_path / "product")
    refused = command("stats", "--home", str(tmp_path), "--cost", code=2)
    assert "the hourly price of this machine is unknown" in refused.err
    (tmp_path / "product").write_text("trn1.2xlarge\n")
    priced = zoo.instance("trn1.2xlarge").price
    document = json.loads(command("stats", "--home", str(tmp_path), "--cost", "--format", "json").out)
    assert document["total"]["saved_seconds"] == 3 * 3584
    assert document["total"]["saved_dollars"] == pytest.approx(3584 / 3600 * priced.per_hour, abs=0.01)
    human = " ".join(command("stats", "--home", str(tmp_path), "--cost").out.split())
    assert f"({priced.source}, {priced.date}), for those on a trn1.2xlarge" in human
    assert "for all runs, wherever they ran" in " ".join(command("stats", "--home", str(tmp_path), *AS_IF).out.split())


def test_people_and_programs_are_told_the_same(tmp_path, command):
    warm(tmp_path, "bert", 1_790_000_000)
    train(tmp_path, "bert", 1_790_090_000)
    document = json.loads(command("stats", "--home", str(tmp_path), "--format", "json", *AS_IF).out)
    human = command("stats", "--home", str(tmp_path), *AS_IF).out
    total, last = document["total"], document["last_run"]["figures"]
    assert re.search(rf"^keys found +{last['hits']} of 1, 100 % +{total['hits']} of 2, 50 %$", human, re.MULTILINE)
    assert re.search(rf"^graphs compiled +- +{total['graphs_compiled']}$", human, re.MULTILINE)
    assert re.search(rf"^money saved +\$[\d.]+ +\${total['saved_dollars']:.2f}$", human, re.MULTILINE)
    assert command("stats", "--home", str(tmp_path), "-f", "quiet").out.strip() == str(total["saved_seconds"])
    assert max(map(len, human.splitlines())) <= 80
    jsonschema.validate(document, schema("stats", [Stats]))


def test_the_schema_is_published(command):
    printed = json.loads(command("stats", "--schema").out)
    jsonschema.Draft202012Validator.check_schema(printed)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "cachekit/stats/1"}, printed)
    text = (DOCS / "stats.md").read_text()
    assert [name for name in Figures.__struct_fields__ if f"`{name}`" not in text] == []


def test_an_empty_store_has_no_figures_and_stays_empty(tmp_path, command):
    home = tmp_path / "none"
    document = json.loads(command("stats", "--home", str(home), "-f", "json").out)
    jsonschema.validate(document, schema("stats", [Stats]))
    assert (document["total"]["runs"], document["last_run"], document["periods"]) == (0, None, [])
    assert "next: cachekit warm RECIPE" in command("stats", "--home", str(home)).out
    assert not home.exists()


def test_runs_since_a_day(tmp_path):
    for day in (1, 10, 19, 20):
        Written(tmp_path, "warm", datetime(2026, 11, day, 23, 59, tzinfo=timezone.utc).timestamp()).end(60)
    today = datetime(2026, 11, 20, 1, tzinfo=timezone.utc)
    days = {"": 4, "2026-11-10": 3, "2d": 2, "1d": 1, "0d": 1, "2w": 3, "2026-11-21": 0, "5000w": 4}
    as_elsewhere = {"2 days": 2, "24h": 1, "48 hours": 2, "2 weeks": 3, "1y": 4}
    for since, expected in {**days, **as_elsewhere}.items():
        assert stats(Layout(tmp_path), since=since, today=today).total.runs == expected, since
    assert stats(Layout(tmp_path), since="2d", today=today).scope.first == "2026-11-19"


def test_no_day():
    for words in [
        "yesterday",
        "2026-13-01",
        "7",
        "20261101",
        "-1d",
        "2026-11-1",
        "0x7d",
        "3m",
        "36h",
        "7parsecs",
        "99999w",
    ]:
        with pytest.raises(UsageError, match="is not a day"):
            since_day(words, datetime(2026, 11, 20, tzinfo=timezone.utc))


def test_one_run_by_its_name(tmp_path):
    first = Written(tmp_path, "warm", 1_790_000_000, pid=1).end(5)
    second = Written(tmp_path, "warm", 1_790_000_000, pid=2).end()
    layout = Layout(tmp_path)
    assert stats(layout, run=first).total.unfinished == 0
    assert stats(layout, run=second[:22]).total.unfinished == 1
    with pytest.raises(UnknownNameError, match="2 runs begin with"):
        stats(layout, run=first[:10])
    with pytest.raises(UnknownNameError, match="there is no run named"):
        stats(layout, run="nobody")
    with pytest.raises(UsageError):
        stats(layout, run="last", since="7d")
    with pytest.raises(UnknownNameError, match="no last run"):
        stats(Layout(tmp_path / "none"), run="last")


def test_what_looks_after_the_store_is_never_the_last_run(tmp_path):
    """`stats` after a `gc` tells of the training before it."""
    runs = Runs(tmp_path)
    runs.warm()
    warmed = stats(runs.layout).last_run.run
    journal = Journal(runs.layout.journal, "gc")
    journal.emit("gc.end", records=[], files=[], bytes=0)
    journal.close()
    assert stats(runs.layout).total.runs == 2
    assert stats(runs.layout).last_run.run == warmed
    assert stats(runs.layout, run="last").scope.run == warmed


def test_what_was_refused_before_it_began_is_never_the_last_run(tmp_path):
    runs = Runs(tmp_path)
    runs.warm()
    warmed = stats(runs.layout).last_run.run
    journal = Journal(runs.layout.journal, "push")
    journal.emit("run.failed", error="UsageError", message="no remote is configured", exit_code=UsageError.exit_code)
    journal.close()
    assert (stats(runs.layout).total.runs, stats(runs.layout).last_run.run) == (1, warmed)
    assert stats(runs.layout, run="last").scope.run == warmed
    refused = stats(runs.layout, run=journal.run)
    assert refused.total.runs == 0
    assert about(refused) == [f"run {journal.run} is not counted: it ended before it looked for anything"]
