"""Folders of this host: which one a text names, on what kind of file system it lies, and may it be written to.

A lock on a network file system may belong to another host.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from cachekit import redact
from cachekit.errors import UsageError

MOUNTS = Path("/proc/mounts")
# As the kernel names them. FSx for Lustre is lustre; EFS, FSx for OpenZFS and for ONTAP are nfs.
NETWORK = {
    "9p": "a folder of the host",
    "afs": "AFS",
    "beegfs": "BeeGFS",
    "ceph": "CephFS",
    "cifs": "SMB",
    "glusterfs": "GlusterFS",
    "gpfs": "Spectrum Scale",
    "lustre": "Lustre (FSx)",
    "nfs": "NFS (EFS, FSx)",
    "nfs4": "NFS (EFS, FSx)",
    "ocfs2": "OCFS2",
    "gfs2": "GFS2",
    "smb3": "SMB",
    "vboxsf": "a folder of the host",
    "virtiofs": "a folder of the host",
    "wekafs": "WekaFS",
}
LOCAL = frozenset("bcachefs btrfs ext2 ext3 ext4 f2fs jfs overlay ramfs reiserfs tmpfs xfs zfs".split())  # noqa: SIM905
# Without links or without a difference between A and a: names that differ only there would be one file.
POOR = frozenset({"exfat", "fuseblk", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3", "vfat"})
PRIVATE = frozenset({"overlay", "ramfs", "tmpfs"})  # a container's own, unless it is told otherwise


class FileSystem(Struct, frozen=True):
    """Where a path lies.

    Attributes:
        kind: The kernel's name of it (`ext4`, `nfs4`); empty where it cannot be known.
        mount: Where it is mounted.
        source: What is mounted: a device, a server's export.
    """

    kind: str
    mount: str = ""
    source: str = ""

    @property
    def local(self) -> bool:
        """Certainly of this host alone. What is unknown, or served by a user's process (FUSE), is not certain."""
        return self.kind in LOCAL

    @property
    def poor(self) -> bool:
        """Names that differ only in case are one file there, or it has no links."""
        return self.kind in POOR

    @property
    def network(self) -> str:
        """What kind of shared file system it is, for people; empty where it is none that is known."""
        if self.kind.startswith("fuse"):
            return f"FUSE ({self.source or self.kind})"
        return NETWORK.get(self.kind, "")


UNKNOWN = FileSystem("")


def file_system(path: Path, mounts: str | None = None) -> FileSystem:
    """The file system of a path, which need not exist yet.

    Args:
        path: The path; links in it are followed.
        mounts: The text of /proc/mounts; read by default.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return FileSystem("")
    place = os.path.realpath(path)
    best = FileSystem("")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - source, place, kind
            continue
        source, mount, kind = _plain(fields[0]), _plain(fields[1]), fields[2]
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        # Of two on one place the later one covers the earlier. An autofs stands for what is not mounted yet.
        if inside and len(mount) >= len(best.mount) and kind not in {"autofs", "rootfs"}:
            best = FileSystem(kind, mount, source)
    return best


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def named(text: str | Path) -> Path:
    """The path that somebody names: `~` is this user's home directory, `~ann` that of ann.

    Raises:
        UsageError: The machine knows no such home directory.
    """
    user = str(text).partition("/")[0]
    if not user.startswith("~"):
        return Path(text)
    with suppress(ValueError):  # of a name that no system takes
        path = Path(os.path.expanduser(text))  # noqa: PTH111 - `Path` takes ./~ for ~
        if path.is_absolute():
            return path
    if user == "~":
        raise UsageError(f"{text} is not a path", cause=no_home(), hint="set HOME, or write the full path")
    raise UsageError(
        f"{text} is not a path",
        cause=f"this machine knows no home directory of a user {user[1:]}",
        hint=f"write the full path, or ./{text} for one here",
    )


def in_settings(text: str) -> Path:
    """The path that a setting names: variables and `~` stand for what they are, and it starts at the root.

    Raises:
        UsageError: It begins with a variable that is not set, or see `named`.
    """
    said = os.path.expandvars(text)
    if said.startswith("$"):
        variable = said.partition("/")[0]
        raise UsageError(f"{said} is not a path", cause=f"{variable} is not set", hint="write the full path")
    return named(said).absolute()


def hub_home() -> Path:
    """Where the Hub's client keeps a token, models and data [huggingface_hub: HF_HOME, XDG_CACHE_HOME].

    Raises:
        UsageError: See `in_settings`.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return in_settings(os.environ.get("HF_HOME") or f"{cache}/huggingface")


def no_home() -> str:
    """Why this user has no home directory, once it is known that there is none."""
    home = os.environ.get("HOME")
    if home is not None:
        return f"HOME={home!r} is not an absolute path"
    return "HOME is not set, and the system does not know this user's home directory"


def local_folder(text: str | Path) -> Path:
    """The local folder that somebody names, as a path or as `file://…`, which is how other tools' variables name it.

    Raises:
        UsageError: It is somewhere else, in a bucket for one.
    """
    scheme = None if isinstance(text, Path) else re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() != "file":
        said = redact.address(str(text))
        raise UsageError(
            f"{said} is not a local folder",
            cause=f"{scheme[1]}:// does not name a folder on this host",
            hint=f"name a folder on a local disk, or ./{said} for one here",
        )
    return file_url(str(text) if "://" in str(text) else str(text).replace(":", "://", 1))


def file_url(url: str) -> Path:
    """The path that a `file://` address means; one with two slashes, whose first step is taken for a host, as well."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"}:
        path = f"/{parts.netloc}{path}"
    return Path(os.path.normpath(path))


def existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def may_write(folder: Path) -> bool:
    """Whether this user may make files in a folder that is there. Nothing is written to find out."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return False
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def barred(path: Path) -> bool:
    """Whether nothing in the folder may be executed, nor loaded as a library."""
    return bool(os.statvfs(existing(path)).f_flag & os.ST_NOEXEC)


def check_ends(path: Path, variable: str) -> None:
    """See that whoever reads a path comes to an end: a library is about to, and would wait on a pipe for ever.

    Args:
        path: The file; it need not be there.
        variable: Of the environment, that names it.

    Raises:
        UsageError: It is a pipe, a socket or a device other than /dev/null.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # the library says so itself
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or path.samefile(os.devnull)):
        raise UsageError(f"{path} is not a regular file", hint=f"set {variable} to a file, or unset it")
