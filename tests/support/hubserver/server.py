"""The server: its parts, its settings, who may do what, and the way from a request to its route.

One process owns a folder; any number of client processes talk to it. Connections stay open, every answer has a length,
the body of a refused request is read, as far as a fault does not say otherwise.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from . import api, buckets, commits, lfs, xet
from .accounts import OTHER_TOKEN, READ_TOKEN, WRITE_TOKEN, Accounts, Signer
from .connection import POLL, Server
from .faults import Fault, Faults
from .log import Entry, Log
from .repos import Repo, Repos
from .wire import Handler, HubError, Request, Response, Routes

TABLES: list[Routes] = [module.ROUTES for module in (api, commits, buckets, xet, lfs)]
NO_ACCOUNT = ("/cdn/", "/xet/", "/v1/telemetry")  # paths with grants of their own


class HubServer:
    """A test Hub over a folder, from `with` to its end.

    Attributes that may be set at any time:
        xet: Whether the Xet routes exist; without them it is a Hub with git LFS only.
        latency: Seconds before each answer.
        commits_per_hour: A quota for each repository; None for none.
        overlap_409: Whether a commit during another one is a 409, as on the real Hub, rather than waiting for it.
        commit_seconds: How long a commit takes, at least.
        tree_page: Entries on a page of a tree; 0 for the Hub's own.
        now: The clock of the quota, in seconds.
    """

    def __init__(self, folder: Path | str, port: int = 0) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.repos = Repos(folder)
        self.cas = xet.Cas(folder / "xet")
        self.buckets = buckets.Buckets()
        self.log = Log()
        self.faults = Faults()
        self.accounts = Accounts()
        self.signer = Signer()
        self.xet = True
        self.latency = 0.0
        self.commits_per_hour: int | None = None
        self.overlap_409 = False
        self.commit_seconds = 0.0
        self.tree_page = 0
        self.now = time.time
        self.token, self.read_token, self.other_token = WRITE_TOKEN, READ_TOKEN, OTHER_TOKEN
        self.stopping = threading.Event()
        self._http = Server(("127.0.0.1", port), self)
        self.port: int = self._http.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.cdn = f"http://localhost:{self.port}"  # another host: clients must not send their token there
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": POLL}, daemon=True)

    def __enter__(self) -> HubServer:  # noqa: PYI034
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.close_connections()
        self._http.server_close()
        self._thread.join()

    def hang_up(self) -> None:
        """Cut all lines, those that wait for an answer as well; new ones are taken."""
        self._http.close_connections()

    @property
    def requests(self) -> list[Entry]:
        """All requests since the start or `log.clear()`, but for what clients tell about themselves."""
        return self.log.entries()

    def count(self, pattern: str = "*") -> int:
        """How many requests fit `METHOD GLOB`."""
        return len(self.log.entries(pattern))

    def fault(self, kind: str, on: str = "*", **options: Any) -> Fault:
        """Add a rule: see the module `faults`."""
        return self.faults.add(Fault(kind, on, **options))

    def repo(self, name: str, repo_type: str = "model", *, private: bool = True) -> Repo:
        """A repository as the server has it; made if it is not there."""
        return self.repos.create(repo_type, name, private=private)[0]

    # What the routes ask.

    def visible(self, request: Request, repo_type: str, name: str) -> Repo:
        """The repository, for those who may read it; the others are told that there is none."""
        repo = self.repos.get(repo_type, name)
        if not repo or (repo.private and not self._member(request, name)):
            anonymous = request.account is None
            message = "Invalid username or password." if anonymous else "Repository not found"
            raise HubError(401 if anonymous else 404, message, "RepoNotFound")
        return repo

    def writable(self, request: Request, repo_type: str, name: str) -> Repo:
        """The repository, for those who may write to it."""
        repo = self.visible(request, repo_type, name)
        self.allow_write(request, name)
        return repo

    def allow_write(self, request: Request, name: str) -> None:
        if request.account is None:
            raise HubError(401, "Invalid username or password.")
        if request.account.role != "write" or not self._member(request, name):
            namespace = name.split("/", maxsplit=1)[0]
            raise HubError(403, f"You don't have the rights to write under the namespace {namespace!r}")

    def _member(self, request: Request, name: str) -> bool:
        return request.account is not None and name.split("/", maxsplit=1)[0] in request.account.namespaces

    def page_url(self, repo: Repo) -> str:
        return f"{self.endpoint}/{'' if repo.type == 'model' else repo.type + 's/'}{repo.name}"

    def linked_size(self, sha256: str) -> tuple[int | None, str | None]:
        """Size and Xet hash of a large file that was uploaded; None for both where it was not."""
        if file := self.cas.by_sha256(sha256):
            return file.size, file.hash
        if self.repos.objects.has(sha256):
            return self.repos.objects.size(sha256), None
        return None, None

    def plain_file(self, sha256: str) -> Path:
        """The bytes of a large file; those of Xet are put together, and checked, when first asked for."""
        if not self.repos.objects.has(sha256):
            file = self.cas.by_sha256(sha256)
            if not file:
                raise HubError(404, "NoSuchKey")
            self.repos.objects.put(self.cas.bytes(file), sha256, size=file.size)
        return self.repos.objects.path(sha256)

    def handle(self, request: Request) -> Response:
        """Carry a request out."""
        try:
            if not request.path.startswith(NO_ACCOUNT):
                try:
                    request.account = self.accounts.of(request.headers.get("Authorization"))
                except KeyError:
                    raise HubError(401, "Invalid credentials in Authorization header") from None
            function, parameters = find("GET" if request.method == "HEAD" else request.method, request.path)
            return function(self, request, **parameters)
        except HubError as error:
            return error.response()

    def control(self, request: Request) -> Response:
        """The test's own door: `POST` or `DELETE /_test/faults`, `GET` or `DELETE /_test/requests`."""
        match request.method, request.path:
            case "POST", "/_test/faults":
                self.fault(**request.json())
            case "DELETE", "/_test/faults":
                self.faults.clear()
            case "DELETE", "/_test/requests":
                self.log.clear()
            case "GET", "/_test/requests":
                return Response.json([asdict(entry) for entry in self.requests])
            case _:
                return Response(404)
        return Response.json({})


def find(method: str, path: str) -> tuple[Handler, dict[str, str]]:
    """The route of a path, over all tables; HubError 404 or 405."""
    error = HubError(404, "Sorry, we can't find the page you are looking for.")
    for table in TABLES:
        try:
            return table.find(method, path)
        except HubError as found:
            error = found if found.status == 405 else error
    raise error
