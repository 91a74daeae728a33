"""What is asked again and for how long; and twenty-five ways to fail, each with its bound, its answer and its code."""

from __future__ import annotations

import re
import time

import pytest

from cachekit.errors import AuthError, BusyError, CachekitError, RemoteError, SkippedError
from cachekit.remotes.patience import MOST, Patience, patient
from cachekit.remotes.port import Entry
from cachekit.remotes.push import push
from cachekit.remotes.remotes import Remotes
from cachekit.store.layout import Place
from cachekit.verbs.plan import plan
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.hub_storage import QUICK, hub, make, repo  # noqa: F401 - fixtures
from tests.remotes.jumping_clock import Passing
from tests.remotes.remote_faults import BOUND, EVERY, a_clock_that_jumps, failing, timed
from tests.support import standin_worker
from tests.support.standins import Watched, recipe
from tests.verbs.verb_cases import log  # noqa: F401 - a fixture


class Failing:
    """A remote that fails so often, and then answers."""

    name = "hf://team/cache"

    def __init__(self, times, error=lambda: RemoteError("it is away"), clock=None, takes=0.0):
        self.left, self.error, self.asked = times, error, 0
        self.clock, self.takes = clock, takes

    def _fail(self):
        self.asked += 1
        if self.clock:
            self.clock.passed += self.takes
        if self.left:
            self.left -= 1
            raise self.error()

    def revision(self):
        self._fail()
        return "now"

    def list(self, folder, revision):
        yield Entry("a", 1)
        self._fail()
        yield Entry("b", 1)

    def chunks(self, path, revision, start=0, end=None):
        yield b"0123456789"[start : start + 4]
        self._fail()
        yield b"0123456789"[start + 4 :]


def asking(times, stake=None, most=MOST, **options):
    clock = Passing()
    storage = Failing(times, clock=clock, **options)
    patience = Patience(most, clock=clock)
    patience.stake = lambda: stake
    return storage, patient(storage, patience), patience, clock


@pytest.mark.parametrize("call", ["revision", "list", "chunks"])
def test_what_failed_is_asked_again(call):
    storage, remote, _, _ = asking(2)
    answers = {
        "revision": remote.revision,
        "list": lambda: [entry.path for entry in remote.list("", "")],
        "chunks": lambda: b"".join(remote.chunks("x", "")),
    }
    assert answers[call]() == {"revision": "now", "list": ["a", "b"], "chunks": b"0123456789"}[call]
    assert storage.asked == 3


@pytest.mark.parametrize(("stake", "seconds"), [(None, 20), (60, 20), (900, 90), (36_000, 180), (0, 0)])
def test_patience_is_a_tenth_of_what_is_at_stake(stake, seconds):
    _, remote, patience, clock = asking(10_000, stake, takes=1.0)
    with pytest.raises(RemoteError):
        remote.revision()
    assert max(seconds - 12, 1) <= clock.passed <= seconds + 1
    assert patience.lost == patience.asked == pytest.approx(clock.passed)


def test_all_questions_of_a_run_share_it():
    storage, remote, _, _ = asking(10_000, takes=1.0)
    for _ in range(3):
        with pytest.raises(RemoteError):
            remote.revision()
    asked = storage.asked
    with pytest.raises(RemoteError):
        remote.revision()
    assert storage.asked == asked + 1  # it is asked, and not again


def test_the_reason_is_of_all_tries():
    storage, remote, _, _ = asking(10_000, takes=1.0, error=lambda: RemoteError("it is away", cause="no answer"))
    with pytest.raises(RemoteError) as caught:
        remote.revision()
    assert re.fullmatch(rf"no answer; asked {storage.asked} times in [12]\d s", caught.value.cause), caught.value.cause
    _, remote, _, _ = asking(1, error=lambda: BusyError("busy", wait=1e6))
    with pytest.raises(BusyError) as caught:
        remote.revision()
    assert caught.value.cause == "it asks to wait an hour or more"


def test_nobody_is_asked_sooner_than_it_says():
    _, remote, _, clock = asking(1, error=lambda: BusyError("busy", wait=12))
    assert remote.revision() == "now"
    assert clock.passed >= 12
    storage, remote, _, clock = asking(1, error=lambda: BusyError("busy", wait=56))
    with pytest.raises(BusyError):
        remote.revision()
    assert (storage.asked, clock.passed) == (1, 0)


@pytest.mark.parametrize("error", [AuthError("no"), SkippedError("no"), RemoteError("no", lasting=True)])
def test_what_would_be_answered_alike_is_not_asked_again(error):
    storage, remote, _, _ = asking(1, error=lambda: error)
    with pytest.raises(CachekitError):
        remote.revision()
    assert storage.asked == 1


class Silent:
    """A remote of a run that fails so often, and then answers with what it has."""

    name = "hf://team/away"
    readable = True

    def __init__(self, storage, clock, *, has=()):
        self.storage, self.clock, self.has, self.shut = storage, clock, has, False

    def find_all(self, places, *, anew=False):
        if self.shut:
            raise SkippedError("it failed a moment ago")
        try:
            self.storage.revision()
        except RemoteError:
            self.shut = True
            raise
        return {place.key: self.name for place in places if place.key in self.has}

    def retry(self):
        self.shut = False


