"""torchrun, as far as cachekit relies on it: workers with their ranks, each in a session of its own.

Follows torch 2.9: RANK and its like, a worker's failure ends the others and is reported as `exitcode : N (pid: …)`, a
signal is passed on. Everything else of torchrun is left out.
"""

import argparse
import os
import signal
import subprocess
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc_per_node", type=int, default=1)
    for name in ("--nnodes", "--node_rank", "--master_addr", "--master_port"):
        parser.add_argument(name)
    parser.add_argument("--no_python", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    count = given.nproc_per_node
    workers = [
        subprocess.Popen(
            given.command,
            start_new_session=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "TORCHELASTIC_RUN_ID": "none",
            },
        )
        for rank in range(count)
    ]

    def passed_on(number, frame):
        for worker in workers:
            worker.send_signal(number)
        sys.exit(1)

    signal.signal(signal.SIGTERM, passed_on)
    running = True
    while running:
        running = any(worker.poll() is None for worker in workers)
        for rank, worker in enumerate(workers):
            if worker.poll():
                print(
                    f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {worker.returncode} (pid: {worker.pid})"
                )
                for other in workers:
                    other.terminate()
                return 1
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
