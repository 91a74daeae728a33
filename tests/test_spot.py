"""EC2's notice to a Spot instance, from a stand-in for its metadata service on loopback."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cachekit import spot
from cachekit.errors import InterruptedRunError, RemoteError, TrainingError
from cachekit.remotes.push import push
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.lease_cases import Cut, holders
from tests.remotes.memory_remote import MemoryRemote
from tests.support.processes import until
from tests.support.standins import StandIn, Watched, make_record, publish
from tests.verbs.verb_cases import ends_within

NOTICE = b'{"action": "terminate", "time": "2026-11-23T18:40:00Z"}'


class Metadata(ThreadingHTTPServer):
    """IMDSv2, as far as it is asked: a token by PUT, and the notice with it.

    Attributes:
        answers: What the next questions get: a status, or the notice.
        asked: The method and the token of each request so far.
    """

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = list(answers), []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def environ(self):
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self.server_port}/"}


class Handler(BaseHTTPRequestHandler):
    def do_PUT(self):
        self.server.asked.append(("PUT", self.headers["X-aws-ec2-metadata-token-ttl-seconds"]))
        self.say(200 if self.path == "/latest/api/token" else 404, b"token-%d" % len(self.server.asked))

    def do_GET(self):
        self.server.asked.append(("GET", self.headers["X-aws-ec2-metadata-token"]))
        good = self.path == "/latest/meta-data/spot/instance-action"
        answer = self.server.answers.pop(0) if good and self.server.answers else 404
        self.say(*((answer, b"") if isinstance(answer, int) else (200, answer)))

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def ec2(tmp_path, monkeypatch):
    """This machine's firmware says that it is EC2's."""
    vendor = tmp_path / "sys_vendor"
    vendor.write_text("Amazon EC2\n")
    monkeypatch.setattr(spot, "VENDOR", vendor)
    monkeypatch.setattr(spot, "EVERY", 0.01)
    return vendor


@pytest.fixture
def serve():
    servers = []

    def start(*answers):
        servers.append(Metadata(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def noticed(environ, seconds=10.0):
    """What is told within so many seconds."""
    told, come = [], threading.Event()

    def tell(notice):
        told.append(notice)
        come.set()

    with spot.watching(tell, environ):
        come.wait(seconds)
    return told


def test_a_notice_is_told_once(ec2, serve):
    server = serve(404, 404, NOTICE, NOTICE)
    assert noticed(server.environ) == [spot.Notice("terminate", "2026-11-23T18:40:00Z")]
    assert server.asked == [("PUT", "21600"), *[("GET", "token-1")] * 3]


def test_a_token_that_is_too_old_is_renewed(ec2, serve):
    server = serve(404, 401, NOTICE)
    assert noticed(server.environ)
    assert [how for how, _ in server.asked] == ["PUT", "GET", "GET", "PUT", "GET"]


def test_a_notice_that_nobody_can_read_is_one(ec2, serve):
    assert noticed(serve(b"[").environ) == [spot.Notice("terminate")]


@pytest.mark.parametrize(("vendor", "more"), [("QEMU", {}), ("Amazon EC2", {"AWS_EC2_METADATA_DISABLED": "True"})])
def test_elsewhere_nobody_is_asked(ec2, serve, vendor, more):
    server = serve(NOTICE)
    ec2.write_text(vendor)
    assert noticed({**server.environ, **more}, seconds=0.1) == []
    assert server.asked == []


def test_a_service_that_does_not_answer_is_left_alone(ec2):
    before = threading.active_count()
    assert noticed({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}, seconds=0.2) == []
    assert threading.active_count() == before


@pytest.fixture
def notice(ec2, serve, monkeypatch):
    """Give notice as soon as something compiles or trains."""
    server = serve(NOTICE, NOTICE)  # of the second run, too
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)


class Slow(Watched):
    """A member whose compile, or training, lasts until EC2 has given notice and what follows from it is done."""

    def __init__(self, home, until, **options):
        super().__init__(home, **options)
        launcher = self.session.launcher()
        run = launcher.run

        def slowly(*arguments, **named):
            done = threading.Event()
            for _ in range(1000):
                if until():
                    break
                done.wait(0.01)
            assert until(), self.events
            return run(*arguments, **named)

        launcher.run = slowly


@pytest.mark.feature("C3")
def test_a_compile_that_will_be_killed_lets_another_machine_begin(tmp_path, notice):
    remote = MemoryRemote()
    ann = Slow(tmp_path / "ann", lambda: ann.told("spot.notice") and not holders(remote, key), shared=[(remote, "rw")])
    key = ann.prepare().key
    assert warm(ann.session, ann.prepare()).compiled == 3
    assert ann.session.remotes.find(ann.prepare().place, anew=True), "it was done in time"


@pytest.mark.feature("C2", "C3")
@pytest.mark.parametrize("case", [(False, False, 1), (True, True, 1), (True, False, 0)])
def test_another_machine_goes_on_from_what_one_had_compiled_that_is_ended(tmp_path, case, ec2, serve, monkeypatch):
    """Where finished modules are not marked, they are kept only once the run has ended."""
    notice, marks, found = case
    monkeypatch.setattr(StandIn, "marks_finished", marks)
    remote = MemoryRemote()
    ann, bob = (Watched(tmp_path / name, shared=[(remote, "rw")]) for name in ("ann", "bob"))
    key, server = ann.prepare().key, serve()
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)

    def killed():
        server.answers.append(NOTICE)
        until(lambda: ann.told("spot.notice") and not holders(remote, key), "the lease is given back")
        raise TrainingError("killed")

    ends_within(ann, 1, killed if notice else None)
    with pytest.raises((InterruptedRunError, TrainingError)):
        warm(ann.session, ann.prepare())
    assert holders(remote, key) == []
    assert ann.session.remotes.find(ann.prepare().place, anew=True) is None, "nobody takes it for a whole record"
    done = warm(bob.session, bob.prepare())
    assert (done.compiled, done.reused.graphs if done.reused else 0) == (3 - found, found)


@pytest.mark.feature("C3", "F1")
def test_another_machine_has_what_a_training_had_compiled_that_is_ended(tmp_path):
    remote = MemoryRemote()
    ann, bob = (Watched(tmp_path / name, compiler=StandIn(extra=2), shared=[(remote, "rw")]) for name in ("ann", "bob"))
    warm(ann.session, ann.prepare())
    ends_within(ann, 1)
    with pytest.raises(InterruptedRunError):
        train(ann.session, ann.prepare(), output_dir=tmp_path / "out")
    assert ann.told("push.last")
    done = train(bob.session, bob.prepare(), output_dir=tmp_path / "bobs")
    assert (done.status, done.compiled, done.found) == ("hit", 1, 4)


@pytest.mark.feature("R4")
def test_what_could_not_be_pushed_before_is_pushed_when_a_training_will_be_killed(tmp_path, notice):
    remote = Cut(MemoryRemote())
    ann = Slow(tmp_path / "ann", lambda: ann.told("push.end"), shared=[(remote, "w")])
    remote.refusal = RemoteError("it is away")
    record = publish(ann.store, make_record())
    assert push(ann.store, ann.session.remotes, [record])[0].error
    warm(Watched(tmp_path / "ann").session, ann.prepare())
    remote.refusal = None
    train(ann.session, ann.prepare(), output_dir=tmp_path / "out")
    assert record.key in ann.told("push.end")[0]["keys"]


@pytest.mark.feature("R4")
def test_a_run_that_is_ended_while_it_pushes_ends_that_first(tmp_path):
    remote = Cut(MemoryRemote())
    ann = Watched(tmp_path / "ann", shared=[(remote, "rw")])
    upload, calls = MemoryRemote.upload, []

    def once(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt("SIGTERM")
        upload(remote._storage, *arguments)

    remote._storage.upload = once
    with pytest.raises(KeyboardInterrupt):
        warm(ann.session, ann.prepare())
    assert ann.told("push.last")
    assert ann.session.remotes.find(ann.prepare().place, anew=True)
    assert holders(remote, ann.prepare().key) == []
