"""Which line installs Neuron here: for this chip, this Python and this system, from the registry's table of releases.

Nothing is installed by cachekit: an environment may be the one that AWS's image came with.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from cachekit.compilers.neuron import facts
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Install, Toolchain

IMAGES = Path("/opt")  # where the environments of AWS's images lie
PAGE = f"see AWS's setup page, {facts.SETUP_PAGE}"
INSTEAD = "--compiler inductor runs the same recipe with PyTorch's own compiler"


class Way(Struct, frozen=True):
    """How to get Neuron's packages.

    Attributes:
        run: One line of a shell; empty where none helps: no release has the chip, or its wheels do not load here.
        why: What is special about it, or why there is none: a sentence that goes before it; empty where nothing is.
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


def way(target: str, over: Sequence[str] = (), compiler: str = "") -> Way:
    """The line for a chip: AWS's image has the packages, or they are installed, here where this Python fits.

    Args:
        target: The compiler's name of the chip; empty where nothing tells it.
        over: Packages in this environment that must go first.
        compiler: Whose packages: somebody named it, or has some of them here. By default any that has the chip.
    """
    if (chosen := _chosen(target, compiler)) is None:
        return _unknown(target, compiler, way)
    one, install, _ = chosen
    if install is None or _unfit(install):
        return apart(target, compiler)
    if not _here(install.python):
        made = apart(target, compiler)
        return structs.replace(made, why="; ".join(filter(None, (_no_wheels("AWS", install.python), made.why))))
    removed = f"pip uninstall -y {shlex.join(over)} && " if over else ""
    run = f"{removed}pip install {_words(one, install)}"
    return Way(run, "; ".join(filter(None, (_guess(target, one), _instead(target, compiler, one)))))


def apart(target: str, compiler: str = "") -> Way:
    """The line for an environment next to this one: AWS's image has it, or it is made. cachekit comes into it, too."""
    if (chosen := _chosen(target, compiler)) is None:
        return _unknown(target, compiler, apart)
    one, install, image = chosen
    if install is None:
        run = f". {shlex.quote(image)}/bin/activate && pip install {_ours(one)}"
        return Way(run, f"AWS's image has {_stack(one)} in {image}")
    if unfit := _unfit(install):
        return Way("", unfit)
    return Way(_made(install.python, _words(one, install)), _instead(target, compiler, one))


def trainer(one: Toolchain, splitter: Install) -> Way:
    """The line for what splits models, beside the packages of a release; with them where this Python has none of it."""
    if _here(splitter.python):
        return Way(packages_line(splitter.packages, splitter.indexes))
    theirs = one.install.packages if one.install else ()
    words = f"{_from([*theirs, *splitter.packages], splitter.indexes)} {_ours(one)}"
    return Way(_made(splitter.python, words), _no_wheels(facts.SPLITTER, splitter.python))


def compiler_for(target: str) -> str:
    """The compiler whose packages `way` takes for a chip; empty for a chip that the table does not have."""
    chosen = _chosen(target)
    return chosen[0].compiler if chosen else ""


def on_system(package: str) -> str:
    """The line that installs a package of AWS's on this system, as `facts.DRIVER`, or the page that has it."""
    system = _system()
    for word in (system.get("ID", ""), *system.get("ID_LIKE", "").split()):
        if kind := facts.SYSTEMS.get(word):
            return f"{facts.SYSTEM_INSTALL[kind]} {package}"
    return PAGE


def _unknown(target: str, compiler: str, instead: Callable[[str], Way]) -> Way:
    if compiler and _chosen(target):
        theirs = {name for one in zoo.toolchains().values() if one.compiler == compiler for name in one.targets}
        other = instead(target)
        why = (
            f"{compiler} has no {target}, only {', '.join(sorted(theirs))}: use --compiler neuron, with these packages"
        )
        return structs.replace(other, why="; ".join(filter(None, (why, other.why))))
    known = sorted({name for one in zoo.toolchains().values() if one.install for name in one.install.targets})
    return Way("", f"no release in the table is for {target}: it has {', '.join(known)}")


