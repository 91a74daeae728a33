"""This machine, found without importing anything heavy: versions of packages, instruction set, C library, GPU."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cachekit import process
from cachekit.errors import INSTALL, CompilerUnavailableError

# CPU features that `-march=native` may turn into instructions (GCC 12's x86 and ARM options, by their names in
# /proc/cpuinfo). Inductor compiles with -march=native, but its keys don't say for which processor; ours do, so that
# code with instructions this CPU lacks is never restored. Kernel notes (`md_clear`, `ibrs`) are left out: they change
# with the kernel.
ISA_FLAGS = frozenset(
    """
    cx16 sahf_lm lahf_lm movbe popcnt pni ssse3 sse4_1 sse4_2 sse4a avx avx2 fma fma4 f16c xop tbm bmi1 bmi2 lzcnt
    abm adx aes vaes pclmulqdq vpclmulqdq gfni sha_ni rdrand rdseed fsgsbase prfchw 3dnowprefetch clflushopt clwb
    clzero mwaitx avx512f avx512dq avx512cd avx512bw avx512vl avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni
    avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx512_vp2intersect avx_vnni avx_ifma avx_vnni_int8
    avx_ne_convert amx_tile amx_int8 amx_bf16 amx_fp16 movdiri movdir64b enqcmd cldemote serialize ptwrite waitpkg
    rdpid wbnoinvd xsave xsavec xsaveopt xsaves pku shstk ibt uintr hreset kl widekl asimd asimdhp asimddp
    asimdrdm asimdfhm fp fphp atomics crc32 sha1 sha2 sha3 sha512 sm3 sm4 jscvt fcma lrcpc dcpop sve sve2 sveaes
    svebitperm svesha3 svesm4 svei8mm svebf16 i8mm bf16 dgh rng bti flagm flagm2 frint sb ssbs paca pacg
    """.split()  # noqa: SIM905
)


# The hypervisor's name for the machine; optimum-neuron reads it for the same purpose.
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")

MASTER_PORT = 29500  # where several machines meet, unless somebody says otherwise: torchrun's


def product() -> str:
    """What the hypervisor calls this machine: on EC2 its type, `trn1.2xlarge`; empty where nothing says it."""
    try:
        return PRODUCT.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


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


def is_named(name: str) -> bool:
    """Whether metadata of a package is here, be it without a version or without its code. Reads no file."""
    return name in _installed()


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


OWN = "cachekit-neuron"
OTHER = "cachekit"  # on PyPI another project, whose package is imported by the same name


def other_project() -> tuple[str, Path] | None:
    """The version and the place of another project that is imported as this one is; None where there is none."""
    found = _installed().get(OTHER)
    return (found[0][1], found[0][0].parent) if found else None


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


def processor() -> dict[str, Any]:
    """What machine code is for on this host, as it goes into keys."""
    return {"machine": platform.machine(), "system": sys.platform, "isa": list(cpu_features()), "libc": libc()}


def gpu(torch_version: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The first GPU that this torch can drive: name, compute capability; empty where there is none."""
    if torch_version.endswith("+cpu") or environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return {}
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        said = process.answer(query)
    except OSError:
        return {}
    name, _, capability = said.partition("\n")[0].rpartition(",")
    return {"gpu": name.strip(), "compute_capability": capability.strip()} if name else {}
