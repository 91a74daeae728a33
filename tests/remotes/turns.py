"""Pushes to a bucket of the Hub that take turns: each runs up to its next request, in an order that a seed decides.

The real `publish` runs on the real `BucketStorage`, over `bucket_client`. A request takes no time.
"""

from __future__ import annotations

import hashlib
import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachekit.remotes import additions, budget, derived, document, index, layout, parts, publish, survey
from cachekit.remotes.budget import Clock
from cachekit.remotes.hub import bucket as hub_bucket
from cachekit.remotes.offer import Offer
from cachekit.store.record import paths_of
from tests.remotes.bucket_client import Client


class Killed(BaseException):
    """The process of a push is gone."""


class Push(Clock):
    """One push, in a thread that runs only when it is its turn.

    Args:
        world: Where.
        offers: What.
        joins: Bytes of files that go with their record in one batch.
        killed_at: After so many steps it is killed.
        fault: Of its first batch.
        options: Of `publish`.
    """

    def __init__(self, world: World, offers: tuple[Offer, ...], *, joins=1 << 20, killed_at=-1, fault=None, **options):
        self.world, self.offers, self.options = world, offers, options
        self.killed_at, self.fault = killed_at, fault
        self.done, self.result, self.error, self.next = False, None, None, ""
        self.steps = self.requests = 0
        self.ready = world.now  # when its next step comes, where requests take time
        self.storage = hub_bucket.BucketStorage("hf://buckets/team/cache")
        self.storage._client, self.storage.joins = Client(self, world), joins
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        self._go.acquire()
        try:
            self._live()
            options = {"clock": self, "wait": lambda seconds, _: self.sleep(seconds), **self.options}
            self.result = publish.publish(self.storage, self.offers, **options)
        except BaseException as error:  # noqa: BLE001 - what a test asks for
            self.error = error
        self.done = True
        self._back.release()

    def _live(self):
        if self.steps == self.killed_at:
            raise Killed

    def step(self):
        """Let it go on up to its next request, or pause."""
        self._go.release()
        self._back.acquire()

    def turn(self, what: str, requests: int = 1):
        """Wait for the turn to do something."""
        self.next = what
        self._back.release()
        self._go.acquire()
        self._live()
        self.steps += 1
        self.requests += requests
        self.world.log.append(f"{self.world.pushes.index(self)}: {what}")

    def now(self):
        return self.world.now

    def sleep(self, seconds):
        self.ready = self.world.now + seconds
        self.turn("sleep", 0)
        self.world.now = max(self.world.now, self.ready)


