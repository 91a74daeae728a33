"""EC2's notice that a Spot instance is taken away in two minutes, asked for while something compiles or trains.

EC2 tells it to the instance alone, by its metadata service, which is asked every five seconds as AWS advises (EC2 User
Guide, "Spot Instance interruption notices"), with a token (IMDSv2). Nobody is asked on a machine whose firmware does
not say that it is EC2, nor where `AWS_EC2_METADATA_DISABLED` is true. `AWS_EC2_METADATA_SERVICE_ENDPOINT` is another
address, as for AWS's own clients. A service that never answers, as in a container that is a hop too far away, is left
alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from cachekit.decode import from_json

VENDOR = Path("/sys/devices/virtual/dmi/id/sys_vendor")
EVERY = 5.0  # seconds between two questions
_ANSWER = 2.0  # seconds for one
_TOKEN_SECONDS = "21600"  # noqa: S105 - how long a token is good: six hours, the most there is
_LARGEST = 4096  # bytes of an answer


class Notice(Struct, frozen=True):
    """What is about to happen to this machine: `terminate`, `stop` or `hibernate`; and when, in UTC."""

    action: str
    time: str = ""


def is_ec2() -> bool:
    """Whether the firmware says that this machine is one of EC2's."""
    try:
        return VENDOR.read_text(encoding="utf-8", errors="replace").strip() == "Amazon EC2"
    except OSError:
        return False


@contextmanager
def watching(told: Callable[[Notice], None], environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Call `told` once, in another thread, if EC2 gives notice while the block lasts; elsewhere nothing happens."""
    if not is_ec2() or environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        yield
        return
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    stop = threading.Event()

    def watch() -> None:
        token, known = b"", False
        while True:
            if not token:
                token = _ask(endpoint, "PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS})[1]
                known = known or bool(token)
                if not known:  # nobody answers there
                    return
            headers = {"X-aws-ec2-metadata-token": token.decode("ascii", "replace").strip()}
            status, said = _ask(endpoint, "GET", "meta-data/spot/instance-action", headers)
            if status == HTTPStatus.UNAUTHORIZED:
                token = b""
            if status == HTTPStatus.OK:  # it is NOT_FOUND until there is a notice
                try:
                    notice = from_json(said, Notice)
                except msgspec.DecodeError:
                    notice = Notice("terminate")
                told(notice)
                return
            if stop.wait(EVERY):
                return

    threading.Thread(target=watch, name="cachekit-spot", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _ask(endpoint: str, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """The status of an answer, 0 where none came, and what it says if that is `OK`."""
    from http.client import HTTPConnection, HTTPException

    where = urlsplit(endpoint)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=_ANSWER)  # through no proxy
    try:
        connection.request(method, f"{where.path.rstrip('/')}/latest/{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST) if answer.status == HTTPStatus.OK else b""
    except (OSError, HTTPException, ValueError):
        return 0, b""
    finally:
        connection.close()
