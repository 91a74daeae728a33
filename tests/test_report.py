"""`cachekit report`: one page that holds together by itself, whatever names it shows."""

import json
import os
import re
import subprocess
import sys
import zipfile
from datetime import datetime, timezone
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs
from report_store import HOSTILE, NOW, Written, fill, train, warm
from standins import Watched, make_record, publish

import cachekit
from cachekit.journal import Journal
from cachekit.page import page
from cachekit.page.charts import bins
from cachekit.page.draw import nice, word
from cachekit.recipe import zoo
from cachekit.store import Store
from cachekit.store.layout import Layout
from cachekit.verbs.report import report
from cachekit.verbs.stats import stats
from cachekit.verbs.timeline import timeline
from cachekit.verbs.warm import warm as warm_action

pytest_plugins = ["cli_session"]
VOID = {"meta", "line", "rect", "circle", "polyline", "polygon", "br", "i"}
WHEN = datetime(2026, 11, 21, tzinfo=timezone.utc)


class Read(HTMLParser):
    """A page's elements with their attributes, its words, and whether each element is closed where it must be."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self._open, self.wrong = [], [], [], []
        self.feed(text)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) < len(attrs):
            self.wrong.append(f"an attribute twice in {tag}")
        if tag not in {"meta", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of a store whose names are meant to break it."""
    home = tmp_path_factory.mktemp("store")
    fill(home, days=12, hostile=True)
    return page(report(Store(home, Journal(None, "test")), now=WHEN))


def test_the_page_is_well_formed_and_complete(hostile):
    read = Read(hostile)
    assert read.wrong == []
    assert hostile.startswith("<!doctype html>\n")
    for name in ("timeline", "hits", "saved", "sizes", "coverage"):
        assert {"id": name, "aria-labelledby": f"{name}-h"}.items() <= next(
            one for one in read.all("section") if one.get("id") == name
        ).items()
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "$" not in re.sub(r"\$[\d.,]+", "", hostile), "a place of the template was left open"


def test_names_stay_words(hostile):
    read = Read(hostile)
    assert read.all("script") == []
    assert [name for _, attributes in read.elements for name in attributes if name.startswith("on")] == []
    assert not set(hostile) & {"\x1b", "\u202e"}
    words = "".join(read.words)
    assert word(HOSTILE) in hostile
    assert '<script>alert("1")</script>' in words, "shown as it is"


