"""Random histories of warms, trainings, commands, failures, kills, removals, and of the same records elsewhere: what
`stats` says, against a count that knows only the rules.

The compiler is a stand-in; each of its graphs takes ten seconds. Each run is on a machine of one of several types. A
job is a family of shapes, which decides its graphs, and a member, which does not: so of two members one reuses all of
the other's graphs, and of two families nothing. A command has graphs of its own.
"""

import hashlib
import random
from typing import NamedTuple

import pytest
from msgspec import structs

from cachekit.compilers import Observed
from cachekit.compilers.command import prepare_command
from cachekit.errors import CachekitError, IntegrityError
from cachekit.events import Journal
from cachekit.recipe.command import read
from cachekit.recipe.price import Price
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store.layout import Layout
from cachekit.verbs.records import remove
from cachekit.verbs.run import run as run_command
from cachekit.verbs.stats import check, stats
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standin_worker import compile_module
from tests.support.standins import StandIn, StandInWatch, Watched, recipe

HISTORIES, STEPS, CHUNKS = 300, 8, 30
WHAT = ("warm", "warm", "train", "train", "remove", "require", "fail", "kill", "command", "command", "silent")
FAMILIES = [(2, 16), (4, 32), (8, 64)]
MEMBERS = (8, 16)
MACHINES = ("trn1.2xlarge", "trn2.48xlarge", "")  # nobody knows the last one
COUNTED = (
    "runs", "failed", "unfinished", "hits", "misses", "graphs_found", "graphs_reused", "graphs_compiled",
    "recorded_seconds",
)  # fmt: skip


def job(family, member):
    batch, length = family
    return recipe(batch, max_seq_length=length, per_device_eval_batch_size=member)


class Killed(BaseException):
    """Stands in for the end of cachekit itself in the midst of a trial run."""


class Killer:
    def run(self, *_, **__):
        raise Killed


class Commands(StandIn):
    """Its graphs are made by commands, which the watch does for them."""

    def watch(self, run):
        return CommandWatch(run, self.settings(None))


class CommandWatch(StandInWatch):
    def __init__(self, run, settings):
        super().__init__(run)
        self._root = run.cache_dir
        seeds = [
            hashlib.sha256(f"{settings['salt']} {number}".encode()).hexdigest() for number in range(settings["graphs"])
        ]
        self._seeds = {f"MODULE_{seed[:16]}": seed for seed in seeds}

    def begin(self, tell):
        missing = [name for name in self._seeds if not (self._root / name).exists()]
        for name in missing:
            compile_module(self._root / name, self._seeds[name], 0)
        self._seen = Observed(
            len(self._seeds) - len(missing), len(missing), 10.0 * len(missing),
            found_seconds=10.0 * (len(self._seeds) - len(missing)),
        )  # fmt: skip

    def observed(self, told=None):
        return self._seen


class Instant:
    """Stands in for the process of a command: `true`, or `false`."""

    stopped = False

    def __init__(self, **_):
        pass

    def run(self, words, *_):
        return int(words[0] == "false")


class Kept(NamedTuple):
    """A record: graphs that its job needed, graphs that lie in it, and seconds of compiling, where known."""

    graphs: int
    held: int
    seconds: int


