"""A real client in a process of its own: what a test says is run by that interpreter's `huggingface_hub`.

The endpoint, the home and whether Xet is used are read by the client when it is imported. So a process is started with
them, and stays: starting one costs half a second, asking it for something nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.hubserver import HubServer

DRIVER = """
import hashlib, json, os, sys
from pathlib import Path
import huggingface_hub as hh
from huggingface_hub import (CommitOperationAdd as Add, CommitOperationCopy as Copy, CommitOperationDelete as Delete,
    HfApi, hf_hub_download, snapshot_download)
answers, sys.stdout = sys.stdout, sys.stderr
api, token, home = HfApi(), os.environ["HF_TOKEN"], Path(os.environ["HF_HOME"])

def sha(data):
    return hashlib.sha256(Path(data).read_bytes() if isinstance(data, (str, Path)) else data).hexdigest()

names = dict(globals())
for line in sys.stdin:
    order = json.loads(line)
    space = dict(names)
    try:
        exec(order["code"], space)
        answer = {"value": space["run"](**order["arguments"])}
    except Exception as error:
        response = getattr(error, "response", None)
        answer = {"error": type(error).__name__, "kinds": [kind.__name__ for kind in type(error).__mro__],
            "status": getattr(response, "status_code", None), "text": str(error)}
    print(json.dumps(answer, default=str), file=answers, flush=True)
"""


class ClientError(Exception):
    """What the client raised: the names of its class and bases, the status of the answer behind it if there was one."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer['text']}")
        self.name: str = answer["error"]
        self.kinds: list[str] = answer["kinds"]
        self.status: int | None = answer["status"]
        self.text: str = answer["text"]


class Client:
    """A process that talks to a test Hub.

    Args:
        hub: The Hub.
        home: Its HF_HOME, with nothing in it.
        python: An interpreter that has a huggingface_hub.
        xet: Whether it may use Xet.
        token: Of whom; the writer's by default.
        environment: More variables.
    """

    def __init__(
        self,
        hub: HubServer,
        home: Path,
        *,
        python: str = sys.executable,
        xet: bool = True,
        token: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        variables = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "SYSTEMROOT") if name in os.environ}
        variables |= {
            "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": hub.token if token is None else token,
            "HOME": str(home), "HF_HUB_DISABLE_XET": "0" if xet else "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "5",
            "NO_PROXY": "127.0.0.1,localhost", "PYTHONDONTWRITEBYTECODE": "1",
        } | (environment or {})  # fmt: skip
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.xet = home, xet
        self._log = (home / "stderr.txt").open("w")
        self.process = subprocess.Popen(
            [python, "-c", DRIVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=variables, text=True,
        )  # fmt: skip
        self.version: tuple[int, ...] = ()

    def __call__(self, code: str, **arguments: Any) -> Any:
        """Run a function's body with these arguments there, and give what it returns; raises ClientError."""
        self.start(code, **arguments)
        return self.result()

    def start(self, code: str, **arguments: Any) -> None:
        """As a call, without waiting for the end."""
        body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
        if "\n" not in body and not body.strip().startswith(("return", "raise")):
            body = f"    return {body.strip()}"
        order = {"code": f"def run({', '.join(arguments)}):\n{body}", "arguments": arguments}
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """Wait for what was started."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client died: {(self.home / 'stderr.txt').read_text()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer)
        return answer["value"]

    def ready(self) -> Client:
        """Wait until it has been imported; `version` is known from then on."""
        if not self.version:
            numbers = self("hh.__version__").split(".")
            self.version = tuple(int(number) for number in numbers[:2] if number.isdigit())
        return self

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Client:  # noqa: PYI034
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
