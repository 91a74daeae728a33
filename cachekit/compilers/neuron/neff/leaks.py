"""What a NEFF would tell the public: paths on the host that compiled it, and the names of people and machines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cachekit.compilers.neuron.neff.container import plain
from cachekit.compilers.neuron.neff.members import DEFAULT, Limits, Member

SHOWN = 20  # paths that are kept for people
COUNTED = 5_000  # distinct ones that are told apart
LONGEST = 1_024  # bytes of one path
# Where people and clusters keep things. Only these count without a file's ending: a name of an operation in debug
# information ("/layer.3/aten.add") looks like a path as well.
ROOTS = (
    b"home|Users|root|opt|usr|tmp|var|mnt|media|srv|efs|fsx|shared|scratch|workspace|workplace|local|nfs|lustre|gpfs"
    b"|private|Volumes|builds|codebuild|runner|ebs|nvme|net|codefs|nobackup"
)
ENDINGS = b"py|pyc|cc|cpp|cu|h|hpp|so|neff|pb|json|yaml|yml|txt|log|hlo|pt|npy|bin|safetensors|ipynb|sh"
_PART = rb"[A-Za-z0-9_.@+~%=,#^-]{1,255}"
# No look at what stands before: in protobuf that is the length, which may well be a letter.
_PATH = re.compile(rb"/(?:" + ROOTS + rb")(?:/" + _PART + rb"){1,64}")
# Elsewhere the path must end as a file's does, and begin after what cannot belong to a longer one. The slash comes
# first: the search for a fixed character is ten times as fast as one that looks back at every byte.
_FILE = re.compile(
    rb"/(?<![A-Za-z0-9_.@+~%=,#^/-]/)"
    + _PART
    + rb"(?:/"
    + _PART
    + rb"){1,63}\.(?:"
    + ENDINGS
    + rb")(?!\.?[A-Za-z0-9_@+~%=,#^/-])"
)
_USER = re.compile(r"/(?:home|Users)/([^/]+)")
_HOST = re.compile(r"(?<![A-Za-z0-9])ip-[0-9]{1,3}-[0-9]{1,3}-[0-9]{1,3}-[0-9]{1,3}(?![0-9])")  # EC2's own names
_HOST_BYTES = re.compile(_HOST.pattern.encode())
# Owners of tar members that say nothing about anybody.
NOBODIES = frozenset({"", "root", "nobody", "nogroup", "wheel"})
# Device code and weights: large, and without a word in them.
BINARY = (".bin", ".npy")
_PUBLIC = re.compile(r"^/usr/|/site-packages/|/dist-packages/")


@dataclass(frozen=True, slots=True)
class Leak:
    """A path of the host that compiled, and the first place that has it: `header`, or a member's name."""

    path: str
    where: str


@dataclass(frozen=True, slots=True)
class Leaks:
    """What was found. The paths that say most about people come first, those of installed packages last."""

    paths: tuple[Leak, ...] = ()
    count: int = 0  # distinct paths, of which `paths` are the first
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    complete: bool = True  # whether everything was looked through

    def __bool__(self) -> bool:
        return bool(self.count or self.users or self.hosts)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "paths": [{"path": leak.path, "where": leak.where} for leak in self.paths],
            "count": self.count,
            "users": list(self.users),
            "hosts": list(self.hosts),
            "complete": self.complete,
        }


class Scanner:
    """Looks through a file's words as they pass by."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._left = limits.scanned
        self._found: dict[str, str] = {}
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._complete = True

    def words(self, text: str, where: str) -> None:
        """Look through a short text, of which anything with a slash counts as a path."""
        if "/" in text:
            self._add(text, where)
        self._hosts.update(_HOST.findall(text))

    def member(self, member: Member, pieces: Iterable[bytes]) -> None:
        """Look through a member's body, as far as the limits go.

        Raises:
            NeffError: The body cannot be read.
        """
        self._owners(member)
        self.body(member.name, member.size, pieces)

    def body(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """Look through any file's bytes, as far as the limits go."""
        left = min(self._left, self._limits.scanned_binary if name.endswith(BINARY) else self._left)
        seen = 0
        tail = b""
        if left > 0:
            for piece in pieces:
                seen += len(piece)
                tail = self._look(tail + piece, plain(name), last=seen >= size)
                if seen >= left or len(self._found) >= COUNTED:
                    break
        self._left -= seen
        self._complete = self._complete and (seen >= size or name.endswith(BINARY))

    def found(self, leaks: Leaks) -> None:
        """Add what was found elsewhere: in a file that lies in this one."""
        for leak in leaks.paths:
            self._add(leak.path, leak.where)
        self._users.update(leaks.users)
        self._hosts.update(leaks.hosts)
        self._complete = self._complete and leaks.complete

    def stopped(self) -> None:
        """Note that not everything came by."""
        self._complete = False

    def leaks(self) -> Leaks:
        """What was found until now."""
        ordered = sorted(self._found, key=lambda path: (not _USER.search(path), bool(_PUBLIC.search(path)), path))
        return Leaks(
            paths=tuple(Leak(path, self._found[path]) for path in ordered[:SHOWN]),
            count=len(ordered),
            users=tuple(sorted(self._users)),
            hosts=tuple(sorted(self._hosts)),
            complete=self._complete,
        )

    def _look(self, window: bytes, where: str, *, last: bool) -> bytes:
        """Search a window; returns its end, which the next one begins with because a path may go on there."""
        # A path that begins near the end may go on after it, so it waits for the next window.
        edge = len(window) if last else max(len(window) - LONGEST, 0)
        after = edge
        for pattern in (_PATH, _FILE):
            for match in pattern.finditer(window):
                if match.start() < edge:
                    self._add(match.group()[:LONGEST].decode(), where)
                    after = max(after, match.end())
        if b"ip-" in window and len(self._hosts) < COUNTED:
            self._hosts.update(match.group().decode() for match in _HOST_BYTES.finditer(window))
        # With one byte before it, which says whether something begins there.
        return b"" if last else window[max(after - 1, 0) :]

    def _add(self, path: str, where: str) -> None:
        if len(self._found) < COUNTED:
            path = plain(path, LONGEST)
            self._found.setdefault(path, where)
            self._users.update(plain(user) for user in _USER.findall(path))

    def _owners(self, member: Member) -> None:
        if len(self._users) < COUNTED:
            self._users.update(plain(name) for name in (member.owner, member.group) if name not in NOBODIES)
