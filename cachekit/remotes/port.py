"""What cachekit asks of a place that a team shares: a folder, a Hub repo, a bucket. Adapters implement it.

A remote holds files under paths with `/`. Artifacts are written once and never changed: whoever finds other bytes at a
path puts its own elsewhere (`publish`). Only documents (records, leases, the card) change, by compare-and-swap.

Every call is bounded in time, and raises errors of `cachekit.errors` only; a path that is none of
`record.RelativePath` is a UsageError. Retrying, merging and waiting are not an adapter's job: `publish` and `lease` do
that for all of them alike.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from cachekit import files
from cachekit.remotes.notes import Copies

if TYPE_CHECKING:
    from cachekit.health import Finding

Tell = Callable[[int], None]  # bytes that went over the line since the last call
LATEST = 50  # commits that are looked at: a page
ABSENT = ""  # the token of a document that is not there
ANY = "*"  # of whatever is there: of a document that says nothing but its name, on a remote that compares nothing
SOON_SENT = 1 << 20  # bytes that take as long to send, at 1 Gb/s, as a far remote takes to say whether they are there


class Limits(Struct, frozen=True):
    """How long a remote may take.

    Attributes:
        connect: Seconds to reach it.
        read: Seconds without a byte, or for an answer to begin.
        commit: Seconds for an answer to a commit; a Hub works up to 60 s on a large one.
    """

    connect: float = 3.0
    read: float = 8.0
    commit: float = 75.0


class Entry(Struct, frozen=True):
    """A file on a remote.

    Attributes:
        path: Its path.
        size: In bytes.
        digests: What the remote knows of its contents without reading them, in hex: `sha256`, `git` (SHA-1 of the git
            blob). May be empty.
        at: When it was put there, in seconds since the epoch by the remote's clock; 0 where that is not said.
    """

    path: str
    size: int
    digests: Mapping[str, str] = {}
    at: float = 0.0

    def holds(self, size: int, sha256: str) -> bool | None:
        """Whether its bytes are those of this digest; None where only reading them would tell."""
        if self.size != size:
            return False
        known = self.digests.get("sha256")
        return None if known is None else known == sha256

    def equals(self, data: bytes) -> bool | None:
        """Whether its bytes are these; None where only reading them would tell."""
        if self.size != len(data):
            return False
        if "sha256" in self.digests:
            return self.digests["sha256"] == hashlib.sha256(data).hexdigest()
        if "git" in self.digests:
            return self.digests["git"] == git_digest(len(data), [data])
        return None


class Document(Struct, frozen=True):
    """A small file that was read, and what names this state of it.

    Attributes:
        data: Its bytes.
        token: Opaque; what a write on top of it must name.
    """

    data: bytes
    token: str


class Upload(Struct, frozen=True):
    """A file to be put on a remote.

    Attributes:
        path: Where.
        size: In bytes.
        sha256: Of its bytes.
        source: The bytes, or a local file that has them.
    """

    path: str
    size: int
    sha256: str
    source: Path | bytes

    def pieces(self, size: int) -> Iterator[bytes]:
        """The bytes of the source as it is now, in pieces of so many.

        Raises:
            OSError: It cannot be read.
        """
        if isinstance(self.source, bytes):
            yield from (self.source[at : at + size] for at in range(0, len(self.source), size))
            return
        with self.source.open("rb") as opened:
            while piece := opened.read(size):
                yield piece


class Write(Struct, frozen=True):
    """A document to be written.

    Attributes:
        path: Where.
        data: Its new bytes; None removes it.
        token: Of the state that it is built on; `ABSENT` where there must be none yet.
    """

    path: str
    data: bytes | None
    token: str


class Commit(Struct, frozen=True):
    """Files and documents that become visible together, or in this order where the remote has no transactions.

    Attributes:
        title: One line for people, with an id that no other change has: by it a commit whose answer was lost is found.
        files: Artifacts, uploaded before.
        writes: Documents.
        message: More about it, which the history keeps where there is one.
    """

    title: str
    files: Sequence[Upload] = ()
    writes: Sequence[Write] = ()
    message: str = ""


class PastCommit(Struct, frozen=True):
    """A change that was made.

    Attributes:
        revision: The state with it.
        title, message: See `Commit`.
        at: When, in seconds since the epoch by the remote's clock.
    """

    revision: str
    title: str
    at: float = 0.0
    message: str = ""


class Repo(Struct, frozen=True):
    """A place for a team's cache that cachekit can make.

    Attributes:
        repo: Its name: `team/cache`.
        kind: What it is there: `model` or `dataset`.
        url: For people.
        private: Only its owners see it.
        new: It was made just now.
        owned: Its owner is the token's user, or an organisation of this user.
        team: It is an organisation: others can write there as well.
    """

    repo: str
    kind: str
    url: str
    private: bool
    new: bool = False
    owned: bool = True
    team: bool = False


class Setup(Protocol):
    """How a place for a team's cache is made: a module with these functions.

    Each may raise UsageError: no place can have this name or kind; and RemoteError, AuthError, as `Storage` does.
    """

    def place_of(self, repo: str, kind: str) -> str:
        """What people write for the place: `hf://team/cache`."""

    def look(self, repo: str, *, kind: str) -> Repo | None:
        """The place; None where there is none, or where the token may not see it."""

    def create(self, repo: str, *, kind: str, private: bool) -> Repo:
        """Make the place, if there is none; one that is there stays as it is, also if it is public."""


class Storage(Protocol):
    """A place that is shared. Adapters inherit from it, and cannot be made while they lack one of the abstract calls.

    Each call may raise RemoteError: the place cannot be reached (in time); and AuthError: the token is missing, wrong,
    or not enough, or the place is not there, which a Hub answers alike.

    Attributes:
        name: As people write it: `hf://team/cache`, `s3://bucket/prefix`, `/mnt/efs/cache`.
        compares: It has compare-and-swap: of two writes on the same token one fails. Without it the last one wins,
            and leases are taken another way.
        scarce: Commits are few (a Hub repo takes about 128 an hour): leases lie elsewhere where they can, signs of life
            are few, and everything is in one commit.
        batch: Paths that one request of `stat` takes; 1 where each costs one.
        joins: Bytes of new files that a change takes along in its own request.
        lines: Ranges of one large file that are worth fetching at once: connections to a server far away.
        public: Anybody can read it, as far as `revision` found out.
        private: Only those to whom it belongs can read it, as far as `revision` found out.
        staging: Where on this host its client keeps what it sends, for people; empty where that is nowhere.
        untold: Why nobody knows who may write there as long as the settings do not say so: `stranger` cannot find it
            out. Empty where that can, as far as `revision` found out.
        copies: Documents as they were last read or written there; who opens the remote for a run says where they are.
    """

    name: str
    compares: bool
    scarce: bool = False
    batch: int = 1
    joins: int = -1
    lines: int = 1
    public: bool = False
    private: bool = False
    staging: str = ""
    untold: str = ""
    copies: Copies = Copies()

    def heeds(self, token: str) -> bool:
        """Whether a write on this state is refused for certain where another lies there, and costs what a look does.

        Then a push builds on what its store last saw, however long ago, and looks where that is no longer so. To find
        that out may write something that changes nothing.

        Args:
            token: Of a document, or `ABSENT`.
        """
        return False

    @abstractmethod
    def revision(self) -> str:
        """The present state, for reading and for building on: a commit. Empty where there are no versions."""

    @abstractmethod
    def stranger(self, memory: Path | None = None) -> str:
        """Why others than this user, and those whom this user shares with, may write there; empty where they may not.

        Args:
            memory: A folder of the store for what is remembered between runs; None remembers nothing.
        """

    def known_stranger(self, memory: Path | None = None) -> str:
        """What `stranger` would say, as far as that costs no request; empty where only a request tells more."""
        return ""

    def place(self) -> str:
        """What names the place itself, however its address was typed: what is remembered against a place goes by it."""
        return self.name

    def check(self, paths: Sequence[str]) -> None:
        """See whose files are, without reading them, where each may be somebody else's: then reading it would fail.

        Raises:
            UntrustedError: `stranger` found that all is theirs to whom the place belongs, and one of these is not.
        """
        return None  # noqa: RET501 - not abstract

    @abstractmethod
    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those of the files that exist, in as few requests as the remote allows, however many are asked for.

        No revision means the present one, for all calls that only read.
        """

    @abstractmethod
    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """All files below a folder, in any order; none where there is no such folder."""

    @abstractmethod
    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """A document whole; None where it is not there.

        Raises:
            TooLargeError: It has more than `limit` bytes; no more than that were read. Names the token of its state.
        """

    @abstractmethod
    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes of a file from `start` on, as they come in, in pieces of at most a few MB.

        Whoever reads compares the whole with its digest, and goes on with a new call after an error.

        Args:
            path: The file.
            revision: The state of the remote.
            start: The first byte.
            end: The byte after the last one; its end where None. A file that is shorter ends before that.

        Raises:
            RemoteError: The line was cut, too, or nothing came for `Limits.read` seconds.
            FileNotFoundError: It is not there.
        """

    def otherwise(self, path: str, revision: str, size: int) -> Iterator[bytes]:
        """The bytes of a file once more, by another way where there is one: those that came were wrong.

        Raises:
            RemoteError, FileNotFoundError: As `chunks`.
        """
        return self.chunks(path, revision)

    def expect(self, files: Sequence[Entry], revision: str) -> None:
        """Hear which files are about to be fetched, with their digests: one question may spare one for each of them.

        What is not known afterwards is asked for then; so this raises nothing.
        """
        return None  # noqa: RET501 - not abstract

    @abstractmethod
    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """Make artifacts durable, before the change that names them; what is there already is not sent again.

        On a remote with commits they stay invisible until then, elsewhere they appear at once, each whole.

        Raises:
            ConflictError: Other bytes lie at one of the paths; nothing was overwritten.
            IntegrityError: A source is not what its digest says, as far as that is seen here.
            BusyError: What was sent need not be sent again.
            OSError: A source cannot be read.
        """

    @abstractmethod
    def commit(self, change: Commit, revision: str) -> str:
        """Make a change visible, on top of `revision` and the tokens of its documents.

        Returns:
            The new revision.

        Raises:
            ConflictError: Something of it changed meanwhile; nothing of it is visible. Where one revision stands for
                all of it, that can be anything.
            UncertainError: Nobody knows whether it happened.
            BusyError, RemoteError, AuthError: It did not happen.
        """

    def latest(self, revision: str = "", most: int = LATEST) -> Sequence[PastCommit]:
        """The last changes up to a state, the newest first; none where the remote keeps no history.

        There, what a change wrote must be looked for to know whether it happened.

        Args:
            revision: The state.
            most: How many; a page is one request.
        """
        return ()

    # For `cachekit doctor`; none of these asks the remote.

    def server(self) -> str:
        """The address of the server with whose clock this host's must agree; empty where there is none."""
        return ""

    def login(self, *, writable: bool) -> Finding | None:
        """How it stands with the token that this host has for the remote; None where it needs no token.

        Args:
            writable: It is to be written as well.
        """
        return None

    def trouble(self, *, writable: bool) -> Finding | None:
        """What is wrong with it on this host, with the repair; None where nothing is.

        Args:
            writable: It is to be written as well.
        """
        return None


def in_clear(server: str) -> str:
    """Why nobody's word counts that comes from a server: others on the way may write it; empty with TLS, or no way."""
    parts = urlsplit(server)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    with suppress(ValueError):
        if ip_address(host).is_loopback:
            return ""
    return "it is read over http://, and others on the network may alter that" if parts.scheme == "http" else ""


def reads_as(storage: Storage, path: str, sha256: str) -> bool:
    """Whether a file's bytes, read now, have this digest; not where there is none any more."""
    try:
        return files.digest_of(storage.chunks(path, ""))[0] == sha256
    except FileNotFoundError:
        return False


def git_digest(size: int, pieces: Iterable[bytes]) -> str:
    """The name that git gives to the bytes of a file."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