class World:
    """A bucket, its pushes, and time: the clock of all, which goes on while a push waits.

    Attributes:
        files: By path: its bytes, their Xet hash, and when they came.
        late: What batches that seemed lost will do still.
        chance: Decides all that chance decides.
        patch: Of this world alone.
    """

    def __init__(self, seed: int, patch: pytest.MonkeyPatch):
        self.files: dict[str, tuple[bytes, str, float]] = {}
        self.late: list[list[tuple[str, bytes | None]]] = []
        self.pushes: list[Push] = []
        self.log: list[str] = []
        self.now, self.chance, self.patch = 1000.0, random.Random(seed), patch

    def time(self):
        return 1.8e9 + self.now

    def monotonic(self):
        return self.now

    def write(self, files):
        for path, data in files:
            self.now += 0.001
            self.files.pop(path, None)
            if data is not None:
                self.files[path] = (data, hashlib.sha256(data).hexdigest(), self.time())

    def push(self, *offers: Offer, **options) -> Push:
        """A push that has not begun."""
        self.pushes.append(Push(self, offers, **options))
        return self.pushes[-1]

    def alone(self, *offers: Offer, **options) -> Push:
        """A push that ends before another one goes on."""
        return self.until(self.push(*offers, **options), "its end")

    def until(self, push: Push, what: str) -> Push:
        """Let a push go on up to a request."""
        while not push.done and what not in push.next:
            push.step()
        return push

    def run(self):
        """Let all go on to their ends, a step of any at a time; in half of the worlds some are fast."""
        fast = self.chance.choice([1, 9])
        pace = [self.chance.choice([1, 1, fast]) for _ in self.pushes]
        while turns := [*(one for one in self.pushes if not one.done), *self.late]:
            paces = [pace[self.pushes.index(one)] if isinstance(one, Push) else 1 for one in turns]
            (chosen,) = self.chance.choices(turns, paces)
            if isinstance(chosen, Push):
                chosen.step()
            else:
                self.late.remove(chosen)
                self.write(chosen)

    def run_timed(self, latency: float):
        """The same where each request takes about so many seconds."""
        while live := [one for one in self.pushes if not one.done]:
            one = min(live, key=lambda one: one.ready)
            self.now = max(self.now, one.ready)
            one.step()
            if one.next != "sleep":
                one.ready = self.now + latency * self.chance.uniform(0.6, 1.6)

    def remove(self, part: str):
        """Somebody removes all files with this in their paths, also where they lie below their digests."""
        gone = {digest for path, (_, digest, _) in self.files.items() if part in path}
        self.write([(path, None) for path, (_, digest, _) in [*self.files.items()] if digest in gone])

    def records(self):
        """The records of all keys that were offered, as they lie there."""
        places = {offer.shared.record.place for push in self.pushes for offer in push.offers}
        there = [path for path in map(layout.record_path, places) if path in self.files]
        return [document.read(self.files[path][0], lambda _: b"") for path in there]

    def modules(self) -> set[tuple[str, str]]:
        """The keys and names of the modules that lie there whole, with the bytes that their record says."""
        return {
            (shared.record.key, module.name)
            for shared in self.records()
            for module in shared.record.modules
            if all(
                file.sha256
                in (
                    self.files.get(there, ("", ""))[1]
                    for there in (shared.places.get(file.sha256, path), layout.blob_path(file.sha256))
                )
                for path, file in paths_of([module])
            )
        }

    def trouble(self, wanted: set[tuple[str, str]]) -> list[object]:
        """What is wrong when all have ended: modules that lack, rows that say something else, errors."""
        rows = {one.key: one.digest for one in index.decode(self.files[layout.INDEX][0]).rows()}
        records = [one.record for one in self.records()]
        wrong = [f"a row of {one.key}" for one in records if rows.get(one.key) != index.digits_of(one)]
        errors = [one.error for one in self.pushes if one.error and not isinstance(one.error, Killed)]
        return [*(wanted - self.modules()), *wrong, *errors]

    def pushed(self) -> set[tuple[str, str]]:
        """The keys and names of the modules of all pushes that ended well."""
        records = [offer.shared.record for push in self.pushes if push.result for offer in push.offers]
        return {(record.key, module.name) for record in records for module in record.modules}


@contextmanager
def world(seed: int) -> Iterator[World]:
    """An empty bucket; what cachekit asks for time, chance and threads is asked of this world."""
    with pytest.MonkeyPatch.context() as patch:
        made = World(seed, patch)
        for module in (hub_bucket, additions, derived, index, survey):
            patch.setattr(module, "time", made)
        for module in (additions, survey, parts):
            patch.setattr(module, "each", lambda works, _: [work() for work in works])
        for module in (additions, publish):
            patch.setattr(module, "uuid", SimpleNamespace(uuid4=lambda: uuid.UUID(int=made.chance.getrandbits(128))))
        patch.setattr(budget, "random", made.chance)
        patch.setattr(hub_bucket, "_check_client", lambda _: hub_bucket.BATCH)
        patch.setattr(hub_bucket, "Client", lambda *_: None)
        patch.setattr(hub_bucket, "_xet_hashes", lambda paths: [_digest(path) for path in paths])
        try:
            yield made
        finally:  # no thread stays
            for push in made.pushes:
                while not push.done:
                    push.killed_at = push.steps
                    push.step()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
