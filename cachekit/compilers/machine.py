"""This machine as it goes into keys, and where things lie: the first part of the answer of `cachekit doctor`."""

from __future__ import annotations

import platform
import sys
from typing import Any

from msgspec import Struct

from cachekit import __version__
from cachekit.compilers import registry
from cachekit.compilers.adapter import CachePlace
from cachekit.config import Config
from cachekit.errors import CachekitError


class Machine(Struct, frozen=True, kw_only=True):
    """This machine as cachekit sees it.

    Attributes:
        home: The store's folder.
        compiler_cache_dir: Where compilers work.
        compiler: The compiler that compiles here; empty if none does.
        problem: Why nothing can compile here; empty if something can.
        directory: The compiler's folder on a remote: `inductor-2.13.0`.
        toolchain: Versions that are part of every key.
        target: What the compiler compiles for, which is part of every key as well.
        bf16: Whether the target trains in bfloat16.
        other_versions: Versions that are noted in records, and in no key.
        places: Where compilers keep their own caches on this host.
    """

    cachekit: str = __version__
    python: str = f"{platform.python_implementation()} {platform.python_version()}"
    executable: str = sys.executable
    platform: str
    home: str
    compiler_cache_dir: str
    compiler: str = ""
    problem: str = ""
    directory: str = ""
    toolchain: dict[str, Any] = {}
    target: dict[str, Any] = {}
    bf16: bool | None = None
    other_versions: dict[str, Any] = {}
    places: dict[str, CachePlace]


def machine(config: Config) -> Machine:
    """Look at this machine; the answer's `problem` says what could not be found out."""
    found: dict[str, Any] = {}
    try:
        compiler = registry.select("auto", config.compiler)
        found = {"compiler": compiler.name}
        fingerprint = compiler.fingerprint()
        found |= {
            "directory": fingerprint.directory,
            "toolchain": dict(fingerprint.toolchain),
            "target": dict(fingerprint.target),
            "bf16": fingerprint.bf16,
            "other_versions": dict(fingerprint.soft),
        }
    except CachekitError as error:
        found["problem"] = "; ".join(filter(None, [error.message, error.hint]))
    return Machine(
        platform=platform.platform(),
        home=str(config.home),
        compiler_cache_dir=str(config.compiler_cache_dir),
        places={name: place for adapter in registry.every() for name, place in adapter.places().items()},
        **found,
    )