class Count:
    """What must come out, by the rules alone: which graphs each record has, and what each run found of them."""

    def __init__(self):
        self.records = {}
        self.sums = dict.fromkeys(COUNTED, 0)
        self.machine, self.there = "", dict.fromkeys(MACHINES, 0)

    def add(self, **figures):
        for name, value in figures.items():
            self.sums[name] += value
        self.there[self.machine] += figures.get("recorded_seconds", 0)

    def warm(self, family, member, graphs):
        have = self.records.get((family, member))
        if have is not None:
            self.add(runs=1, hits=1, graphs_found=have.graphs, recorded_seconds=have.seconds)
            return
        self.compile(family, member, graphs)
        self.add(runs=1, misses=1)

    def compile(self, family, member, graphs):
        """A warm that misses: what the other member's record has is reused, and all of it belongs to the new one."""
        (other,) = set(MEMBERS) - {member}
        near = self.records.get((family, other), Kept(0, 0, 0))
        found = min(near.held, graphs)
        self.add(graphs_found=found, graphs_reused=found, graphs_compiled=graphs - found, recorded_seconds=10 * found)
        self.records[family, member] = Kept(graphs, max(graphs, near.held), 10 * graphs)

    def train(self, family, member, graphs):
        have = self.records.get((family, member))
        if have is None:
            self.compile(family, member, graphs)
            self.add(runs=1, misses=1)
            return
        # A training may need a graph that no trial run reached. How long that took, nobody has measured by itself.
        found = min(have.held, graphs)
        self.add(runs=1, hits=1, graphs_found=found, graphs_compiled=graphs - found, recorded_seconds=10 * found)
        if graphs > found:
            self.records[family, member] = Kept(max(have.graphs, graphs), graphs, have.seconds)

    def require(self, family, member, graphs):
        """A warm that may not compile: of another member's record all graphs may be there."""
        (other,) = set(MEMBERS) - {member}
        near = self.records.get((family, other), Kept(0, 0, 0))
        if (family, member) in self.records or near.held >= graphs:
            self.warm(family, member, graphs)
        else:
            self.add(runs=1, failed=1, misses=1)

    def broken(self, family, member, graphs, how):
        """A warm whose compile fails, or that is killed meanwhile: nothing breaks where nothing compiles."""
        if (family, member) in self.records:
            self.warm(family, member, graphs)
        else:
            self.add(runs=1, misses=1, **{how: 1})

    def command(self, family, graphs):
        """What it found of its own graphs is in its record; another command's have other graphs."""
        have = self.records.get(family, Kept(0, 0, 0))
        found = min(have.held, graphs)
        self.add(runs=1, hits=int(family in self.records), misses=int(family not in self.records))
        self.add(graphs_found=found, graphs_compiled=graphs - found, recorded_seconds=10 * found)
        self.records[family] = Kept(graphs, max(graphs, have.held), 0)


def play(home, output, chance):
    """A history; returns its store's layout, and the count."""
    layout, counted = Layout(home), Count()

    def run(action, family, member, graphs, **options):
        a_run(home, action, job(family, member), graphs, instance=counted.machine, **options)

    def command(family, graphs, word="true"):
        journal = Journal(layout.journal, "run", instance=counted.machine)
        watched = Watched(home, journal=journal, compiler=Commands(graphs=graphs, salt=f"{family}"))
        said = read([word, str(family)])
        run_command(watched.session, prepare_command(said, watched.compiler), said)
        journal.close()

    for _ in range(STEPS):
        family, member, graphs = chance.choice(FAMILIES), chance.choice(MEMBERS), chance.choice((2, 3))
        what, counted.machine = chance.choice(WHAT), chance.choice(MACHINES)
        if what == "warm":
            counted.warm(family, member, graphs)
            run(warm, family, member, graphs)
        elif what == "train":
            counted.train(family, member, graphs)
            run(train, family, member, graphs, output_dir=output)
        elif what == "require":
            counted.require(family, member, graphs)
            run(warm, family, member, graphs, require_warm=True)
        elif what == "fail":
            counted.broken(family, member, graphs, "failed")
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("STANDIN_FAIL", "compile")
                run(warm, family, member, graphs)
        elif what == "kill":
            counted.broken(family, member, graphs, "unfinished")
            run(warm, family, member, graphs, launcher=Killer)
        elif what == "command":
            counted.command(family, graphs)
            command(family, graphs)
        elif what == "silent":  # it died before it came to a compiler
            counted.add(runs=1)
            command(family, 0, "false")
        elif counted.records.pop((family, member), None):
            watched = Watched(home)
            remove(watched.session, [watched.prepare(job(family, member)).key], force=True)
    return layout, counted


def a_run(home, action, wanted, graphs, *, instance="", launcher=None, shared=(), **options):
    journal = Journal(Layout(home).journal, action.__name__, instance=instance)
    watched = Watched(home, journal=journal, compiler=StandIn(graphs=graphs), shared=shared)
    session = structs.replace(watched.session, launcher=launcher) if launcher else watched.session
    try:
        action(session, watched.prepare(wanted), **options)
    except Killed:
        journal.close()
        *lines, _ = journal.path.read_text().splitlines(keepends=True)  # without its last word
        journal.path.write_text("".join(lines))
    except CachekitError as error:
        journal.emit("run.failed", error=type(error).__name__)
    journal.close()


