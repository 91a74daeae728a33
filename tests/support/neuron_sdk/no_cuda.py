"""Let torch's CUDA build start without CUDA: empty libraries in place of gigabytes that a CPU never calls.

torch 2.9.0 exists on PyPI with CUDA only, and torch_xla 2.9.0 goes with no other. Its libraries are linked against
cuBLAS, cuDNN, NCCL and others (4 GB installed); on a machine without a GPU none of their functions is called. Each is
replaced by a library of the same name that has the same functions, all of which end the process. The small ones that
are called on a CPU as well (cudart, cupti) are the real ones. Needs `cc` and `nm`.

    python tests/support/neuron_sdk/no_cuda.py        # for the torch of the interpreter that runs it
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Library -> (names of its functions, version of its symbols).
LIBRARIES = {
    "libcublas.so.12": (r"cublas(?!Lt)", "libcublas.so.12"),
    "libcublasLt.so.12": (r"cublasLt", "libcublasLt.so.12"),
    "libcudnn.so.9": (r"cudnn", "libcudnn.so.9"),
    "libcufft.so.11": (r"cufft", "libcufft.so.11"),
    "libcufile.so.0": (r"cuFile", ""),
    "libcurand.so.10": (r"curand", "libcurand.so.10"),
    "libcusolver.so.11": (r"cusolver", "libcusolver.so.11"),
    "libcusparse.so.12": (r"cusparse(?!Lt)", "libcusparse.so.12"),
    "libcusparseLt.so.0": (r"cusparseLt", ""),
    "libnccl.so.2": (r"p?nccl", ""),
    "libnvshmem_host.so.3": (r"nvshmem", "NVSHMEM"),
}


def main() -> int:
    """Make the libraries beside torch's own, where torch looks as well."""
    spec = importlib.util.find_spec("torch")  # not imported: it cannot be, yet
    if spec is None or not spec.submodule_search_locations:
        print("torch is not installed", file=sys.stderr)
        return 1
    folder = Path(next(iter(spec.submodule_search_locations)), "lib")
    if not (folder / "libtorch_cuda.so").exists():
        return 0  # a CPU build
    wanted = _undefined(folder)
    for name, (pattern, version) in LIBRARIES.items():
        functions = sorted(symbol for symbol in wanted if re.match(pattern, symbol))
        _make(folder / name, functions, version)
    return 0


def _undefined(folder: Path) -> set[str]:
    names = set()
    for library in folder.glob("lib*.so"):
        listing = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
        names |= {line.split()[-1].partition("@")[0] for line in listing.stdout.splitlines() if line.strip()}
    return names


def _make(library: Path, functions: list[str], version: str) -> None:
    source = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in functions) or "typedef int nothing;\n"
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        script.write(f"{version} {{ *; }};\n")
        script.flush()
        command = ["cc", "-shared", "-fPIC", "-o", library, f"-Wl,-soname,{library.name}"]
        command += [f"-Wl,--version-script={script.name}", "-x", "c", "-"]
        subprocess.run(command, input=source, text=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
