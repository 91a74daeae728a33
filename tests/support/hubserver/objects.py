"""Files by content below one folder. What is visible is whole: bytes are written aside, checked, then renamed."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from pathlib import Path


class WrongDigestError(ValueError):
    """The bytes are not those that were announced."""


class Objects:
    """A folder `ab/abcdef…` of files, named by whatever names them (SHA-256, or a Xet hash)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scratch = folder / "incoming"
        self._scratch.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def size(self, name: str) -> int:
        return self.path(name).stat().st_size

    def put(self, pieces: Iterable[bytes], name: str | None = None, *, check: bool = True, size: int = -1) -> str:
        """Keep the bytes under their SHA-256, or under `name`; returns the name.

        Raises:
            WrongDigestError: The bytes or their number are not what `name` and `size` say; nothing is kept.
        """
        temporary = self._scratch / uuid.uuid4().hex
        digest, received = hashlib.sha256(), 0
        try:
            with temporary.open("wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    received += len(piece)
                    file.write(piece)
            actual = digest.hexdigest()
            if (check and name not in {None, actual}) or size not in {-1, received}:
                raise WrongDigestError(f"expected {name} of {size} bytes, got {actual} of {received}")
            name = name or actual
            self.path(name).parent.mkdir(exist_ok=True)
            temporary.replace(self.path(name))
        finally:
            temporary.unlink(missing_ok=True)
        return name

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()


def git_blob(data: bytes) -> str:
    """The object id that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def lfs_pointer(sha256: str, size: int) -> bytes:
    """What git holds for a file of git LFS."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