def elsewhere(layout, counted, folder, chance):
    """Another machine warms and trains what the first one pushed; returns its store's layout and its count."""
    team = folder / "team"
    team.mkdir()
    watched = Watched(layout.home, shared=[(FolderStorage(team), "rw")])
    push(watched.store, watched.session.remotes, list(watched.store.records()))
    there = Count()
    jobs = [known for known in counted.records if isinstance(known[0], tuple)]
    for family, member in jobs:
        have = there.records[family, member] = counted.records[family, member]
        for what in chance.sample(("warm", "train"), 2):
            getattr(there, what)(family, member, have.graphs)
            action, options = (train, {"output_dir": folder / "out"}) if what == "train" else (warm, {})
            shared = [(FolderStorage(team), "r")]
            a_run(folder / "home", action, job(family, member), have.graphs, shared=shared, **options)
    return Layout(folder / "home"), there


def check_dollars(layout, counted):
    """A dollar a second, of a machine of one type: what getting took there is measured, and in all it is known."""
    took = stats(layout).total.retrieval_seconds
    left = took
    for name in filter(None, MACHINES):
        saved = stats(layout, price=Price(3600, "USD", name, "somebody"), every=False).total.saved_dollars
        left -= counted.there[name] - saved
        assert saved <= counted.there[name] + 0.01
    assert 0 <= left + 0.03 <= took + 0.06
    everywhere = stats(layout, price=Price(3600, "USD", "", "somebody")).total
    assert everywhere.saved_dollars == pytest.approx(everywhere.saved_seconds, abs=0.01)


@pytest.fixture(autouse=True)
def _graphs_carry_their_seconds(monkeypatch):
    monkeypatch.setenv("STANDIN_CARRIES", "1")
    monkeypatch.setattr("cachekit.verbs.run.Passthrough", Instant)


@pytest.mark.campaign
@pytest.mark.feature("D3", "D5")
@pytest.mark.parametrize("chunk", [pytest.param(n, marks=pytest.mark.slow if n else ()) for n in range(CHUNKS)])
def test_every_figure_is_what_an_independent_count_comes_to(tmp_path, chunk):
    for number in range(HISTORIES // CHUNKS):
        seed = chunk * HISTORIES // CHUNKS + number
        layout, counted = play(tmp_path / str(seed), tmp_path / "out", random.Random(seed))
        total = stats(layout).total
        assert {name: getattr(total, name) for name in COUNTED} == counted.sums, f"history {seed}"
        assert total.saved_seconds == pytest.approx(total.recorded_seconds - total.retrieval_seconds, abs=0.002)
        check_dollars(layout, counted)
        assert check(layout).error() is None, f"history {seed}"
        if number % 3:
            continue
        (tmp_path / f"{seed}-there").mkdir()
        other, there = elsewhere(layout, counted, tmp_path / f"{seed}-there", random.Random(seed))
        total = stats(other).total
        assert {name: getattr(total, name) for name in COUNTED} == there.sums, f"history {seed}, elsewhere"


def test_kept_figures_that_are_not_those_of_a_journal_are_named(tmp_path):
    layout, _ = play(tmp_path / "home", tmp_path / "out", random.Random(3))
    total = stats(layout).total
    assert (check(layout).differ, check(layout).recounted) == ((), total.runs - total.unfinished)
    path = max(layout.stats.glob("*.jsonl"))
    lines = path.read_text().splitlines()
    changed = next(number for number, line in enumerate(lines) if '"graphs_compiled":' in line)
    lines[changed] = lines[changed].replace('"graphs_compiled":', '"graphs_compiled":1')
    path.write_text("\n".join([*lines, ""]))
    found = check(layout)
    assert len(found.differ) == 1
    assert found.differ[0] in lines[changed]
    with pytest.raises(IntegrityError, match="stored figures of 1 run"):
        raise found.error()


def test_a_command_line_that_was_refused_is_no_run_and_is_not_counted_anew(tmp_path):
    layout = Layout(tmp_path)
    journal = Journal(layout.journal, "warm")
    journal.emit("run.failed", error="UsageError", exit_code=2)
    journal.close()
    found = check(layout)
    assert (stats(layout).total.runs, found.runs, found.recounted, found.differ) == (0, 0, 0, ())
