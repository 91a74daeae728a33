"""Raw speed: a pull of one large file against the client's own download of it, into empty folders; 500 MB, or --gb 2.

Over loopback as it is, over a line of 1 Gb/s with answers that take 1, 10 and 40 ms to begin, and from a server that
limits each connection, as CDNs do.

The client downloads it by HTTP and, for another row, over Xet. By HTTP it checks the size of what it gets; cachekit
hashes it, whole and in pieces, and syncs it to the disk. Processor seconds are printed as well: on a machine that is
busy they say more than the time does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from measure import ratio
from team_hub import REPO, Client, Hub, serve  # first: it sets the client's environment
from team_records import make_large

from cachekit.remotes.push import push
from cachekit.store.record import Record

FETCH = """
    import time
    start, before = time.perf_counter(), time.process_time()
    hf_hub_download(name, path, cache_dir=cache)
    return time.perf_counter() - start, time.process_time() - before
"""
OURS, HTTP, XET = "cachekit", "hf_hub_download by HTTP", "hf_hub_download over Xet"


def ours(hub: Hub, home: Path, record: Record) -> tuple[float, float]:
    member = hub.member(home, "r")
    start, before = time.perf_counter(), time.process_time()
    found = member.session.remotes.find(record.place)
    assert found is not None
    member.pull(found)
    spent = time.perf_counter() - start, time.process_time() - before
    shutil.rmtree(home)
    return spent


def theirs(client: Client, cache: Path, path: str) -> tuple[float, float]:
    seconds, cpu = client(FETCH, name=REPO, path=path, cache=str(cache))
    shutil.rmtree(cache)
    return seconds, cpu


# Seconds before each answer, bytes a second of the line, bytes a second of each connection.
LINES: dict[str, tuple[float, float, float]] = {
    "as it is": (0.0, 0.0, 0.0),
    "1 Gb/s, 1 ms": (0.001, 125e6, 0.0),
    "1 Gb/s, 10 ms": (0.01, 125e6, 0.0),
    "1 Gb/s, 40 ms": (0.04, 125e6, 0.0),
    "30 MB/s a connection, 40 ms": (0.04, 0.0, 30e6),
}


def measured(line: str, ways: Mapping[str, Callable[[], tuple[float, float]]], repeats: int) -> dict[str, list[float]]:
    """Print what each way took, wall time and processor; returns the wall times.

    They go in turn, each of them first once: a machine that slows down slows all.
    """
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(repeats):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            spent[name].append(ways[name]())
    for name, found in spent.items():
        print(f"{line}: {name}: {', '.join(f'{seconds:.2f} (cpu {cpu:.2f})' for seconds, cpu in found)} s")
    return {name: [seconds for seconds, _ in found] for name, found in spent.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results = []
    with serve() as hub, tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        work = Path(folder)
        maker = hub.member(work / "maker")
        record = make_large(maker.store, 1, int(options.gb * 1e9))
        (done,) = push(maker.session.store, maker.session.remotes, [record])
        assert done.error is None, done.error
        shutil.rmtree(work / "maker")
        path = f"{record.modules[0].name}/model.neff"
        with (
            Client(hub, work / "http", xet=False) as http,
            Client(hub, work / "xet", xet=True) as xet,
        ):
            ways = {
                OURS: lambda: ours(hub, work / "home", record),
                HTTP: lambda: theirs(http.ready(), work / "cache", path),
                XET: lambda: theirs(xet.ready(), work / "cache", path),
            }
            ways[HTTP]()  # the test Hub puts the file together from Xet's parts when it is first asked for it
            for line, (seconds, together, each) in LINES.items():
                hub.slow(seconds, together, each)
                times = measured(line, ways, options.repeats)
                for name in (HTTP, XET):
                    what = f"{line}: a pull of {options.gb:g} GB against {name}"
                    results.append(ratio(what, times[OURS], times[name], at_least=0.9))
                if together:
                    what = f"{line}: the same against the line"
                    results.append(ratio(what, times[OURS], [options.gb * 1e9 / together], at_least=0.9))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