PLACE = Place("compiler", "toy", "0" * 64)


def in_order(*numbers):
    """The remotes of a run: each with how often it fails, and whether it has the record."""
    clock = Passing()
    patience = Patience(MOST, clock=clock)
    raw = [Failing(times, clock=clock, takes=1.0) for times, _ in numbers]
    made = [
        Silent(patient(one, patience), clock, has={PLACE.key} if has else ())
        for one, (_, has) in zip(raw, numbers, strict=True)
    ]
    return Remotes(made, patience=patience), raw, clock


def test_a_hit_on_a_good_remote_waits_only_for_the_first_try_of_a_dead_one():
    remotes, (dead, good), clock = in_order((10_000, False), (0, True))
    assert remotes.find(PLACE)
    assert (dead.asked, good.asked, clock.passed) == (1, 1, 2.0)


def test_what_no_other_remote_has_is_asked_again_of_one_that_failed():
    remotes, (away, empty), _ = in_order((3, True), (0, False))
    assert remotes.find(PLACE)
    assert (away.asked, empty.asked) == (4, 1)
    remotes, (_, empty), clock = in_order((10_000, True), (0, False))
    assert remotes.find(PLACE) is None
    assert remotes.problems(PLACE.key)
    assert 8 <= clock.passed <= 23
    assert empty.asked == 1


# On the test Hub

READ = {  # fault: what `--require-warm` exits with; the others do not keep a record from being fetched
    **dict.fromkeys(["connect", "dns", "tls", "before-headers", "in-the-body", "drip", "truncated", "reset"], 7),
    **dict.fromkeys(["408", "409", "412", "429-window", "500", "502", "503", "504", "507"], 7),
    **dict.fromkeys(["401", "403", "404-repo"], 4),
    "wrong-bytes": 5,
}
SENT = {**READ, **dict.fromkeys(["commit-hangs", "upload-hangs"], 7), "drip": 0, "wrong-bytes": 0}
PATIENCE, PUSH = 0.3, 2.0
HANGS = {"commit-hangs", "upload-hangs"}


def limits_of(fault):
    """For what does not answer; a loaded machine must not look like that."""
    return {"limits": QUICK} if fault in {"connect", "before-headers", "in-the-body", "drip", *HANGS} else {}


@pytest.fixture
def member(make, monkeypatch, tmp_path, log):
    """Makes members of a team whose remote is quick to be given up."""
    small = standin_worker.module_bytes
    monkeypatch.setattr(standin_worker, "module_bytes", lambda seed: small(seed) * 60)

    def join(name, *, push=60.0, patience=PATIENCE, **where):
        return Watched(tmp_path / name, shared=[(make(**where), "rw")], patience=patience, push=push)

    return join


@pytest.fixture
def team(member):
    """The same, and one of them, ann, has warmed the recipe."""
    ann = member("ann")
    assert warm(ann.session, ann.prepare()).compiled
    return member


QUICKEST = {"before-headers", "drip", "wrong-bytes", "401", "500", "commit-hangs", "landed", "clock"}


@pytest.fixture(params=[pytest.param(one, marks=[] if one in QUICKEST else pytest.mark.slow) for one in EVERY])
def fault(request, monkeypatch):
    if request.param == "clock":
        a_clock_that_jumps(monkeypatch)
    return request.param


@pytest.mark.feature("R4", "R6", "R8")
def test_each_fault_of_reading_has_its_bound_and_its_code(fault, team, hub):
    with failing(hub, fault) as endpoint:
        bob = team("bob", endpoint=endpoint, **limits_of(fault))
        seconds, code, found = timed(lambda: warm(bob.session, bob.prepare(), require_warm=True))
    assert code == READ.get(fault, 0), found
    assert not code or found.hint
    assert seconds < PATIENCE + BOUND
    (planned,) = bob.told("plan")
    if fault in READ and fault not in {"drip", "wrong-bytes"}:  # these are found out while fetching
        assert planned["status"] == "unknown"
        assert len(bob.told("remote.failed")) == 1
    elif fault not in READ:
        assert planned["status"] == "hit"


@pytest.mark.feature("R4", "R8")
def test_each_fault_of_a_push_has_its_end_and_leaves_the_record_pending(fault, member, hub):
    offline = Watched(member("bob").store.layout.home)
    record = warm(offline.session, offline.prepare(recipe(4))).record
    may_take = PUSH if fault in HANGS else 60.0
    with failing(hub, fault) as endpoint:
        bob = member("bob", endpoint=endpoint, push=may_take, **limits_of(fault))
        begun = time.monotonic()
        (pushed,) = push(bob.store, bob.session.remotes, [record])
        seconds = time.monotonic() - begun
    assert (pushed.error.exit_code if pushed.error else 0) == SENT.get(fault, 0), pushed.error
    assert pushed.error is None or pushed.error.hint
    assert seconds < may_take + BOUND
    assert bob.session.remotes.writable[0].pending() == ({record.key} if SENT.get(fault) else set())


