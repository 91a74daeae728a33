"""The Neuron Persistent Cache: `<root>/neuronxcc-<version>/MODULE_<graph>+<flags>/` and what happens in it.

Follows: layout, file names, order (`model.done` last), root (`--cache_dir`, NEURON_COMPILE_CACHE_URL, default), the
lock without owner (a zero-byte file whose existence is the lock), method names as optimum-neuron and NxD call them.
Invented: the default root of a test (NEURON_SDK_DEFAULT_ROOT), and that files are copied in place, so that a kill
leaves half of one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from neuronxcc import __version__ as compiler_version

HLO = "model.hlo_module.pb"
NEFF, DONE, LOG, FLAGS, LOCK = "model.neff", "model.done", "model.log", "compile_flags.json", HLO + ".lock"
DEFAULT = "/var/tmp/neuron-compile-cache"


class CacheUrl:
    """Where a cache is."""

    def __init__(self, url: str, url_type: str = "fs") -> None:
        self.url = url.removeprefix("file://")
        self.url_type = url_type

    @staticmethod
    def get_cache_url(cache_dir: str | None = None) -> CacheUrl:
        """Resolve the root: the argument (of `--cache_dir`), the variable, the default."""
        default = os.environ.get("NEURON_SDK_DEFAULT_ROOT", DEFAULT)
        url = cache_dir or os.environ.get("NEURON_COMPILE_CACHE_URL") or default
        return CacheUrl(url, "s3" if url.startswith("s3://") else "fs")

    def is_s3(self) -> bool:
        """Whether it is a bucket."""
        return self.url_type == "s3"


@dataclass
class CacheEntry:
    """What `try_lookup_for_compile` hands out."""

    key: str
    exists: bool


class CompileCache:
    """What callers may do with a cache."""

    cache_type = "base"

    def __init__(self, cache_url: CacheUrl) -> None:
        self.cache_url = cache_url
        self.cache_path = cache_url.url


class CompileCacheS3(CompileCache):
    """A cache in a bucket: not stood in for."""

    cache_type = "s3"

    def __init__(self, cache_url: CacheUrl) -> None:
        raise NotImplementedError("the stand-in has no S3 cache")


class CompileCacheFs(CompileCache):
    """A cache in a folder."""

    cache_type = "fs"

    def get_cache_dir(self, model_hash: str, compile_flags_str: str) -> tuple[str, str]:
        """The folder of a graph compiled with some flags (their hash), and its name."""
        key = f"MODULE_{model_hash}+{compile_flags_str}"
        return self.get_cache_dir_with_cache_key(key), key

    def get_cache_dir_with_cache_key(self, cache_key: str) -> str:
        """The folder of that name, for this compiler."""
        return f"{self.cache_path}/neuronxcc-{compiler_version}/{cache_key}"

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return Path(path).exists()

    def remove(self, path: str) -> None:
        """Remove a file or a folder."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def upload_file(self, cache_path: str, src_path: str) -> None:
        """Copy a file into the cache."""
        Path(cache_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(src_path, cache_path)

    def upload_string_to_file(self, cache_path: str, data: str) -> None:
        """Write a file of the cache."""
        Path(cache_path).parent.mkdir(parents=True, exist_ok=True)
        Path(cache_path).write_text(data)

    def download_file(self, filename: str, dst_path: str) -> None:
        """Copy a file out of the cache."""
        shutil.copyfile(filename, dst_path)

    def download_file_to_string(self, filename: str, limit: int | None = None) -> str:
        """Read a file of the cache."""
        return Path(filename).read_text(errors="replace")[:limit]

    def download_artifacts(self, parent: str, dst: str) -> None:
        """Copy an entry out of the cache."""
        shutil.copytree(parent, dst, dirs_exist_ok=True)

    def hlo_acquire_lock(self, h: str) -> bool:
        """Take the lock of a graph; False if someone has it."""
        Path(h).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(f"{h}.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            return False
        return True

    def hlo_release_lock(self, h: str) -> None:
        """Give the lock of a graph back."""
        Path(f"{h}.lock").unlink(missing_ok=True)

    @contextmanager
    def try_lookup_for_compile(self, hlo: str) -> Iterator[CacheEntry | None]:
        """Hand out an entry to compile, with its lock held; None if another process has it."""
        entry = Path(hlo).parent
        if not self.hlo_acquire_lock(hlo):
            yield None
            return
        try:
            yield CacheEntry(str(entry), (entry / DONE).exists())
        finally:
            self.hlo_release_lock(hlo)

    def get_hlos(self, failed_neff_str: str = "") -> tuple[list[str], list[str], list[str], list[str]]:
        """Every graph of this compiler's folder: to do, locked, done, failed."""
        todo, locked, done, failed = [], [], [], []
        for path in sorted(Path(self.get_cache_dir_with_cache_key("")).glob(f"MODULE_*/{HLO}")):
            entry, name = path.parent, str(path)
            if (entry / DONE).exists():
                done.append(name)
            elif (entry / LOG).exists():
                failed.append(name)
            elif (entry / LOCK).exists():
                locked.append(name)
            else:
                todo.append(name)
        return todo, locked, done, failed


def create_compile_cache(cache_url: CacheUrl) -> CompileCache:
    """The cache at a place."""
    return CompileCacheS3(cache_url) if cache_url.is_s3() else CompileCacheFs(cache_url)
