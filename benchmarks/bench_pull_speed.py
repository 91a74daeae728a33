"""Raw speed: a pull of one large file against the client's own download of it, into empty folders; 500 MB, or --gb 2.

The client checks the size of what it gets by HTTP; cachekit hashes it, whole and in pieces, and syncs it to the disk.
The test Hub, in a process of its own, holds it by git LFS, so both fetch it by one HTTP body. With --xet the client may
fetch it as it likes best.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

if "--xet" not in sys.argv:
    os.environ["HF_HUB_DISABLE_XET"] = "1"  # read when the client is imported

from measure import ratio
from team_hub import REPO, Client, Hub, serve  # first: it sets the client's environment
from team_records import make_large

from cachekit.actions.pull import pull
from cachekit.actions.push import push
from cachekit.record import Record

FETCH = """
    import time, hashlib
    start = time.perf_counter()
    hf_hub_download(name, path, cache_dir=cache)
    return time.perf_counter() - start
"""
SYNCED = """
    import time, os
    start = time.perf_counter()
    found = hf_hub_download(name, path, cache_dir=cache)
    handle = os.open(found, os.O_RDONLY)
    os.fsync(handle)
    return time.perf_counter() - start
"""


def ours(hub: Hub, home: Path, record: Record) -> float:
    member = hub.member(home, "r")
    start = time.perf_counter()
    found = member.session.chain.find(record.directory, record.model_type, record.key)
    assert found is not None
    pull(member.session, found)
    seconds = time.perf_counter() - start
    shutil.rmtree(home)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--xet", action="store_true")
    options = parser.parse_args()
    with (
        serve(*([] if options.xet else ["--no-xet"])) as hub,
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
    ):
        work = Path(folder)
        maker = hub.member(work / "maker")
        record = make_large(maker.store, 1, int(options.gb * 1e9))
        (done,) = push(maker.session, [record], maker.session.chain.writable)
        assert done.published is not None, done.error and done.error.as_dict()
        shutil.rmtree(work / "maker")
        path = f"{record.modules[0].name}/model.neff"
        times: dict[str, list[float]] = {"ours": [], "client": [], "synced": []}
        with Client(hub, work / "client", xet=options.xet) as client:  # type: ignore[arg-type]
            client.ready()
            for _ in range(options.repeats):  # in turn, so that a machine that slows down slows all
                times["ours"].append(ours(hub, work / "home", record))
                for name, code in (("client", FETCH), ("synced", SYNCED)):
                    times[name].append(client(code, name=REPO, path=path, cache=str(work / "cache")))
                    shutil.rmtree(work / "cache")
    size = f"{options.gb:g} GB"
    for name, found in times.items():
        print(f"{name}: {', '.join(f'{seconds:.2f}' for seconds in found)} s")
    results = [
        ratio(f"a pull of {size} against hf_hub_download", times["ours"], times["client"], at_least=0.9),
        ratio(f"a pull of {size} against hf_hub_download and a sync", times["ours"], times["synced"], at_least=0.9),
    ]
    return 0 if results[0] else 1


if __name__ == "__main__":
    sys.exit(main())
