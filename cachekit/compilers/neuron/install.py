"""Which line installs Neuron here: for this chip, this Python and this system, from the registry's table of releases.

Nothing is installed by cachekit: an environment may be the one that AWS's image came with.
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs

from cachekit.compilers.neuron import facts
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Install

IMAGES = Path("/opt")  # where the environments of AWS's images lie


class Way(Struct, frozen=True):
    """How to get Neuron's packages.

    Attributes:
        run: One line of a shell.
        why: What is special about it: a sentence that goes before it; empty where nothing is.
    """

    run: str
    why: str = ""


def way(target: str, over: Sequence[str] = ()) -> Way:
    """The line for a chip, in this environment where its Python fits.

    Args:
        target: The compiler's name of the chip; an empty or unknown one gets the first line of the table.
        over: Packages in this environment that must go first.
    """
    install = _for(target)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here not in install.python and not _images(install):
        known = ", ".join(install.python)
        return structs.replace(apart(target), why=f"AWS has no wheels for Python {here}, only for {known}")
    if _images(install):
        return apart(target)
    removed = f"pip uninstall -y {shlex.join(over)} && " if over else ""
    return Way(f"{removed}pip install {_words(install)}", _too_old(install))


def apart(target: str) -> Way:
    """The line for an environment beside this one: AWS's image has it, or it is made."""
    install = _for(target)
    if images := _images(install):
        return Way(f". {shlex.quote(images[-1])}/bin/activate", f"AWS's image has them in {images[-1]}")
    return Way(f"python{install.python[-1]} -m venv ~/neuron && ~/neuron/bin/pip install {_words(install)}")


def _words(install: Install) -> str:
    indexes = [word for url in install.indexes for word in ("--extra-index-url", url)]
    return shlex.join([*indexes, *install.packages])


def _for(target: str) -> Install:
    """The newest release's that names the chip; XLA's before TorchNeuron's, which is experimental here."""
    known = [one.install for one in zoo.toolchains().values() if one.install is not None]
    chip = facts.TARGET_CHIPS.get(target, target)
    fitting = [install for install in known if chip in {facts.TARGET_CHIPS.get(name, name) for name in install.targets}]
    return (fitting or known)[0]


def _images(install: Install) -> list[str]:
    """The environments of AWS's image on this machine that have these packages, oldest first."""
    found = (folder for pattern in install.images for folder in IMAGES.glob(pattern))
    return sorted(str(folder) for folder in found if (folder / "bin" / facts.COMPILER).exists())


def _too_old(install: Install) -> str:
    name, version = platform.libc_ver()
    wanted = install.glibc
    if name != "glibc" or not wanted or tuple(map(int, version.split("."))) >= tuple(map(int, wanted.split("."))):
        return ""
    return f"its wheels need glibc {wanted}, and this system has {version}: use a newer one"
