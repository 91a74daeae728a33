"""torchrun, as far as cachekit relies on it: workers with their ranks, each in a session of its own.

Follows torch 2.9: RANK and its like, a worker's failure ends the others and is reported as `exitcode : N (pid: …)`, a
signal is passed on, and with several nodes no worker starts before all nodes have met at the first one's port.
Everything else of torchrun is left out.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

MEETING = 60.0  # seconds; torchrun waits for longer


def meet(nodes: int, number: int, address: str, port: int) -> None:
    """Return when all nodes have come, or end this one."""
    deadline = time.monotonic() + MEETING
    if number == 0:
        with socket.create_server((address, port)) as server:
            server.settimeout(MEETING)
            others = [server.accept()[0] for _ in range(nodes - 1)]
        for other in others:
            other.close()
        return
    while True:
        try:
            with socket.create_connection((address, port), timeout=MEETING) as first:
                first.recv(1)
                return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit("torch.distributed.DistStoreError: Timed out after 60 seconds waiting for clients")
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc_per_node", type=int, default=1)
    for name in ("--nnodes", "--node_rank", "--master_addr", "--master_port"):
        parser.add_argument(name)
    parser.add_argument("--no_python", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    count, nodes = given.nproc_per_node, int(given.nnodes or 1)
    if nodes > 1:
        meet(nodes, int(given.node_rank), given.master_addr, int(given.master_port))
    workers = [
        subprocess.Popen(
            given.command,
            start_new_session=True,
            env={
                **os.environ,
                "RANK": str(int(given.node_rank or 0) * count + rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(nodes * count),
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
