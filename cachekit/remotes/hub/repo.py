"""A model or dataset repo as a remote: at a branch, to read and to write, or at a tag or commit, to read.

Documents have compare-and-swap by the commit that they are built on (`parent_commit`): the Hub takes no commit whose
parent is not the branch's head. A document's token is the digests of its bytes, both ways that a Hub may know them; it
is compared at the parent, which costs nothing where the document was read, and one request otherwise.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachekit import redact
from cachekit.errors import AuthError, ConflictError, RemoteError, TooLargeError, UncertainError, UsageError
from cachekit.files import PIECE
from cachekit.remotes import layout
from cachekit.remotes.hub import send
from cachekit.remotes.hub.account import login
from cachekit.remotes.hub.client import LINES, STAGING, Client
from cachekit.remotes.hub.create import place_of
from cachekit.remotes.port import (
    ABSENT,
    LATEST,
    Commit,
    Document,
    Entry,
    Limits,
    PastCommit,
    Storage,
    Tell,
    Upload,
    Write,
    git_digest,
)
from cachekit.text import cut

if TYPE_CHECKING:
    from cachekit.health import Finding

T = TypeVar("T")
MAIN = "main"
STAT_BATCH = 1000  # paths; the Hub answers 413 for more
FEW = 4  # files, each of which costs one request more than it would if git LFS were asked for all of them
LIST_LIMIT = 2_000_000  # entries; the Hub itself advises 100,000 files
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ADDRESS = re.compile(r"hf://(?:(datasets|models)/)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")


class HubStorage(Storage):
    """A repo on the Hub; see `Storage`.

    Args:
        repo: `team/cache`.
        kind: `model` or `dataset`.
        branch: A branch; or a tag or a commit, which can only be read.
        endpoint: Of the Hub; `HF_ENDPOINT` where None.
        token: Where None, as the client finds one: `HF_TOKEN`, or what `hf auth login` kept.
        limits: How long it may take.

    Raises:
        UsageError: No repo can have this name or kind.
    """

    compares = True
    scarce = True
    batch = STAT_BATCH
    lines = LINES
    staging = STAGING

    def __init__(
        self,
        repo: str,
        *,
        kind: str = "model",
        branch: str = MAIN,
        endpoint: str | None = None,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.name = place_of(repo, kind) + ("" if branch == MAIN else f"@{branch}")
        self._client = Client(self.name, endpoint, token, limits or Limits())
        self._repo = {"repo_id": repo, "repo_type": kind}
        self._branch = branch
        self._lock = threading.Lock()
        self._known: tuple[str, dict[str, Entry | None]] = ("", {})
        self._modes: dict[tuple[str, str], str] = {}  # how what was sent travels, by path and digest
        self._is_branch = branch == MAIN
        self._place = repo  # as the Hub says it, with the revision

    def __repr__(self) -> str:
        return f"HubStorage({self.name})"

    def revision(self) -> str:
        """The head of the branch, or the commit behind the tag; one request."""

        def head(api: Any) -> Any:
            return api.repo_info(revision=self._branch, expand=["sha", "private"], **self._repo)

        info = self._client.ask(head)
        self.public, self.private = info.private is False, info.private is True
        self._place = str(info.id or self._place)
        found = info.sha
        if not isinstance(found, str) or not _COMMIT.fullmatch(found):
            raise RemoteError(f"{self.name} did not name a commit as its head", cause=cut(repr(found), 100))
        return found

    def stranger(self, memory: Path | None = None) -> str:
        """What the repo's owner and its being private say; one request a day, beside that of `revision`."""
        return self._client.stranger(self._place, memory, private=self.private)

    def known_stranger(self, memory: Path | None = None) -> str:
        """What the endpoint says, and the names that the token stood for when that was asked last."""
        return self._client.stranger(self._place, memory, private=self.private, asks=False)

    def server(self) -> str:
        """The Hub."""
        return self._client.endpoint

    def login(self, *, writable: bool) -> Finding:
        """What there is of a token of the Hub."""
        return login(self.name, writable=writable)

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those that exist; one request for a thousand, and none for those that were asked for at this commit."""
        wanted = list(dict.fromkeys(_checked(path) for path in paths))
        known = self._known[1] if self._known[0] == revision else {}
        found = {path: entry for path in wanted if (entry := known.get(path))}
        unknown = [path for path in wanted if path not in known]
        for at in range(0, len(unknown), STAT_BATCH):
            batch = unknown[at : at + STAT_BATCH]

            def infos(api: Any, batch: list[str] = batch) -> list[Entry]:
                answer = api.get_paths_info(paths=batch, revision=revision or self._branch, expand=False, **self._repo)
                return [entry for entry in map(_entry, answer) if entry]

            asked = set(batch)
            found |= {entry.path: entry for entry in self._client.ask(infos) if entry.path in asked}
        self._learn(revision, {path: found.get(path) for path in unknown})
        return found

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """All files below a folder, without the rest of the repo; a request for a thousand entries."""
        below = _checked(folder) if folder else None

        def tree(api: Any) -> Iterator[Any]:
            answer: Iterator[Any] = api.list_repo_tree(
                path_in_repo=below, recursive=True, expand=False, revision=revision or self._branch, **self._repo
            )
            return map(_entry, answer)

        try:
            for number, entry in enumerate(self._client.each(tree)):
                if number >= LIST_LIMIT:
                    raise RemoteError(f"{self.name} lists more than {LIST_LIMIT:,} files")
                if entry and layout.is_good(entry.path) and (below is None or entry.path.startswith(f"{below}/")):
                    yield entry
        except FileNotFoundError:
            return

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """A document; one request, two where git LFS holds it, and none where it is what is known to lie there."""
        known = self._known[1] if self._known[0] == revision else {}
        if path in known:
            there, copy = known[path], self.copies.get(path)
            if there is None:
                return None
            if copy is not None and len(copy) <= limit and there.equals(copy):
                return Document(copy, _token(_entry_of(path, copy)))
        address = self._address(path, revision)
        for _ in range(2):  # once more where it came wrong
            try:
                data, _, digest = self._client.document(address, path, limit, self._client.call(streams=True))
            except FileNotFoundError:
                self._learn(revision, {path: None})
                return None
            except TooLargeError as error:
                there = self._states([path], revision)[path]
                error.token = _token(there) if there else ABSENT
                raise
            entry, told = _entry_of(path, data), known.get(path)
            right = digest in entry.digests.values() if digest else told.equals(data) if told else None
            if right is not False:
                break
        if right:  # else nothing can be written in the place of what lies there in truth: this token fits nothing else
            self._learn(revision, {path: entry})
            self.copies.keep(path, data)
        return Document(data, _token(entry))

    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """A file's bytes; two requests, one where `expect` found it, and one for each further range."""
        yield from self._client.chunks(self._address(path, revision), self._client.call(streams=True), start, end)

    def otherwise(self, path: str, revision: str, size: int) -> Iterator[bytes]:
        """As the client downloads it: a large file over Xet, which has other servers, where that is installed."""
        with tempfile.TemporaryDirectory(prefix="cachekit-", ignore_cleanup_errors=True) as folder:
            options = {"filename": _checked(path), "revision": revision or self._branch, "local_dir": folder}
            try:
                whole = self._client.download({**self._repo, **options}, size)
            except (RemoteError, FileNotFoundError):  # there is no such way, say
                yield from self.chunks(path, revision)
                return
            with whole.open("rb") as opened:
                while piece := opened.read(PIECE):
                    yield piece

    def expect(self, files: Sequence[Entry], revision: str) -> None:
        """Ask where git LFS has these, a request for a hundred; a few are not worth one."""
        if len(files) >= FEW:
            addresses = {self._address(file.path, revision): file for file in files}
            self._client.locate(addresses, **self._repo)

    def _address(self, path: str, revision: str) -> str:
        from huggingface_hub import hf_hub_url

        revision = revision or self._branch
        return str(hf_hub_url(filename=_checked(path), revision=revision, endpoint=self._client.endpoint, **self._repo))

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """Send what is large; what is small goes with the commit.

        A digest is taken as given: whoever reads compares it.
        """
        self._check_branch()
        missing = self._missing(files, revision)
        unsent = [file for file in missing if (file.path, file.sha256) not in self._modes]
        if not unsent:
            return
        call = self._client.call(uploads=True, patience=2, slack=sum(file.size for file in unsent))
        modes = self._client.send(lambda api: send.preupload(api, self._repo, self._branch, unsent), call, tell)
        self._modes.update({(file.path, file.sha256): modes[file.path] for file in unsent})

    def commit(self, change: Commit, revision: str) -> str:
        """One commit on top of `revision`; one request where all files were sent before.

        One more where the card changes: the client has the Hub check it.
        """
        self._check_branch()
        missing = self._missing(change.files, revision)
        writes = self._fitting(change.writes, revision)
        unsent = sum(file.size for file in missing if (file.path, file.sha256) not in self._modes)
        call = self._client.call(uploads=True, slack=unsent)

        def committing(api: Any) -> str:
            from huggingface_hub import CommitOperationDelete

            operations = [send.addition(file, self._modes.get((file.path, file.sha256))) for file in missing]
            operations += [
                CommitOperationDelete(write.path, is_folder=False)
                if write.data is None
                else send.document(write.path, write.data)
                for write in writes
            ]
            if not operations:  # nothing to change, which is true only of what is there now
                if self.revision() != revision:
                    raise ConflictError(f"somebody else wrote to {self.name} in the meantime")
                return revision
            made = send.commit(
                api, self._repo, call, operations=operations, commit_message=change.title,
                commit_description=change.message, revision=self._branch, parent_commit=revision,
            )  # fmt: skip
            if not call.committing and made != revision:  # nothing to change, the client says: but at another head
                raise ConflictError(f"somebody else wrote to {self.name} in the meantime")
            send.refuse_ignored(operations)
            return made

        made = self._client.send(committing, call)
        if not _COMMIT.fullmatch(made):
            raise UncertainError(f"{self.name} did not name a commit in its answer", cause=cut(made, 100))
        return made

    def latest(self, revision: str = "", most: int = LATEST) -> Sequence[PastCommit]:
        """The last commits; one request for each page."""

        def commits(api: Any) -> list[PastCommit]:
            found = islice(api.list_repo_commits(revision=revision or self._branch, **self._repo), most)
            return [
                PastCommit(str(one.commit_id), one.title.strip(), one.created_at.timestamp(), one.message.strip())
                for one in found
            ]

        return self._client.ask(commits)

    def _check_branch(self) -> None:
        """Refuse to write to a tag or a commit; a branch other than the main one is looked up once."""
        if self._is_branch:
            return
        if not _COMMIT.fullmatch(self._branch):
            refs = self._client.ask(lambda api: api.list_repo_refs(**self._repo))
            self._is_branch = any(branch.name == self._branch for branch in refs.branches)
        if not self._is_branch:
            raise AuthError(  # no outage: it can still be read
                f"{self.name} can only be read",
                cause="it is not a branch",
                hint="name a branch to write to, or use it with `:r`",
            )

    def _learn(self, revision: str, states: Mapping[str, Entry | None]) -> None:
        """Keep what lies at a commit, of the last commit only.

        It never changes: where a body differs from what the Hub said of it before, the body is wrong.
        """
        if _COMMIT.fullmatch(revision):
            with self._lock:
                known = self._known[1] if self._known[0] == revision else {}
                self._known = (revision, {**states, **known})

    def _states(self, paths: Sequence[str], revision: str) -> dict[str, Entry | None]:
        """What lies at these paths, asked for once."""
        found = self.stat(paths, revision)
        return {path: found.get(path) for path in paths}

    def _missing(self, files: Sequence[Upload], revision: str) -> Sequence[Upload]:
        """Files that are not there yet; ConflictError for other bytes at one of the paths."""
        files = list({file.path: file for file in files}.values())
        states = self._states([file.path for file in files], revision)
        missing = []
        for file in files:
            entry = states[file.path]
            if entry is None:
                missing.append(file)
            elif not _is_same(entry, file):
                raise ConflictError(f"there are different bytes at {file.path} on {self.name}")
        return missing

    def _fitting(self, writes: Sequence[Write], revision: str) -> Sequence[Write]:
        """The writes that change something; ConflictError where one is built on another state."""
        states = self._states([write.path for write in writes], revision)
        for write in writes:
            if not _fits(write.token, states[write.path]):
                raise ConflictError(f"{write.path} on {self.name} is not what this was built on")
        return [write for write in writes if not _is_there(write, states[write.path])]


