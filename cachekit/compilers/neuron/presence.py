"""Whether Neuron may be here at all: asked at every start, and so before anything else of Neuron is loaded."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from cachekit.host import is_named, product

# Part of `facts.py`, which takes 10 ms to load. Its __version__ carries "+<commit>", which the package's metadata may
# lack [ON].
COMPILER_MODULE = "neuronxcc"
# Names a tool that lists the devices; the second is where AWS's package puts it, which is not always on PATH.
NEURON_LS = ("neuron-ls", "/opt/aws/neuron/bin/neuron-ls")
DEVICE_FOLDER = "/dev"
# The driver's own, whatever a container is given of /dev [neuron_cdev.c].
DRIVER_CLASS = "/sys/class/neuron_device"  # with an entry for each device, as every class of the kernel's
FRAMEWORK_PACKAGE = "torch-neuronx"
# What the bus says, with or without the driver: the number of AWS as a maker, and those of its chips [neuron_pci.c].
PCI_FOLDER, PCI_MAKER = "/sys/bus/pci/devices", "0x1d0f"
PCI_CHIPS = {
    **dict.fromkeys(("0x7064", "0x7065", "0x7066", "0x7067"), "inf1"),  # which no release in the table is for
    "0x7164": "trn1", "0x7264": "inf2", "0x7364": "trn2", "0x7564": "trn3", "0x7565": "trn3",
}  # fmt: skip
_FAMILY = re.compile(r"(trn|inf)\d")
_DEVICE = re.compile(r"neuron\d+")  # the driver makes one node for each device


def possible() -> bool:
    """False where the compiler's module is not installed, which most machines tell at once."""
    return find_spec(COMPILER_MODULE) is not None


def device_nodes() -> list[str]:
    """The paths of the device nodes that Neuron's driver made; empty where the driver is not loaded."""
    try:
        names = os.listdir(DEVICE_FOLDER)  # noqa: PTH208 - names only, at every start
    except OSError:
        return []
    return sorted(f"{DEVICE_FOLDER}/{name}" for name in names if _DEVICE.fullmatch(name))


def machine() -> str:
    """This machine's type where it is one that has Neuron devices, by its firmware: `trn1.2xlarge`; else empty."""
    name = product()
    return name if _FAMILY.match(name) else ""


def driver() -> bool:
    """Whether Neuron's driver is loaded, on this machine or on the one that this container runs on."""
    return Path(DRIVER_CLASS).is_dir()


def driven() -> bool:
    """Whether that driver has a device: AWS's images load it on machines without one, too."""
    return any(_DEVICE.fullmatch(entry.name) for entry in Path(DRIVER_CLASS).glob("*"))


def pci_chip() -> str:
    """The compiler's name for the chip of the Neuron devices on this machine's bus; empty where there are none."""
    for maker in Path(PCI_FOLDER).glob("*/vendor"):
        with suppress(OSError):
            if maker.read_text() == f"{PCI_MAKER}\n":
                number = maker.with_name("device").read_text().strip()
                if number in PCI_CHIPS:
                    return PCI_CHIPS[number]
    return ""


def meant() -> bool:
    """Whether torch-neuronx is installed here, be it by half: whoever has it does not mean PyTorch's own compiler."""
    return is_named(FRAMEWORK_PACKAGE)


def may_have_devices() -> bool:
    """Whether this machine may have Neuron devices: nodes, driver, type, bus, a tool. Starts no process."""
    if device_nodes() or driven() or machine() or pci_chip():
        return True
    name, path = NEURON_LS
    return Path(path).exists() or shutil.which(name) is not None
