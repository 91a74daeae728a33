"""A test Hub in a shell of its own, until Ctrl-C.

    python -m tests.support.hubserver /tmp/hub --port 8911
    HF_ENDPOINT=http://127.0.0.1:8911 HF_TOKEN=hf_admin HF_HOME=/tmp/one  cachekit …
    HF_ENDPOINT=http://127.0.0.1:8911 HF_TOKEN=hf_admin HF_HOME=/tmp/two  cachekit …

Faults may be given at the start, as JSON (`--fault '{"kind": "412", "on": "POST */commit/*", "times": 2}'`), or later
by a POST of the same to `/_test/faults`; `GET /_test/requests` shows what was asked.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading

from .server import HubServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="hubserver", description="A test Hub for the real huggingface_hub clients.")
    parser.add_argument("folder", help="where everything is kept; may be used again")
    parser.add_argument("--port", type=int, default=8911, help="0 for any free one")
    parser.add_argument("--no-xet", action="store_true", help="a Hub with git LFS only")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="before each answer")
    parser.add_argument("--commits-per-hour", type=int, metavar="N", help="a quota for each repository")
    parser.add_argument("--overlap-409", action="store_true", help="a commit during another one is refused")
    parser.add_argument("--fault", action="append", default=[], type=json.loads, metavar="JSON")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with HubServer(options.folder, options.port) as hub:
        hub.xet, hub.latency = not options.no_xet, options.latency
        hub.commits_per_hour, hub.overlap_409 = options.commits_per_hour, options.overlap_409
        for fault in options.fault:
            hub.fault(**fault)
        sys.stdout.write(
            f"export HF_ENDPOINT={hub.endpoint} HF_TOKEN={hub.token}\n"
            f"# other tokens: {hub.read_token} (reads), {hub.other_token} (of somebody else)\n"
        )
        sys.stdout.flush()
        stop.wait()


main()
