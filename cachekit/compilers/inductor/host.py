"""This machine as Inductor sees it, found without importing torch: versions, C++ compiler, instruction set, GPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cachekit.compilers.inductor.facts import BF16_FLAGS, CXX, ISA_FLAGS
from cachekit.errors import INSTALL, CompilerUnavailableError


def package_version(name: str) -> str:
    """The installed version of a package that must be there.

    Raises:
        CompilerUnavailableError: It is not installed; says which extra brings it.
    """
    found = optional_version(name)
    if not found:
        raise CompilerUnavailableError(f"{name} is not installed", hint=INSTALL)
    return found


def optional_version(name: str) -> str:
    """The installed version of a package; empty where there is none."""
    for folder, version_there in _installed().get(name, ()):
        if (folder / "METADATA").is_file():
            return version_there
    # Loads an e-mail parser and reads whole metadata files: only for what is installed in some other way.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


@cache
def _installed() -> dict[str, list[tuple[Path, str]]]:
    """Package to `<package>-<version>.dist-info` folders and their versions; the first on the path counts."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for place in sys.path:
        try:
            names = sorted(os.listdir(place or "."))  # noqa: PTH208 - hundreds of names, of which few are wanted
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                package, _, version = name[: -len(".dist-info")].partition("-")
                found.setdefault(package.lower().replace("_", "-"), []).append((Path(place, name), version))
    return found


def cxx(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """The compiler that Inductor will call, and the path to look it up on: `CXX`, or the system's default."""
    return environ.get(CXX) or ("clang++" if sys.platform == "darwin" else "g++"), environ.get("PATH")


@cache
def cxx_version(compiler: str, path: str | None = None) -> str:
    """The first line of the C++ compiler's `--version`: Inductor builds its CPU kernels with it.

    Args:
        compiler: Its name or path.
        path: Where names are looked up; this process's PATH by default.

    Raises:
        CompilerUnavailableError: There is none, or it does not run.
    """
    hint = "apt-get install g++ (or set CXX to a C++ compiler)"
    found = shutil.which(compiler, path=path)
    if found is None:
        raise CompilerUnavailableError(
            f"no C++ compiler: {compiler!r} is not on PATH", cause="Inductor builds its CPU kernels with one", hint=hint
        )
    try:
        run = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerUnavailableError(
            f"the C++ compiler {compiler!r} does not run", cause=str(error), hint=hint
        ) from error
    # `g++ (Debian 12.2.0-14) 12.2.0` without the name it was called by: the same compiler has several.
    return run.stdout.splitlines()[0].partition(" ")[2].strip() if run.stdout else ""


@cache
def cpu_features() -> tuple[str, ...]:
    """The instruction-set extensions of this CPU, sorted, as far as code can be built for them."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as info:
            for line in info:
                name, _, value = line.partition(":")
                if name.strip() in {"flags", "Features"}:
                    return tuple(sorted(ISA_FLAGS.intersection(value.split())))
    except OSError:
        pass  # not Linux: the processor's name has to do
    return tuple(filter(None, [platform.processor()]))


def has_bf16() -> bool:
    """The CPU computes in bfloat16."""
    return bool(BF16_FLAGS.intersection(cpu_features()))


def available_threads() -> int:
    """CPUs this process may run on; what the number of threads is by default."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def libc() -> str:
    """The C library: code built on a newer one does not load on an older one."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError, AttributeError):
        return ""


def gpu(torch_version: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The first GPU that this torch can drive: name, compute capability; empty where there is none."""
    if torch_version.endswith("+cpu") or environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return {}
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    name, _, capability = (run.stdout.splitlines() or [""])[0].rpartition(",")
    return {"gpu": name.strip(), "compute_capability": capability.strip()} if name else {}