def _guess(target: str, one: Toolchain) -> str:
    """What is said of a line where nothing names the chip; empty where something does."""
    return "" if target else f"the chip could not be identified; this command is for {', '.join(one.targets)}"


def packages_line(packages: Sequence[str], indexes: Sequence[str]) -> str:
    """The line that installs packages, as pip names them, in this environment."""
    return f"pip install {_from(packages, indexes)}"


def _words(one: Toolchain, install: Install) -> str:
    """With cachekit, for what a training needs, as transformers of a release that the stack runs with."""
    return f"{_from(install.packages, install.indexes)} {_ours(one)}"


def _ours(one: Toolchain) -> str:
    """Our package: its extra for XLA would take TorchNeuron away."""
    return f"'cachekit-neuron[{'train' if one.compiler == 'neuron-native' else 'neuron'}]'"


def _from(packages: Sequence[str], indexes: Sequence[str]) -> str:
    return shlex.join([*(word for url in indexes for word in ("--extra-index-url", url)), *packages])


def _here(python: Sequence[str]) -> bool:
    return _python() in python


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _no_wheels(whose: str, python: Sequence[str]) -> str:
    return f"{whose} has no wheels for Python {_python()}, only for {', '.join(python)}"


def _made(python: Sequence[str], words: str) -> str:
    """The line that makes an environment, of the Python that AWS's own pages take."""
    return f"python{python[len(python) // 2]} -m venv ~/neuron && ~/neuron/bin/pip install {words}"


def _stack(one: Toolchain) -> str:
    return "TorchNeuron" if one.compiler == "neuron-native" else "PyTorch/XLA"


def _releases(target: str, compiler: str) -> list[Toolchain]:
    """The releases of a compiler, or of any, that have the chip: the one whose line is the chip's first."""
    found = (one for one in zoo.toolchains().values() if compiler in {"", one.compiler})
    able = [one for one in found if not target or target in one.targets]
    return sorted(able, key=lambda one: one.install is None or (bool(target) and target not in one.install.targets))


def _chosen(target: str, compiler: str = "") -> tuple[Toolchain, Install | None, str] | None:
    """The release to take, with its line, or with the environment of AWS's image that has it; None for no such chip.

    An image comes first, then wheels that are for this system, and then the chip's own, which get no line.
    """
    releases = _releases(target, compiler)
    for one in releases:
        if image := _image(one):
            return one, None, image
    lines = [(one, one.install) for one in releases if one.install]
    best = next((pair for pair in lines if not _unfit(pair[1])), lines[0] if lines else None)
    return (*best, "") if best else None


def _image(one: Toolchain) -> str:
    """The newest environment of AWS's images on this machine that has a release's packages; empty where none has."""
    found = (folder for pattern in one.images for folder in IMAGES.glob(pattern))
    # The one that is active already lacks something, or nobody would ask.
    able = (at for at in found if (at / "bin" / facts.COMPILER).exists() and str(at) != sys.prefix)
    names = [str(folder) for folder in able]
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def _instead(target: str, compiler: str, one: Toolchain) -> str:
    """Why it is not the chip's own line, and what this one brings in its place; empty where it is."""
    first = _releases(target, compiler)[0]
    if first is one or first.install is None:
        return ""
    return f"{_stack(first)}: {_unfit(first.install)}; this line brings {_stack(one)}"


def _unfit(install: Install) -> str:
    """Why a release's wheels are not for this system; empty where they are, or nobody knows."""
    system = _system()
    if install.systems and system and f"{system.get('ID', '')} {system.get('VERSION_ID', '')}" not in install.systems:
        here = system.get("PRETTY_NAME") or f"{system.get('ID', '')} {system.get('VERSION_ID', '')}".title()
        theirs = " and ".join(name.title() for name in install.systems)
        return f"AWS's wheels are for {theirs}, not for {here}: AWS's image has them, or they are built from source"
    name, version = platform.libc_ver()
    wanted = install.glibc
    if name != "glibc" or not wanted or tuple(map(int, version.split("."))) >= tuple(map(int, wanted.split("."))):
        return ""
    return f"its wheels need glibc {wanted}, and this system has {version}: use a newer one"


def _system() -> dict[str, str]:
    """What this system says of itself; nothing where it does not."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
