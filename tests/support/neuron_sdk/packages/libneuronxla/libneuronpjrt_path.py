"""Where the PJRT plugin lies. There is none: XLA's CPU client runs the graphs (see `libneuronxla.pjrt`)."""

from pathlib import Path


def libneuronpjrt_path() -> str:
    """Path of the plugin that a real installation has."""
    return str(Path(__file__).with_name("libneuronpjrt.so"))
