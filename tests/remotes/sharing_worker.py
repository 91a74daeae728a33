"""What the machines of a team do with a remote, each in a process and a home of its own.

A machine tells what came of it in a file beside its home, so that a test that killed some of them reads the others'.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path

from msgspec import structs

from cachekit.errors import CachekitError, RemoteError
from cachekit.remotes import layout
from cachekit.remotes.push import push
from cachekit.values import builtins
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, Watched, find, make_record, publish, recipe, served

LEASE = 2.0


def entry(number, size=6000):
    """An entry of a pusher: a record of two files, one of them tiny, and their bytes."""
    record, contents = make_record(number, (f"{number}-code",), size=size)
    tiny, more = make_record(number, (f"{number}-tiny",), size=90)
    module = structs.replace(record.modules[0], files=(*record.files, *tiny.files))
    return structs.replace(record, modules=(module,)), {**contents, **more}


def note(home, **told):
    """Leave what came of it, whole."""
    fresh = Path(f"{home}.new")
    fresh.write_text(json.dumps(told))
    fresh.replace(f"{home}.json")


def ready(home):
    """Say that the work begins now."""
    Path(home).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{home}.ready").touch()


def told_by(home):
    """What a machine left; None where it came to nothing."""
    path = Path(f"{home}.json")
    return json.loads(path.read_text()) if path.exists() else None


def push_entries(make, home, numbers, together, size=6000):
    """Push entries, so many at a time; those that could not be pushed are offered again until they are."""
    ann = Watched(home, shared=[(make(), "rw")], push=300)
    records = [publish(ann.store, entry(number, size)) for number in numbers]
    ready(home)
    errors = []
    for start in range(0, len(records), together):
        some = records[start : start + together]
        while (pushed := push(ann.store, ann.session.remotes, some)[0]).error is not None:
            errors.append(f"{pushed.error.message}: {pushed.error.cause}")
            if len(errors) > 50:
                raise pushed.error
            ann.session.remotes.writable[0].retry()
    note(home, errors=errors)


def push_at_once(make, home, numbers):
    """Push one entry each, from homes of their own, at once."""

    def work(number):
        ann = Watched(Path(home) / str(number), shared=[(make(), "rw")], push=600)
        (done,) = push(ann.store, ann.session.remotes, [publish(ann.store, entry(number))])
        if done.error is not None:
            errors.append(f"{done.error.message}: {done.error.cause}")

    errors: list[str] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    note(home, errors=errors)


def pull_entries(make, home, numbers, size=6000):
    """Pull entries; what is not there, and what is not as it was pushed."""
    bob = Watched(home, shared=[(make(), "r")])
    ready(home)
    absent, wrong = [], []
    for number in numbers:
        record, contents = entry(number, size)
        found = bob.session.remotes.find(record.place, anew=True)
        if found is None:
            absent.append(number)
        elif (got := bob.session.fetch(found)) is None or served(bob.store, got) != {
            file.path: contents[file.sha256] for file in record.files
        }:
            wrong.append(number)
    note(home, absent=absent, wrong=wrong, events=[event for event in bob.events if "failed" in event["event"]])


def whole_or_absent(home, numbers, size=6000):
    """Of a store that was killed while it pulled: which entries are there; each of them is as it was pushed."""
    bob = Watched(home)
    there = []
    for number in numbers:
        record, contents = entry(number, size)
        if find(bob.store, record) is not None:
            assert served(bob.store, record) == {file.path: contents[file.sha256] for file in record.files}
            there.append(number)
    assert not bob.damage()
    return there


def visible(make):
    """Keys of the records that lie on a remote."""
    storage = make()
    return {Path(found.path).stem for found in storage.list(layout.RECORDS, storage.revision())}


class Cuttable:
    """A remote whose line is cut as soon as a file is there."""

    def __init__(self, storage, cut):
        self._storage, self._cut = storage, cut

    def __getattr__(self, name):
        value = getattr(self._storage, name)
        if callable(value) and self._cut.exists():
            raise RemoteError("it is away", cause="the cable is cut")
        return value


def warm_one(make, home, log, how=()):
    """A machine of the fleet: warm the one recipe that all of them want.

    Args:
        log: Where each compile is noted.
        how: `delay`: seconds that a graph takes to compile; `clock`: seconds that its clock is off; `lease`.
    """
    how = {"delay": 0.0, "clock": 0.0, "lease": LEASE} | dict(how)
    os.environ |= {"STANDIN_LOG": str(log), "STANDIN_DELAY": str(how["delay"])}
    if how["clock"]:
        right = time.time
        time.time = lambda: right() + how["clock"]
    storage = Cuttable(make(), Path(f"{log}.cut-{os.getpid()}"))
    one = Watched(home, shared=[(storage, "rw")], compiler=StandIn(graphs=2), lease=how["lease"], wait=300)
    ready(home)
    prepared = one.prepare(recipe())
    try:
        done = warm(one.session, prepared)
    except CachekitError as error:
        note(home, error=builtins(error))
        raise
    restored = one.restored("check", done.record)
    digests = {name: hashlib.sha256(raw).hexdigest() for name, raw in sorted(restored.items())}
    note(home, compiled=done.compiled, waited=done.waited_seconds, modules=digests, pid=os.getpid())