def opened(address: str, options: Mapping[str, str]) -> HubStorage:
    """The remote at `hf://[datasets/]owner/name[@branch]`; options: `endpoint`.

    Raises:
        UsageError: It is not such an address.
    """
    matched = _ADDRESS.fullmatch(address)
    if not matched:
        raise UsageError(
            f"{redact.address(address)} is not the address of a repo",
            hint="hf://OWNER/NAME, hf://datasets/OWNER/NAME, hf://OWNER/NAME@BRANCH, hf://buckets/OWNER/NAME",
        )
    kind, repo, branch = matched.groups()
    kind = "dataset" if kind == "datasets" else "model"
    return HubStorage(repo, kind=kind, branch=branch or MAIN, endpoint=options.get("endpoint") or None)


def _entry_of(path: str, data: bytes) -> Entry:
    return Entry(path, len(data), {"git": git_digest(len(data), [data]), "sha256": hashlib.sha256(data).hexdigest()})


def _is_there(write: Write, entry: Entry | None) -> bool:
    """Whether the write would change nothing: some clients answer that in ways of their own."""
    if write.data is None or entry is None:
        return write.data is None and entry is None
    return entry.equals(write.data) is True


def _token(entry: Entry) -> str:
    return f"{entry.digests.get('git', '')}:{entry.digests.get('sha256', '')}"


def _fits(token: str, entry: Entry | None) -> bool:
    if entry is None or token == ABSENT:
        return entry is None and token == ABSENT
    git, _, sha256 = token.partition(":")
    return entry.digests.get("sha256") == sha256 or entry.digests.get("git") == git


def _is_same(entry: Entry, file: Upload) -> bool:
    holds = entry.holds(file.size, file.sha256)
    if holds is None:  # a small file that git holds: only its git digest is known
        data = file.source if isinstance(file.source, bytes) else file.source.read_bytes()
        holds = bool(entry.equals(data))
    return holds


def _entry(info: Any) -> Entry | None:
    """A file of the client's answer; None for a folder."""
    if not hasattr(info, "blob_id"):
        return None
    digests = {"sha256": info.lfs.sha256} if info.lfs else {"git": info.blob_id}
    return Entry(str(info.path), int(info.lfs.size if info.lfs else info.size), digests)


def _checked(path: str) -> str:
    layout.check([path])
    return path
