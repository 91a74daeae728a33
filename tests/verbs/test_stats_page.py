"""`stats --html`, one page that holds together by itself whatever names it shows; and `stats --trace`."""

import json
import os
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

import cachekit
from cachekit.store.layout import Layout
from cachekit.verbs.trace import trace
from tests.verbs.report_store import HOSTILE, NOW, Written, fill, train, warm

pytest_plugins = ["tests.support.cli_session"]


class Read(HTMLParser):
    """A page's elements with their attributes, and its words."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.words = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_says_what_stats_says_and_loads_nothing(tmp_path, command):
    home, target = tmp_path / "home", tmp_path / "stats.html"
    fill(home, days=12, hostile=True)
    answer = command("stats", "--home", str(home), "--html", str(target), "--price", "2", "--by", "week")
    assert target.as_uri() in answer.err
    text = target.read_text()
    read = Read(text)
    words = "".join(read.words)
    assert text.startswith("<!doctype html>\n")
    for line in answer.out.splitlines():
        for cell in re.split(r"\s{2,}", line.strip()):
            assert cell.startswith("... and") or cell.rstrip("…") in words
    # Names stay words, nothing is loaded, and nothing runs.
    assert '<script>alert("1")</script>' in words
    assert HOSTILE not in text
    assert not set(text) & {"\x1b", "\u202e"}
    tables = {"table", "thead", "tbody", "tr", "th", "td", "div", "i"}
    assert {tag for tag, _ in read.elements} <= {
        "html", "meta", "title", "style", "h1", "h2", "p", "small", "dl", "dt", "dd", *tables
    }  # fmt: skip
    assert {name for _, given in read.elements for name in given} <= {
        "class", "title", "style", "lang", "charset", "name", "content", "http-equiv"
    }  # fmt: skip
    assert {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"} in [
        given for _, given in read.elements
    ]
    bars = [given["style"] for tag, given in read.elements if tag == "i" and "style" in given]
    assert "width: 100.0%" in bars, "the longest"
    assert all(re.fullmatch(r"width: \d+\.\d%", bar) for bar in bars)
    style = text[text.index("<style>") : text.index("</style>")]
    assert not any(word in style for word in ("@import", "url(", "http"))


@pytest.mark.parametrize("options", [(), ("--run", "last")], ids=["empty", "one run"])
def test_a_page_without_charts_says_what_stats_says(tmp_path, command, options):
    if options:
        warm(tmp_path / "home", "bert", NOW)
    answer = command("stats", "--home", str(tmp_path / "home"), *options, "--html", str(tmp_path / "stats.html"))
    words = "".join(Read((tmp_path / "stats.html").read_text()).words)
    cells = [cell for line in answer.out.splitlines() for cell in re.split(r"\s{2,}", line.strip())]
    assert [cell for cell in cells if cell not in words] == []
    assert "By recipe" not in words


@pytest.mark.parametrize("option", ["--html", "--trace"])
def test_only_what_this_command_wrote_is_written_over(tmp_path, command, option):
    home, script, pipe, empty = (tmp_path / name for name in ("home", "train.py", "pipe", "empty"))
    run = warm(home, "bert", NOW) and "last"
    script.write_text("print('years of work')")
    os.mkfifo(pipe)  # nor what is no file: a user who may do everything would lose a device
    empty.touch()

    def write(output, code=0):
        return command("stats", "--home", str(home), "--run", run, option, str(output), code=code).err

    assert "it exists, and this command did not write it" in write(script, code=2)
    assert script.read_text() == "print('years of work')"
    assert "cannot be written" in write(pipe, code=2)
    assert pipe.is_fifo()
    for name in ("home", "nowhere/page.html"):
        assert "cannot be written" in write(tmp_path / name, code=2)
    for _ in range(2):
        assert "wrote" in write(empty)
    assert empty.stat().st_size
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing half-written is left"


# The trace


def spans(found, kind=""):
    """The spans of each run by its name, those of one kind."""
    names = {one["pid"]: one["args"]["name"] for one in found["traceEvents"] if one["name"] == "process_name"}
    runs = {name: [] for name in names.values()}
    for one in found["traceEvents"]:
        if one["ph"] == "X" and kind in {"", one["cat"]}:
            runs[names[one["pid"]]].append(one)
    return runs


def test_who_compiled_what_when_and_how_parallel(tmp_path, command):
    end = warm(tmp_path, "bert", NOW, graphs=6, jobs=3, host="trn-1")
    warm(tmp_path, "vit", NOW + 30, graphs=2, jobs=1, host="trn-2", waits="ann@trn-1")
    train(tmp_path, "bert", end + 10_000)
    target = tmp_path / "trace.json"
    first = min(path.stem for path in tmp_path.rglob("*.jsonl"))
    command("stats", "--home", str(tmp_path), "--run", first, "--trace", str(target))
    found = json.loads(target.read_text())
    assert found == cachekit.Cache(home=tmp_path).trace(first)
    one, other = "warm bert, trn-1, process 4711", "warm vit, trn-2, process 4711"
    compiles = spans(found, "compile")
    assert {name: len(each) for name, each in compiles.items()} == {one: 6, other: 2}
    assert len({each["tid"] for each in compiles[one]}) == 3, "as many rows as compile at once"
    assert [each["name"] for each in spans(found, "wait")[other]] == ["waiting for ann@trn-1"]
    rows = {}
    for each in sorted((each for run in spans(found).values() for each in run), key=lambda each: each["ts"]):
        assert each["ts"] >= 0
        assert each["dur"] >= 0
        rows.setdefault((each["pid"], each["tid"]), []).append(each)
    for row in rows.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 10 for a, b in pairwise(row)), "two at once in a row"
    assert [*spans(trace(Layout(tmp_path), "last"))] == ["train bert, trn-1, process 1"]
    command("stats", "--home", str(tmp_path), "--run", "nobody", "--trace", str(target), code=2)
    assert "--trace needs --run" in command("stats", "--home", str(tmp_path), "--trace", str(target), code=2).err


def test_a_warm_of_inductor_shows_the_steps_that_compile(tmp_path):
    """It has no modules that end one by one: a graph compiles within a step."""
    run = Written(tmp_path, "warm", NOW)
    run.tell(1, "compile.start", key="k")
    run.tell(1, "worker.start", mode="trial")
    run.tell(2, "worker.phase", name="import")
    run.tell(20, "worker.phase", name="train")
    run.tell(290, "worker.log", step=1, loss=1.1)
    run.tell(291, "worker.log", step=2, loss=1.0)
    run.tell(340, "worker.log", step=2, eval_loss=1.0)
    run.tell(341, "worker.checkpoint", step=2)
    run.tell(341, "worker.log", step=2, train_runtime=321)
    run.tell(343, "worker.end", mode="trial", counters={"compiled": 3}, seconds={}, steps=2)
    run.end(343)
    (found,) = spans(trace(Layout(tmp_path), "last"), "train").values()
    assert [(one["name"], one["dur"] / 1e6) for one in found] == [
        ("to step 1", 270), ("to step 2", 1), ("evaluation", 49), ("checkpoint", 1), ("trial run", 2)
    ]  # fmt: skip


def test_torn_journals_and_turned_clocks_draw_something(tmp_path):
    run = Written(tmp_path, "warm", NOW)
    run.tell(1, "compile.start", key="k")
    run.tell(2, "worker.start", mode="trial")
    run.tell(-500, "worker.phase", name="train")
    run.tell(9, "worker.compiled", module=7, seconds="long")
    run.tell(12, "worker.compiled", module="MODULE_1", seconds=50)
    run.lines += ["{", "[]", '{"event": "warm.end", "time": NaN}', '{"event": 5, "time": 1}']
    run.end()
    (found,) = spans(trace(Layout(tmp_path), "last")).values()
    assert found
    assert all(0 <= one["ts"] <= one["ts"] + one["dur"] <= 12e6 for one in found)
