"""Arguments for pip that bring torch's CPU build where no GPU is, instead of gigabytes of CUDA; `make` asks for them.

    pip install $(python constraints/torch_index.py) torch

The arguments go to stdout and a sentence for people to stderr. Without an NVIDIA GPU, PyTorch's own index is added. Its
builds are called `+cpu`, and pip prefers them to PyPI's of the same version.
"""

from __future__ import annotations

import platform
import sys
import urllib.request
from pathlib import Path

INDEX = "https://download.pytorch.org/whl/cpu"  # https://pytorch.org/get-started/locally/
PATIENCE = 5  # seconds for the index to answer


def arguments(index: str = INDEX, gpu: Path = Path("/dev/nvidiactl")) -> tuple[list[str], str]:
    """What to hand to pip, and what to tell the user.

    Args:
        index: The index of CPU builds.
        gpu: What NVIDIA's driver makes where a GPU is.
    """
    if gpu.exists():
        return [], "torch: this machine has an NVIDIA GPU, so pip takes the build with CUDA"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return [], "torch: PyPI's build for this machine has no CUDA"
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=PATIENCE):
            return ["--extra-index-url", index], f"torch: no GPU here, so pip takes the CPU build from {index}"
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        return [], f"torch: {index} cannot be reached ({cause}), so pip takes PyPI's build, with gigabytes of CUDA"


if __name__ == "__main__":
    found, said = arguments(*sys.argv[1:2])
    print(said, file=sys.stderr)
    print(*found)
