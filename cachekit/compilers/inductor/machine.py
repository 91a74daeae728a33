"""What Inductor needs on this machine, found without importing torch: a C++ compiler, and bfloat16."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from cachekit import process
from cachekit.compilers.inductor.facts import BF16_FLAGS, CXX
from cachekit.errors import CompilerUnavailableError
from cachekit.host import cpu_features

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.health import Finding


def cxx(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """The C++ compiler that Inductor will call, `CXX` or the system's default, and the PATH to look it up on."""
    return environ.get(CXX) or ("clang++" if sys.platform == "darwin" else "g++"), environ.get("PATH")


@cache
def cxx_version(compiler: str, path: str | None = None) -> str:
    """The first line of the C++ compiler's `--version`; `path` is this process's PATH by default.

    Raises:
        CompilerUnavailableError: There is no such compiler, or it does not run.
    """
    hint = "apt-get install g++ (or set CXX to a C++ compiler)"
    found = shutil.which(compiler, path=path)
    if found is None:
        raise CompilerUnavailableError(
            f"there is no C++ compiler: {compiler!r} is not on PATH",
            cause="Inductor builds its CPU kernels with a C++ compiler",
            hint=hint,
        )
    try:
        said = process.answer([found, "--version"])
    except OSError as error:
        raise CompilerUnavailableError(
            f"the C++ compiler {compiler!r} does not run", cause=str(error), hint=hint
        ) from error
    # `g++ (Debian 12.2.0-14) 12.2.0` without the name it was called by: the same compiler has several.
    return said.partition("\n")[0].partition(" ")[2].strip()


def has_bf16() -> bool:
    """Whether the CPU computes in bfloat16."""
    return bool(BF16_FLAGS.intersection(cpu_features()))


def look(_: Config) -> Iterator[Finding]:
    """A check of `cachekit doctor`: Inductor builds its CPU kernels with a C++ compiler."""
    from cachekit.health import Finding

    name, path = cxx()
    yield Finding("ok", f"{name} {cxx_version(name, path)}")