def test_nothing_is_loaded_from_anywhere(hostile):
    read = Read(hostile)
    assert {tag for tag, _ in read.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    for tag, attributes in read.elements:
        for name in ("src", "srcset", "data", "action", "xlink:href", "style"):
            assert name not in attributes, (tag, name)
        assert attributes.get("href", "#").startswith("#")
    style = hostile[hostile.index("<style>") : hostile.index("</style>")]
    assert not re.search(r"@import|url\(|https?:", style)
    (policy,) = [one["content"] for one in read.all("meta") if "http-equiv" in one]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_whoever_cannot_see_it_is_told(hostile):
    read = Read(hostile)
    drawings = read.all("svg")
    assert len(drawings) == 8
    assert all(one["role"] == "img" and len(one["aria-label"]) > 20 for one in drawings)
    assert len(read.all("details")) == 4, "the figures of each drawing, as a table"
    assert all(one.get("scope") in {"row", "col"} for one in read.all("th"))
    assert {"lang": "en"} in read.all("html")
    assert re.findall(r"<h(\d)", hostile) == ["1", "2", "2", "2", "2", "2"]
    marks = [attributes for tag, attributes in read.elements if tag == "span" and attributes.get("class") == "sr"]
    rows = len(zoo.recipes())
    assert len(marks) % rows == 0
    assert marks


@pytest.mark.parametrize(("name", "machine"), [("bert", "trn1.2xlarge"), ("gpt2-clm", "trn1.32xlarge")])
def test_a_recipe_is_warm_on_whatever_size_of_machine_it_was_warmed(tmp_path, name, machine):
    """As `plan` and `coverage` say of the machine that a recipe is meant for."""
    toolchain = zoo.toolchains_for("trn1")[-1]
    one = cachekit.Cache(home=tmp_path).plan(name, toolchain=toolchain, instance=machine).prepared
    record, contents = make_record()
    changed = {"key": one.key, "compiler": "neuron", "directory": one.fingerprint.directory}
    changed |= {"model_type": one.model_type, "recipe": name, "hard": dict(one.ingredients.hard)}
    store = Store(tmp_path, Journal(None, "test"))
    publish(store, (structs.replace(record, **changed), contents))
    found = report(store, now=WHEN).coverage
    states = dict(zip(found.columns, found.rows[name], strict=True))
    assert states[one.fingerprint.directory, "trn1"] == "warm"
    assert "warm" not in {state for other, row in found.rows.items() if other != name for state in row}
    # Nobody can have made what an open toolchain of the registry would be looked up as.
    assert {directory for directory, _ in found.columns if directory.startswith("torchneuron-")} == set()


def luminance(colour):
    parts = [int(colour[1:][i * 2 : i * 2 + 2] if len(colour) == 7 else colour[1:][i] * 2, 16) / 255 for i in range(3)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [0, 1])
def test_colours_can_be_told_apart(look):
    """WCAG 2.2: 4.5 for words, 3 for shapes."""
    style = (files("cachekit.page") / "style.css").read_text()
    colours = dict(re.findall(r"--([\w]+): (#[0-9a-f]{3,6});", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[look]))
    for text in ("text", "dim", "gain", "loss", "hit", "miss"):
        for ground in ("card", "page"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    bars = ["hit", "miss", "fetch", "prepare", "restore", "push", "train", "compile", *(f"c{n}" for n in range(6))]
    for bar in bars:
        assert contrast(colours[bar], colours["card"]) >= 3, bar
        assert contrast(colours[bar], colours["on"]) >= 4.5, bar


def test_the_figures_are_those_of_stats(tmp_path):
    warm(tmp_path, "bert", NOW)
    train(tmp_path, "bert", NOW + 90_000, recorded=7384.0)
    made = page(report(Store(tmp_path, Journal(None, "test")), now=WHEN))
    total = stats(Layout(tmp_path)).total
    assert (total.saved_seconds, total.hits, total.misses) == (7368, 1, 1)
    assert "<h1>2 h 2 min of compiling saved</h1>" in made
    assert "<b>50 %</b><span>of 2 keys were there</span>" in made


def test_an_empty_store_has_a_page(tmp_path):
    read = Read(page(report(Store(tmp_path / "none", Journal(None, "test")), now=WHEN)))
    assert read.wrong == []
    assert "No runs yet" in "".join(read.words)
    assert not (tmp_path / "none").exists()


def test_real_runs_make_a_page(tmp_path):
    for _ in range(2):
        journal = Journal(Layout(tmp_path).journal, "warm")
        watched = Watched(tmp_path, journal=journal)
        warm_action(watched.session, watched.prepare())
        journal.close()
    publish(watched.store, make_record())
    found = report(watched.store, now=WHEN)
    assert [lane.name for lane in found.timeline.lanes] == ["warm toy", "warm toy"]
    assert found.sizes.records == 2
    assert Read(page(found)).wrong == []


# The time line


def test_who_compiled_what_when_and_how_parallel(tmp_path):
    end = warm(tmp_path, "bert", NOW, graphs=6, jobs=3, host="trn-1")
    warm(tmp_path, "vit", NOW + 30, graphs=2, jobs=1, host="trn-2", waits="ann@trn-1")
    train(tmp_path, "bert", end + 10_000)
    found = timeline(Layout(tmp_path))
    assert [(lane.name, lane.who) for lane in found.lanes] == [
        ("warm bert", "trn-1, process 4711"),
        ("warm vit", "trn-2, process 4711"),
    ]
    compiles = [[span for row in lane.rows for span in row if span.kind == "compile"] for lane in found.lanes]
    assert [len(spans) for spans in compiles] == [6, 2]
    assert found.at_once == 4
    for lane in found.lanes:
        for row in lane.rows:
            assert all(a.end <= b.start + 1e-5 for a, b in pairwise(row)), "two at once in a row"
    assert "wait" in {span.kind for row in found.lanes[1].rows for span in row}
    together = sum(span.end - span.start for spans in compiles for span in spans)
    assert found.compiling == pytest.approx(together)
    assert found.busy < together < 4 * found.busy


def test_a_run_of_ones_own_choice(tmp_path, command):
    warm(tmp_path, "bert", NOW)
    warm(tmp_path, "vit", NOW + 90_000)
    first, _ = sorted(path.stem for path in tmp_path.rglob("*.jsonl"))
    assert [lane.name for lane in timeline(Layout(tmp_path)).lanes] == ["warm vit"]
    target = tmp_path / "page.html"
    command("report", "--home", str(tmp_path), "--run", first[:13], "-o", str(target))
    assert "warm bert" in target.read_text()
    command("report", "--home", str(tmp_path), "--run", "nobody", code=2)


def test_torn_journals_and_turned_clocks_draw_something(tmp_path):
    run = Written(tmp_path, "warm", NOW)
    run.tell(1, "compile.start", key="k")
    run.tell(2, "worker.start", mode="trial")
    run.tell(-500, "worker.phase", name="train")
    run.tell(9, "worker.compiled", module=7, seconds="long")
    run.tell(12, "worker.compiled", module="MODULE_1", seconds=50)
    run.lines += ["{", "[]", '{"event": "warm.end", "time": NaN}', '{"event": 5, "time": 1}']
    run.end()
    found = timeline(Layout(tmp_path))
    (lane,) = found.lanes
    assert all(0 <= span.start <= span.end <= found.seconds for row in lane.rows for span in row)
    assert Read(page(report(Store(tmp_path, Journal(None, "test")), now=WHEN))).wrong == []


# Drawings


@pytest.mark.parametrize(
    ("days", "most", "name"), [(1, 1, "2026-"), (45, 45, "2026-"), (300, 45, "week of"), (1500, 52, "20")]
)
def test_there_are_never_too_many_bars(tmp_path, days, most, name):
    for number in (0, days - 1):
        train(tmp_path, "bert", NOW + number * 86_400)
    found = bins(stats(Layout(tmp_path)).days)
    assert 1 <= len(found) <= most
    assert found[0].name.startswith(name)
    assert sum(one.hits for one in found) == len({0, days - 1})


@pytest.mark.parametrize("limit", [0, 0.003, 1, 4, 7.2, 99, 100, 12_345, 1e9])
def test_axes_reach_what_they_show(limit):
    ticks = nice(limit, 4)
    assert ticks[0] == 0
    assert limit <= ticks[-1] or ticks[-1] == pytest.approx(limit)
    assert 2 <= len(ticks) <= 6


# The verb


def test_the_verb_writes_the_page_whole(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warm(tmp_path / "home", "bert", NOW)
    answer = command("report", "--home", "home", "-f", "json")
    document = json.loads(answer.out)
    target = Path(document["path"])
    assert target == tmp_path / "cachekit-report.html"
    assert document["bytes"] == target.stat().st_size
    assert "file://" in command("report", "--home", "home", "-o", "b.html", "--price", "2").out
    assert "at 2.00 USD an hour" in Path("b.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix or path.name.startswith(".")) == [
        "b.html",
        "cachekit-report.html",
    ]


@pytest.mark.parametrize("name", ["home", "nowhere/page.html"])
def test_a_page_that_cannot_be_written(tmp_path, command, name):
    (tmp_path / "home").mkdir()
    answer = command("report", "--home", str(tmp_path / "home"), "-o", str(tmp_path / name), code=2)
    assert "cannot be written" in answer.err


def test_what_is_no_page_is_not_written_over(tmp_path, command):
    script, pipe, empty = tmp_path / "train.py", tmp_path / "pipe", tmp_path / "empty"
    script.write_text("print('years of work')")
    os.mkfifo(pipe)  # nor what is no file: a user who may do everything would lose a device
    empty.touch()

    def report(output: Path, code: int = 0) -> str:
        return command("report", "--home", str(tmp_path / "home"), "-o", str(output), code=code).err

    assert "train.py is there, and no page of cachekit's" in report(script, code=2)
    assert script.read_text() == "print('years of work')"
    assert "cannot be written\n  cause: it is no ordinary file" in report(pipe, code=2)
    assert pipe.is_fifo()
    for _ in range(2):  # a page is
        assert report(empty) == ""
    assert "</html>" in empty.read_text()


@pytest.mark.slow
def test_the_wheel_carries_the_page(tmp_path):
    root = Path(__file__).resolve().parent.parent
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(root)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"cachekit/page/style.css", "cachekit/page/page.html"} <= set(names)
