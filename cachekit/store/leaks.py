"""What a file would tell the public: paths on the host that made it, names of people and machines, known secrets."""

from __future__ import annotations

import io
import json
import mmap
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from cachekit.files import PIECE, pieces
from cachekit.redact.names import secrets_of
from cachekit.store.archive import Stored, UnsafeArchiveError, members
from cachekit.text import one_line

SHOWN = 20  # paths that are kept for people
COUNTED = 5_000  # distinct ones that are told apart
LONGEST = 1_024  # bytes of one path
SCANNED = 256 << 20  # bytes that are searched, in all
SCANNED_BINARY = 1 << 20  # and in one member of device code or weights
# Where people and clusters keep things. Only these count without a file's ending: a name of an operation in debug
# information ("/layer.3/aten.add") looks like a path as well.
ROOTS = (
    b"home|Users|root|opt|usr|tmp|var|mnt|media|srv|efs|fsx|shared|scratch|workspace|workplace|local|nfs|lustre|gpfs"
    b"|dev/shm|private|Volumes|builds|codebuild|runner|ebs|nvme|net|codefs|nobackup"
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
# How what is packed begins: RFC 1952, a member of a zip, RFC 8878; RFC 1950, of the levels that zlib has.
GZIP, ZIP, ZSTANDARD = b"\x1f\x8b\x08", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
ZLIB = rb"\x78[\x01\x5e\x9c\xda]"  # a pattern, as it has four
FIRST = 4 << 10  # bytes that are tried first: most of what looks packed is not
INFLATED = 16 << 30  # bytes that are unpacked of one file: as many as of a NEFF
LAYERS = 3  # of what is packed in something packed
NESTED = 32 << 20  # bytes of each that are looked through for the next layer
_PUBLIC = re.compile(r"^/usr/|/site-packages/|/dist-packages/")


class Leak(Struct, frozen=True):
    """A path of the host that made the file, and the first place that has it: a member's name, or `header`."""

    path: str
    where: str


class Leaks(Struct, frozen=True):
    """What was found. The paths that say most about people come first, those of installed packages last."""

    paths: tuple[Leak, ...] = ()
    count: int = 0  # distinct paths, of which `paths` are the first
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    complete: bool = True  # whether everything was looked through

    def __bool__(self) -> bool:
        return bool(self.count or self.users or self.hosts)


class Scanner:
    """Looks through a file's words as they pass by."""

    def __init__(self) -> None:
        self._left = SCANNED
        self._found: dict[str, str] = {}
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._complete = True

    def words(self, text: str, where: str) -> None:
        """Look through a short text, of which anything with a slash counts as a path."""
        if "/" in text:
            self._add(text, where)
        self._hosts.update(_HOST.findall(text))

    def owners(self, *names: str) -> None:
        """Take the names of a file's owner and group."""
        if len(self._users) < COUNTED:
            self._users.update(one_line(name) for name in names if name not in NOBODIES)

    def body(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """Look through a file's bytes, as far as the limits go."""
        left = min(self._left, SCANNED_BINARY if name.endswith(BINARY) else self._left)
        seen = 0
        tail = b""
        if left > 0:
            for piece in pieces:
                seen += len(piece)
                tail = self._look(tail + piece, one_line(name), last=seen >= size)
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
            path = one_line(path[:LONGEST])
            self._found.setdefault(path, where)
            self._users.update(one_line(user) for user in _USER.findall(path))


def of_file(path: Path) -> Leaks:
    """What a file would tell; nothing where it cannot be read."""
    scanner = Scanner()
    with suppress(OSError), path.open("rb") as raw:
        size = path.stat().st_size
        scanner.body(path.name, size, pieces(raw, size))
    return scanner.leaks()


def of_archive(path: Path, packed: Callable[[Stored], Leaks | None] = lambda _: None) -> Leaks:
    """What the files in an archive would tell, as far as it can be read.

    Args:
        path: The archive.
        packed: What a member would tell that is packed itself, so that no word of it is seen from outside; None for a
            member that is not.
    """
    scanner = Scanner()
    with suppress(OSError, UnsafeArchiveError), path.open("rb") as raw:
        for stored in members(path):
            if (inside := packed(stored)) is not None:
                scanner.found(inside)
            else:
                raw.seek(stored.offset)
                scanner.body(stored.name, stored.size, pieces(raw, stored.size))
    return scanner.leaks()


def told(files: Iterable[Path], said: Mapping[str, object], variables: Mapping[str, str]) -> frozenset[str]:
    """The variables whose secret values stand in files, or in values that go with them, and where.

    Args:
        files: What is kept.
        said: What is said of it, as JSON values by field.
        variables: Of this environment, and others that a compile was given.

    Returns:
        `HF_TOKEN in hard.command`, `HF_TOKEN in a compiled file`.

    Raises:
        OSError: A file cannot be read.
    """
    secrets = secrets_of(variables)
    wanted = {name: value.encode("utf-8", "surrogateescape") for name, value in secrets.items()}
    found = set()
    for field, value in said.items():
        words = json.dumps({field: value}, ensure_ascii=False, default=str)
        # A field's own name may be the secret.
        shown = field.partition(".")[0] if any(secret in field for secret in secrets.values()) else one_line(field)
        for name, secret in secrets.items():
            if json.dumps(secret, ensure_ascii=False)[1:-1] in words:
                found.add(f"{name} in {shown}")
    for path in files if wanted else ():
        found |= {f"{name} in a compiled file" for name in holds(path, wanted)}
    return frozenset(found)


def holds(path: Path, wanted: Mapping[str, bytes]) -> set[str]:
    """The names of those texts that stand in a file, as they are or packed: by gzip, zlib or Zstandard, or in a zip.

    Raises:
        OSError: It cannot be read.
    """
    search = _Search(wanted)
    with path.open("rb") as stream:
        if wanted and path.stat().st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                search.through(raw, LAYERS)
    return search.found


class _Search:
    """Looks for texts in what a file has in it, packed or not. What only looks packed ends with its first bytes.

    Args:
        wanted: See `holds`.
    """

    def __init__(self, wanted: Mapping[str, bytes]) -> None:
        self.found: set[str] = set()
        self._wanted = wanted
        self._left = INFLATED

    def through(self, raw: mmap.mmap | bytes, layers: int) -> None:
        """Look through bytes, and through what is packed in them, so many layers deep."""
        self.found.update(name for name, value in self._wanted.items() if raw.find(value) >= 0)
        for begins, unpack in _PACKED if layers else ():
            for found in re.finditer(begins, raw):
                if self._left <= 0:
                    return
                self._through_pieces(unpack(raw, found.start()), layers - 1)

    def _through_pieces(self, unpacked: Iterator[bytes], layers: int) -> None:
        kept, tail, longest = bytearray(), b"", max(map(len, self._wanted.values()))
        for piece in unpacked:
            window = tail + piece
            self.found.update(name for name, value in self._wanted.items() if value in window)
            tail = window[-longest:]
            kept += piece[: NESTED - len(kept)]
            self._left -= len(piece)
            if self._left <= 0:
                break
        if kept:
            self.through(bytes(kept), layers)


def _inflated(raw: mmap.mmap | bytes, at: int, form: int) -> Iterator[bytes]:
    inflater, held, length = zlib.decompressobj(form), b"", FIRST
    with suppress(zlib.error):
        while not inflater.eof and (held or at < len(raw)):
            if not held:
                held, at, length = raw[at : at + length], at + length, PIECE
            yield inflater.decompress(held, PIECE)
            held = inflater.unconsumed_tail


def _member(raw: mmap.mmap | bytes, at: int) -> Iterator[bytes]:
    """A member of a zip, behind its header [APPNOTE.TXT 4.3.7]."""
    sizes = raw[at + 26 : at + 30]
    start = at + 30 + int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
    return _inflated(raw, start, -zlib.MAX_WBITS)


def _zstandard(raw: mmap.mmap | bytes, at: int) -> Iterator[bytes]:
    try:
        import zstandard  # whoever packed it has it in this environment
    except ImportError:
        return
    source = raw if isinstance(raw, mmap.mmap) else io.BytesIO(raw)
    source.seek(at)
    reader = zstandard.ZstdDecompressor().stream_reader(source, closefd=False)
    with suppress(zstandard.ZstdError):
        while piece := reader.read(PIECE):
            yield piece


_PACKED: tuple[tuple[bytes, Callable[[mmap.mmap | bytes, int], Iterator[bytes]]], ...] = (
    (re.escape(GZIP), partial(_inflated, form=zlib.MAX_WBITS | 16)),  # zlib's word for gzip
    (ZLIB, partial(_inflated, form=zlib.MAX_WBITS)),
    (re.escape(ZIP), _member),
    (re.escape(ZSTANDARD), _zstandard),
)
