"""Which line installs Neuron here: for this chip, this Python and this system, from the registry's table of releases.

Nothing is installed by cachekit: an environment may be the one that AWS's image came with.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs

from cachekit.compilers.neuron import facts
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Install

IMAGES = Path("/opt")  # where the environments of AWS's images lie
PAGE = f"see AWS's setup page, {facts.SETUP_PAGE}"
INSTEAD = "--compiler inductor runs the same recipe with PyTorch's own compiler"


class Way(Struct, frozen=True):
    """How to get Neuron's packages.

    Attributes:
        run: One line of a shell; empty where none helps.
        why: What is special about it: a sentence that goes before it; empty where nothing is.
    """

    run: str
    why: str = ""


class Fault(Struct, frozen=True):
    """What is wrong with Neuron here, why, and the command that mends it; where none does, what helps, in words."""

    message: str
    cause: str
    run: str
    help: str = ""

    def of(self, message: str) -> Fault:
        """The fault whose cause this one is."""
        return structs.replace(self, message=message, cause="; ".join(filter(None, (self.message, self.cause))))

    def error(self) -> CompilerUnavailableError:
        """As an error."""
        hint = "; or ".join(filter(None, (self.run or self.help, INSTEAD)))
        return CompilerUnavailableError(self.message, cause=self.cause, hint=hint)


def way(target: str, over: Sequence[str] = (), compiler: str = "", *, only: bool = False) -> Way:
    """The line for a chip, in this environment where its Python fits.

    Args:
        target: The compiler's name of the chip; empty where nothing tells it.
        over: Packages in this environment that must go first.
        compiler: Whose packages; by default those that the table has for the chip.
        only: Somebody named the compiler: an image of the other stack has not what they want.
    """
    if (install := _for(target, compiler)) is None:
        return _unknown(target, compiler)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _image(target, compiler, only=only):
        return apart(target, compiler, only=only)
    if here not in install.python:
        known = ", ".join(install.python)
        made = apart(target, compiler, only=only)
        why = "; ".join(filter(None, (f"AWS has no wheels for Python {here}, only for {known}", made.why)))
        return structs.replace(made, why=why)
    removed = f"pip uninstall -y {shlex.join(over)} && " if over else ""
    return Way(
        f"{removed}pip install {_words(install)}", "; ".join(filter(None, (_guess(target, install), _too_old(install))))
    )


def apart(target: str, compiler: str = "", *, only: bool = False) -> Way:
    """The line for an environment next to this one: AWS's image has it, or it is made. cachekit comes into it, too."""
    if (install := _for(target, compiler)) is None:
        return _unknown(target, compiler)
    if (found := _image(target, compiler, only=only)) is not None:
        image, stack, extra = found
        run = f". {shlex.quote(image)}/bin/activate && pip install {_ours(extra)}"
        return Way(run, f"AWS's image has {stack} in {image}")
    python = install.python[len(install.python) // 2]  # the one that AWS's own pages take
    run = f"python{python} -m venv ~/neuron && ~/neuron/bin/pip install {_words(install)}"
    return Way(run, _too_old(install))


def compiler_for(target: str) -> str:
    """The compiler whose packages the table has a line of for a chip; empty for a chip that it does not have."""
    found = (one for one in zoo.toolchains().values() if one.install and target in one.install.targets)
    return next((one.compiler for one in found), "")


def on_system(package: str) -> str:
    """The line that installs a package of AWS's on this system, as `facts.DRIVER`, or the page that has it."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    for word in (system.get("ID", ""), *system.get("ID_LIKE", "").split()):
        if kind := facts.SYSTEMS.get(word):
            return f"{facts.SYSTEM_INSTALL[kind]} {package}"
    return PAGE


def _unknown(target: str, compiler: str) -> Way:
    if compiler and _for(target) is not None:
        theirs = {name for one in zoo.toolchains().values() if one.compiler == compiler for name in one.targets}
        other = way(target)
        why = (
            f"{compiler} has no {target}, only {', '.join(sorted(theirs))}: take --compiler neuron, with these packages"
        )
        return structs.replace(other, why="; ".join(filter(None, (why, other.why))))
    known = sorted({name for one in zoo.toolchains().values() if one.install for name in one.install.targets})
    return Way("", f"no release in the table is for {target}: it has {', '.join(known)}")


def _guess(target: str, install: Install) -> str:
    """What is said of a line where nothing names the chip; empty where something does."""
    return "" if target else f"nothing tells which chip it is, and this line is for {', '.join(install.targets)}"


def packages_line(packages: Sequence[str], indexes: Sequence[str]) -> str:
    """The line that installs packages, as pip names them, in this environment."""
    return f"pip install {_from(packages, indexes)}"


def _words(install: Install) -> str:
    """With cachekit, for what a training needs, as transformers of a release that the stack runs with."""
    return f"{_from(install.packages, install.indexes)} {_ours(install.extra)}"


def _ours(extra: str) -> str:
    return shlex.quote(f"cachekit-neuron[{extra}]")


def _from(packages: Sequence[str], indexes: Sequence[str]) -> str:
    return shlex.join([*(word for url in indexes for word in ("--extra-index-url", url)), *packages])


def _for(target: str, compiler: str = "") -> Install | None:
    """The release's that is for the chip, or the compiler's own; None for a chip that the table does not have."""
    for one in zoo.toolchains().values():
        if one.install is None or compiler not in {"", one.compiler}:
            continue
        if not target or target in (one.targets if compiler else one.install.targets):
            return one.install
    return None


def _image(target: str, compiler: str, *, only: bool) -> tuple[str, str, str] | None:
    """The environment of AWS's image on this machine that has packages for the chip, what it has, and cachekit's extra.

    None where none does. That of the compiler comes first; the other stack's will do where the chip chose the compiler.
    """
    either = not only and compiler in {"", compiler_for(target)}
    for one in sorted(zoo.toolchains().values(), key=lambda one: compiler not in {"", one.compiler}):
        if one.install is None or not (either or one.compiler == compiler) or (target and target not in one.targets):
            continue
        found = (folder for pattern in one.install.images for folder in IMAGES.glob(pattern))
        # The one that is active already lacks something, or nobody would ask.
        able = (at for at in found if (at / "bin" / facts.COMPILER).exists() and str(at) != sys.prefix)
        if names := [str(folder) for folder in able]:
            newest = max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
            stack = "TorchNeuron" if one.compiler == "neuron-native" else "PyTorch/XLA"
            return newest, stack, one.install.extra
    return None


def _too_old(install: Install) -> str:
    """What speaks against the line on this system; empty where nothing does."""
    name, version = platform.libc_ver()
    wanted = install.glibc
    if name != "glibc" or not wanted or tuple(map(int, version.split("."))) >= tuple(map(int, wanted.split("."))):
        return install.note
    return f"its wheels need glibc {wanted}, and this system has {version}: use a newer one"
