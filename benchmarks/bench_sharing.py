"""Sharing through a Hub repo, at 0 and 40 ms per request: requests, counted by the test Hub, and times against others.

The others are the client's `snapshot_download` with patterns, and, where CACHEKIT_PEER_PYTHON names an interpreter that
has optimum-neuron 0.4.5 and huggingface_hub 0.36, its `CompileCacheHfProxy`, used as libneuronxla does on a hit: for
each graph a proxy, `exists` of the mark, `download_file` of the NEFF. It does not fetch the graph and the flags.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import limit, ratio
from msgspec import structs
from team_hub import (
    PROVENANCE,
    REPO,
    ROOT,
    Client,
    Hub,
    Watched,
    count,
    serve,
)  # first: it sets the client's environment
from team_records import make

from cachekit.compilers.prepare import Prepared
from cachekit.key.canonical import key_of
from cachekit.remotes import layout
from cachekit.remotes.document import Shared
from cachekit.remotes.history import WHOLE
from cachekit.remotes.hub import HubStorage
from cachekit.remotes.index import Known, RemoteIndex, encode
from cachekit.remotes.port import Commit, Write
from cachekit.remotes.push import Pushed, push
from cachekit.store.record import File, Module, Record
from cachekit.verbs.coverage import coverage_of_all
from cachekit.verbs.hub import contents
from cachekit.verbs.plan import plan
from cachekit.verbs.warm import warm
from cachekit.verbs.why import why
from tests.support.standins import recipe

PEER = os.environ.get("CACHEKIT_PEER_PYTHON", "")
DELAYS = (0.0, 0.04)
MANY = (100, 3_000, 30_000)  # records
IMPORT_PEER = """
    import importlib.machinery, logging, sys, types, warnings
    warnings.simplefilter("ignore")
    import accelerate
    from transformers import GenerationMixin, PreTrainedModel  # before there is a torch_xla to be seen
    for name in ("torch_xla", "torch_xla.core", "torch_xla.core.xla_model", "torch_xla.runtime"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    from optimum.neuron.cache.hub_cache import CompileCacheHfProxy
    return CompileCacheHfProxy.__name__
"""
PEER_PULL = """
    import os, time
    from libneuronxla.neuron_cc_cache import CacheUrl, CompileCacheFs
    from optimum.neuron.cache.hub_cache import CompileCacheHfProxy
    import huggingface_hub.constants
    huggingface_hub.constants.HF_HUB_CACHE = cache
    os.makedirs(cache)
    url = CacheUrl(os.path.join(cache, "neuron"))
    start = time.perf_counter()
    for number, module in enumerate(modules):
        proxy = CompileCacheHfProxy(name, CompileCacheFs(url), endpoint=os.environ["HF_ENDPOINT"])
        entry = os.path.join(url.url, module)
        assert proxy.exists(os.path.join(entry, "model.done"))
        target = os.path.join(cache, str(number))
        proxy.download_file(os.path.join(entry, "model.neff"), target)
        open(target, "rb").read()
    return time.perf_counter() - start
"""
SNAPSHOT = """
    import time
    start = time.perf_counter()
    snapshot_download(name, allow_patterns=patterns, cache_dir=cache)
    return time.perf_counter() - start
"""


def sent(pushes: list[Pushed]) -> Pushed:
    (done,) = pushes
    if done.error is not None:
        sys.exit(f"a push failed: {done.error}: {done.error.cause}")
    return done


def lookups(hub: Hub, maker: Watched, work: Path) -> list[bool]:
    """Are recipes cached?"""
    records = [make(maker.store, 1000 + number, [2000], first=5000 + number) for number in range(100)]
    sent(push(maker.session.store, maker.session.remotes, records))
    results = []
    for delay in DELAYS:
        hub.slow(delay)
        member = hub.member(work / f"asks-{delay}", "r")
        remote = member.session.remotes.readable[0]
        one = records[37]
        hub.clear()
        start = time.perf_counter()
        assert remote.find(one.place) is not None
        seconds = time.perf_counter() - start
        results.append(
            count(f"is my recipe cached, of 100, at {delay * 1000:.0f} ms ({seconds:.2f} s)", hub.requests(), 2)
        )
        fresh = hub.member(work / f"asks2-{delay}", "r").session.remotes.readable[0]
        paths = [layout.record_path(record.place) for record in records]
        paths += [layout.record_path(one.place._replace(key=f"{number:064x}")) for number in range(900)]
        hub.clear()
        start = time.perf_counter()
        assert len(fresh.exist(paths)) == 100
        seconds = time.perf_counter() - start
        results.append(
            count(f"are 1,000 recipes cached, at {delay * 1000:.0f} ms ({seconds:.2f} s)", hub.requests(), 10)
        )
    hub.slow(0)
    return results


def again(hub: Hub, work: Path) -> list[bool]:
    """What a warm asks whose record was pulled before: for who only reads, and for who would push what is missing."""
    first = hub.member(work / "warms")
    warm(first.session, first.prepare())
    results = []
    for may, most in (("r", 0), ("rw", 1)):
        for number in range(2):
            member = hub.member(work / f"warms-{may}", may)
            prepared = member.prepare()
            hub.clear()
            assert warm(member.session, prepared).compiled == 0
            if number:
                results.append(count(f"a second warm, {may}", hub.requests(), most))
    return results


def crowded(hub: Hub, work: Path, number: int) -> list[bool]:
    """What questions cost on a repo of many records, as an older cachekit left it and with an index."""
    wanted = hub.member(work / "wants").prepare()
    dice = random.Random(number)
    records = []
    for one in range(number):
        hard = dict(wanted.ingredients.hard)
        hard |= {"training.per_device_train_batch_size": 100 + one, "training.weight_decay": dice.random()}
        hard |= {"model.config.num_hidden_layers": dice.randint(30, 60), "training.max_seq_length": dice.randint(9, 99)}
        records.append(like(wanted, hard, dice))
    records.append(like(wanted, {**wanted.ingredients.hard, "training.max_seq_length": 100}, dice))  # the nearest
    storage = hub.storage()
    for at in range(0, len(records), 1000):
        writes = [Write(layout.record_path(one.place), Shared(one).raw, "") for one in records[at : at + 1000]]
        storage.commit(Commit(f"cachekit: older [{at:012d}]", writes=writes), storage.revision())
    asked(hub, work / "before", f"a miss, {number:,} records without an index", look_up)
    made = RemoteIndex().with_([Known.of(one) for one in records])
    mark = "a" * 12
    index = Write(layout.INDEX, encode(structs.replace(made, change=mark)), "")
    storage.commit(Commit(f"cachekit: indexed [{mark}]", writes=[index], message=WHOLE), storage.revision())
    ways = {"a miss": look_up, "why": ask_why, "coverage of 40 recipes": cover, "hub ls": list_all}
    results = []
    for what, way in ways.items():
        found = asked(hub, work / what, f"{what}, {number:,} records", way)
        # One of them is whose token it is, which a machine asks once a day.
        results.append(count("  requests", found, 4))
        if number <= MANY[1]:
            results.append(limit("  kB", [sum(entry["sent"] for entry in found) / 1e3], 300, "kB"))
    return results


def like(wanted: Prepared, hard: Mapping[str, object], dice: random.Random) -> Record:
    """A record of these ingredients; nobody fetches its file."""
    made = structs.replace(PROVENANCE, created=f"2026-11-{dice.randint(10, 28)}T10:00:{dice.randint(10, 59)}.000+00:00")
    module = Module("standin-1.0/MODULE_1", (File("a.code", dice.randint(10**5, 10**8), "0" * 64),))
    return Record(
        key=key_of(hard),
        compiler="standin",
        directory=wanted.place.directory,
        model_type=wanted.place.model_type,
        recipe=f"recipe-{dice.randint(1, 40)}",
        hard=dict(hard),
        soft={},
        modules=(module,),
        graphs=1,
        compile_seconds=dice.randint(1, 10**6) / 100,
        provenance=made,
    )


def asked(hub: Hub, home: Path, what: str, way: Callable[[Watched], None]) -> list[dict[str, Any]]:
    """What a fresh machine asks for an answer."""
    member = hub.member(home, "r")
    hub.clear()
    start = time.perf_counter()
    way(member)
    seconds, found = time.perf_counter() - start, hub.requests()
    print(f"{what}: {len(found)} requests, {sum(entry['sent'] for entry in found) / 1e3:.0f} kB, {seconds:.2f} s")
    return found


def look_up(member: Watched) -> None:
    """A recipe that is not there, and what would help."""
    found = plan(member.prepare(), member.store, member.session.remotes, anew=True, reuse_bytes=10**9)
    print(f"(its nearest differs in {', '.join(change.name for change in found.changes)})")


def ask_why(member: Watched) -> None:
    """Why it is not there."""
    why(member.session, member.prepare())


def cover(member: Watched) -> None:
    """What there is of many recipes, of which none is there."""
    made = {str(number): member.prepare(recipe(number)) for number in range(1, 41)}
    wanted = [(name, lambda one=one: one) for name, one in made.items()]
    coverage_of_all(member.session, wanted, skip=False)


def list_all(member: Watched) -> None:
    """What is there."""
    contents(member.session)


def bytes_read() -> int:
    """What this process read so far, of files and sockets."""
    return int(Path("/proc/self/io").read_text().split()[1])


def pushes(hub: Hub, maker: Watched, modules: int) -> list[bool]:
    """Push nothing new, and one module beside thousands."""
    big = make(maker.store, 1, [20_000] * modules, first=10_000)
    start = time.perf_counter()
    sent(push(maker.session.store, maker.session.remotes, [big]))
    print(f"(the first push of {modules:,} modules, {big.size / 1e6:.1f} MB: {time.perf_counter() - start:.1f} s)")
    results = []
    for delay in DELAYS:
        hub.slow(delay)
        hub.clear()
        before, start = bytes_read(), time.perf_counter()
        done = sent(push(maker.session.store, maker.session.remotes, [big]))
        seconds, read = time.perf_counter() - start, bytes_read() - before
        assert done.error is None
        assert done.unchanged == 1
        name = f"push of {modules:,} modules with nothing new, at {delay * 1000:.0f} ms ({seconds:.2f} s)"
        results.append(count(name, hub.requests(), 1))
        # Tiny files go into the record's own document, and there is a note of each other one; those are not read.
        results.append(limit(f"  bytes read, of {big.size / 1e6:.1f} MB", [read / 1e6], big.size / 10e6, "MB"))
    for delay in DELAYS:
        hub.slow(delay)
        at = f"at {delay * 1000:.0f} ms"
        one = make(maker.store, int(2 + delay * 1000), [300_000], first=20_000 + int(delay * 1000))
        results += one_more(hub, maker, [big, one], f"one new module beside {modules:,}, {at}", one.modules[0])
    big = make(maker.store, 1, [20_000] * (modules + 1), first=10_000)
    results += one_more(hub, maker, [big], f"one more in the record of {modules:,}, {at}", big.modules[-1])
    hub.slow(0)
    return results


def one_more(hub: Hub, maker: Watched, records: list[Record], what: str, module: Module) -> list[bool]:
    """Push records of which one module is new."""
    hub.clear()
    start = time.perf_counter()
    sent(push(maker.session.store, maker.session.remotes, records))
    seconds = time.perf_counter() - start
    requests, commits = hub.requests(), hub.requests("POST */commit/*")
    both, size = sum(entry["received"] + entry["sent"] for entry in requests), sum(file.size for file in module.files)
    own = [entry for entry in requests if not entry["path"].startswith("/xet/")]
    results = [
        # One of them is whose token it is, which a machine asks once a day.
        count(f"push of {what} ({seconds:.2f} s), without Xet's", own, 7),
        limit("  kB, both ways", [both / 1e3], 3 * size / 1e3 + 100, "kB"),
        count("  commits", commits, 1),
    ]
    print(f"  its body: {commits[0]['received'] / 1e3:.0f} kB")
    return results


def fetch(hub: Hub, home: Path, record: Record) -> float:
    member = hub.member(home, "r")
    start = time.perf_counter()
    found = member.session.remotes.find(record.place)
    assert found is not None
    member.pull(found)
    return time.perf_counter() - start


def pulls(hub: Hub, record: Record, work: Path, repeats: int) -> list[bool]:
    """Fetch a record, against others."""
    names = [module.name for module in record.modules]
    folders = {"client": work / "client", "peer": work / "peer"}
    results = []
    with Client(hub, folders["client"]) as client:
        client.ready()
        peer: Client | None = None
        if PEER:
            path = str(ROOT / "tests" / "support" / "neuron_sdk" / "packages")
            peer = Client(hub, folders["peer"], python=PEER, environment={"PYTHONPATH": path})
            peer(IMPORT_PEER)
        for delay in DELAYS:
            hub.slow(delay)
            ways: dict[str, Callable[[Path], float]] = {
                "cachekit": lambda cache: fetch(hub, cache, record),
                "snapshot_download": lambda cache: float(
                    client(SNAPSHOT, name=REPO, patterns=[f"{name}/*" for name in names], cache=str(cache))
                ),
            }
            if peer:
                ways["optimum-neuron"] = lambda cache, peer=peer: float(  # type: ignore[misc]
                    peer(PEER_PULL, name=REPO, modules=names, cache=str(cache))
                )
            times: dict[str, list[float]] = {name: [] for name in ways}
            counts: dict[str, int] = {}
            for _ in range(repeats):  # in turn, so that a machine that slows down slows all
                for name, way in ways.items():
                    hub.clear()
                    times[name].append(way(work / "cache"))
                    counts[name] = len(hub.requests())
                    if name != "cachekit":
                        shutil.rmtree(work / "cache")
                        continue
                    # Again, from a new run: all is here.
                    member = hub.member(work / "cache", "r")
                    hub.clear()
                    assert member.store.lookup(record.place) == record
                    counts["again"] = len(hub.requests())
                    shutil.rmtree(work / "cache")
            what = f"pull of {len(names)} modules, {record.size / 1e6:.1f} MB, at {delay * 1000:.0f} ms"
            for name in list(ways)[1:]:
                ours, theirs = counts["cachekit"], counts[name]
                fewer = ours < theirs
                print(f"{what}: {ours} requests against {theirs} of {name}: {'ok' if fewer else 'MISSED'}")
                results += [fewer, ratio(f"{what}, against {name}", times["cachekit"], times[name], at_most=1.0)]
            results.append(limit("  a second pull: requests", [counts["again"]], 0, ""))
        hub.slow(0)
        if peer:
            peer.kill()
        else:
            print("optimum-neuron: not measured; CACHEKIT_PEER_PYTHON names no interpreter")
    return results


def black_hole() -> tuple[socket.socket, str]:
    """A server that takes connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    held = []

    def take() -> None:
        while True:
            try:
                held.append(server.accept())
            except OSError:
                return

    threading.Thread(target=take, daemon=True).start()
    return server, f"http://127.0.0.1:{server.getsockname()[1]}"


def outage(work: Path) -> list[bool]:
    """What a remote that accepts and never answers adds to a warm, and to the next one."""

    def timed(home: Path, *storages: HubStorage) -> float:
        member = Watched(home, shared=[(storage, "rw") for storage in storages], push=20)
        start = time.perf_counter()
        warm(member.session, member.prepare())
        return time.perf_counter() - start

    hole, address = black_hole()
    timed(work / "first")  # what is imported late
    alone = [timed(work / f"alone-{number}") for number in range(5)]
    home = work / "outage"
    first = timed(home, HubStorage(REPO, endpoint=address, token="hf_x"))
    # Other runs of this machine, with other recipes, as far as the breaker is concerned: the records are removed.
    again = []
    for _ in range(5):
        shutil.rmtree(home / "v1" / "records")
        again.append(timed(home, HubStorage(REPO, endpoint=address, token="hf_x")))
    hole.close()
    base = statistics.median(alone)
    return [
        limit("a dead remote adds to a run", [first - base], 22.0),
        limit("  to the next ones, within the breaker's time", [max(0.0, s - base) for s in again], 0.1),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["lookup", "many", "push", "pull", "outage"])
    parser.add_argument("--records", type=int, nargs="*", default=list(MANY), help="on the repo that is asked")
    parser.add_argument("--modules", type=int, default=3000, help="beside which one more is pushed")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results: list[bool] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        work = Path(folder)
        if {"lookup", "push", "pull"} & set(options.parts):
            with serve() as hub:
                maker = hub.member(work / "maker")
                if "lookup" in options.parts:
                    results += lookups(hub, maker, work)
                    results += again(hub, work)
                if "push" in options.parts:
                    results += pushes(hub, maker, options.modules)
                if "pull" in options.parts:
                    dice = random.Random(1)
                    few = make(maker.store, 100, [dice.randint(200_000, 4_000_000) for _ in range(12)], first=30_000)
                    many = make(maker.store, 101, [dice.randint(50_000, 400_000) for _ in range(300)], first=31_000)
                    sent(push(maker.session.store, maker.session.remotes, [few, many]))
                    for record in (few, many):
                        results += pulls(hub, record, work, options.repeats)
        for number in options.records if "many" in options.parts else ():
            with serve() as hub:
                results += crowded(hub, work / f"many-{number}", number)
        if "outage" in options.parts:
            results += outage(work)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