@pytest.mark.feature("R8")
def test_no_fault_delays_a_training_with_a_warm_store(team, hub, tmp_path, monkeypatch):
    hub.log.clear()
    for fault in EVERY:
        if fault == "clock":
            a_clock_that_jumps(monkeypatch)
        with failing(hub, fault) as endpoint:
            ann = team("ann", endpoint=endpoint, limits=QUICK)
            begun = time.monotonic()
            assert train(ann.session, ann.prepare(), output_dir=tmp_path / "out").status == "hit"
            assert time.monotonic() - begun < 5
    assert hub.requests == []


@pytest.mark.feature("R6")
@pytest.mark.parametrize(
    ("kind", "options"),
    [("500", {"times": 1}), ("503", {"headers": {"Retry-After": "1"}}), ("429-window", {"times": 2, "seconds": 0})],
)
def test_one_bad_answer_costs_no_compile(kind, options, team, hub, log):
    before = log.read_bytes()
    hub.fault(kind, "*", **options)
    bob = team("bob", patience=60.0)
    assert warm(bob.session, bob.prepare(), require_warm=True).compiled == 0
    assert log.read_bytes() == before


@pytest.mark.feature("R6")
@pytest.mark.parametrize(("kind", "on"), [("500", "POST */preupload/*"), ("drop", "POST */preupload/*")])
def test_one_bad_answer_while_files_are_sent_leaves_nothing_pending(kind, on, member, hub):
    """A connection that the server had closed meanwhile, say."""
    offline = Watched(member("bob").store.layout.home)
    record = warm(offline.session, offline.prepare(recipe(4))).record
    hub.fault(kind, on)
    bob = member("bob", patience=60.0)
    (pushed,) = push(bob.store, bob.session.remotes, [record])
    assert pushed.error is None
    assert bob.session.remotes.writable[0].pending() == set()


@pytest.mark.feature("R6")
def test_a_file_that_came_with_other_bytes_comes_by_another_way(team, hub, monkeypatch):
    """By Xet, where HTTP spoils it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    hub.fault("wrong-bytes", "GET /cdn/file/*", times=None)
    bob = team("bob")
    assert warm(bob.session, bob.prepare(), require_warm=True).compiled == 0
    assert not bob.told("remote.damaged")


@pytest.mark.feature("R6")
def test_a_file_that_came_with_other_bytes_is_fetched_once_more(team, hub, monkeypatch):
    """Each one is spoiled once: which file's second try comes before another's first is a matter of chance."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    came = set()

    def spoiled_once(data):
        spoiled = data not in came
        came.add(data)
        return bytes([data[0] ^ 1, *data[1:]]) if spoiled else data

    hub.fault("rewrite", "GET /cdn/file/*", times=None, change=spoiled_once)
    bob = team("bob")
    assert warm(bob.session, bob.prepare(), require_warm=True).compiled == 0
    assert len(came) > 1
    assert not bob.told("remote.damaged")


@pytest.mark.feature("R6")
def test_a_record_that_came_with_other_bytes_is_read_once_more(team, hub):
    hub.fault("wrong-bytes", "GET */resolve/*/cachekit/v1/records/*", count=3)
    bob = team("bob")
    assert plan(bob.prepare(), bob.store, bob.session.remotes).hit
    assert not bob.told("remote.damaged")


@pytest.mark.feature("R6")
@pytest.mark.parametrize(
    "answer",
    [{"body": "<html>log in</html>", "headers": {"Content-Type": "text/html"}}, {"body": "", "headers": {"ETag": ""}}],
    ids=["a page", "nothing"],
)
def test_what_a_proxy_answers_for_every_file_is_no_damage_of_the_remote(team, hub, answer):
    hub.fault("rewrite", "GET */resolve/*", times=None, **answer)
    bob = team("bob")
    _, code, found = timed(lambda: warm(bob.session, bob.prepare(), require_warm=True))
    assert (code, bob.told("remote.damaged")) == (7, [])
    assert "proxies" in found.hint


def test_a_fetch_that_takes_longer_than_the_compile_is_given_up(team, hub, monkeypatch):
    monkeypatch.setattr("cachekit.remotes.fetch_files.LOOK_SECONDS", 0.2)
    hub.fault("slow", "GET /cdn/*", rate=8_000, times=None)
    bob = team("bob")
    done = warm(bob.session, bob.prepare())
    assert done.compiled
    assert "compiling takes" in bob.told("remote.failed")[0]["reason"]


def test_a_push_says_how_long_it_tried(member, hub):
    offline = Watched(member("bob").store.layout.home)
    record = warm(offline.session, offline.prepare(recipe(4))).record
    hub.commits_per_hour = 0
    bob = member("bob")
    (pushed,) = push(bob.store, bob.session.remotes, [record])
    said = r"it took [\d.]+ s of the 1 min 0 s that a push may take; it asks to wait 10 min"
    assert re.search(said, pushed.error.cause), pushed.error.cause
