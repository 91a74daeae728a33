"""Which of Neuron's packages are in this environment, and why they are no toolchain.

Nothing of Neuron is imported: importing torch-neuronx takes seconds and may claim a device. Versions come from package
metadata, in which PyPI's placeholders are recognised, and the code behind them is looked for; whether it runs is seen
when the worker starts.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import structs

from cachekit.compilers.neuron import chip, facts, install
from cachekit.recipe import zoo

REQUIRED = (facts.COMPILER_PACKAGE, facts.XLA_PACKAGE, facts.FRAMEWORK_PACKAGE, facts.XLA_FRAMEWORK)
NATIVE = facts.NATIVE_PACKAGES
_MODULES = facts.PACKAGE_MODULES | facts.BELOW_MODULES


def public(version: str) -> str:
    """A version without its `+<commit>`: the registry does not know every commit, and keys must agree."""
    return version.partition("+")[0]


@cache
def versions() -> dict[str, str]:
    """Versions of Neuron's packages in this environment; those that are not installed, or by half, are absent."""
    return {name: version for name, version in _told().items() if version}


def half_installed() -> list[str]:
    """Neuron's packages that have metadata without a version: an install or a removal was cut off."""
    return [name for name, version in _told().items() if not version]


@cache
def _told() -> dict[str, str]:
    names = (*facts.TOOLCHAIN_PACKAGES, *facts.TRAINING_PACKAGES, facts.LORA_PACKAGE, facts.LITE_PACKAGE)
    return {name: version for name in names if (version := _version(name)) is not None}


def _version(name: str) -> str | None:
    """A package's version in the first folder that has it; empty where it is there by half, None where it is nowhere.

    An upgrade that was cut off leaves metadata that pip passes over: the next install puts its own beside it.
    """
    from importlib import metadata  # which loads an e-mail parser: a plan for another machine asks for no package here

    folder, version = "", None
    for one in metadata.distributions(name=name):
        if version is not None and folder != str(one.locate_file("")):
            break
        folder = str(one.locate_file(""))
        # Without the file METADATA importlib gives None, or a KeyError.
        with suppress(KeyError, OSError, ValueError):
            version = version or one.version
        version = version or ""
    return version


def placeholders(found: Mapping[str, str]) -> list[str]:
    """Packages that are PyPI's placeholders, by their versions: they install, and fail to import."""
    known = facts.PLACEHOLDERS
    return [name for name, version in found.items() if name in known and release(version) == release(known[name])]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version that count for its order: `1.0.post1` is 1, as `1.0.0` is."""
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version.strip())
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def without_code(found: Mapping[str, str]) -> list[str]:
    """Packages that are installed by their metadata, and have no module that could be imported, or the compiler's that
    has no program where a worker finds it: on PATH, or in this environment. Executes nothing.
    """
    own = str(Path(sys.executable).parent)
    program = shutil.which(facts.COMPILER) or shutil.which(facts.COMPILER, path=own)
    return [
        name
        for name, module in _MODULES.items()
        if name in found and not (_importable(module) and (program or name != facts.COMPILER_PACKAGE))
    ]


def _without(packages: Sequence[str]) -> str:
    """What these packages lack of their code."""
    if gone := [module for name in packages if not _importable(module := _MODULES[name])]:
        return f"installed by name only: there is no module {', '.join(gone)}"
    return f"its program {facts.COMPILER} is neither on PATH nor in {Path(sys.executable).parent}"


def _importable(module: str) -> bool:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a module of that name is there already, and is none of a file
        return False
    return spec is not None and spec.origin is not None  # a bare folder of the name has no origin


def available(required: Sequence[str] = REQUIRED) -> bool:
    """Whether this environment has a Neuron toolchain: real packages, with their code."""
    return not (required is REQUIRED and is_native(versions())) and _lacking(required, "") is None


def is_native(found: Mapping[str, str]) -> bool:
    """Whether these packages are TorchNeuron, which has its own device, and not torch-neuronx on XLA."""
    return release(found.get(facts.FRAMEWORK_PACKAGE, "")) >= release(facts.NATIVE_FIRST)


def native_available() -> bool:
    """Whether this environment has TorchNeuron."""
    return is_native(versions()) and available(NATIVE)


def stack() -> str:
    """The compiler whose packages are here, be it by half; empty where none tells of one.

    Where torch-neuronx is lost, and nothing is XLA's, a package tells that only one compiler's releases have.
    """
    found, target = versions(), chip.here()
    real = {name: found[name] for name in found if name not in placeholders(found)}
    if is_native(real):
        return "neuron-native"
    if _for_other_work(real):
        return ""
    if {facts.FRAMEWORK_PACKAGE, *facts.XLA_PACKAGES} & real.keys():
        return "neuron"
    if not {facts.COMPILER_PACKAGE, facts.NKI_PACKAGE} & real.keys():
        return ""
    able = [one for one in zoo.toolchains().values() if one.trains != "no" and (not target or target in one.targets)]
    for name in filter(real.__contains__, (facts.COMPILER_PACKAGE, facts.NKI_PACKAGE, "torch")):
        minor = _minor(real[name])
        whose = {one.compiler for one in able if name in one.packages and _minor(one.packages[name]) == minor}
        if len(whose) == 1:
            return whose.pop()
    return ""


def likely() -> Sequence[str]:
    """The packages of the stack that is here; where none is, of the one that this machine's chip would get."""
    return NATIVE if (stack() or install.compiler_for(chip.here())) == "neuron-native" else REQUIRED


def fault(required: Sequence[str] = ()) -> install.Fault | None:
    """What is wrong with the packages of a compiler that somebody named, or by default of the likely one; else None."""
    compiler = {REQUIRED: "neuron", NATIVE: "neuron-native"}.get(tuple(required)) or stack()
    return (
        _twice(compiler)
        or _lacking(required or likely(), compiler)
        or _together(versions(), facts.NOT_TOGETHER, "cannot be used", compiler)
        or _of_another_torch(versions())
        or _of_another_chip(versions())
    )


def _for_other_work(found: Mapping[str, str]) -> tuple[str, str] | None:
    """A package that no training has without torch-neuronx, and what it is for; None where there is none."""
    if facts.FRAMEWORK_PACKAGE in found:
        return None
    rows = ((name, what) for name, first, what in facts.OTHER_WORK if release(found.get(name, "")) >= release(first))
    return next(((name, what) for name, what in rows if name in found), None)


def _lacking(required: Sequence[str], compiler: str) -> install.Fault | None:
    """Why these packages are no toolchain for this machine's chip; None where they are whole, and for it.

    Whose line mends them is the compiler's that is named or here by half: another's would be put over it.
    """
    found, target, meant = versions(), chip.here(), chip.meant()
    if wrong := placeholders(found):
        return _fault(
            f"{', '.join(f'{name} {found[name]}' for name in wrong)} cannot be used",
            "these are empty placeholders from PyPI; the real packages are in AWS's own index",
            install.way(target, tuple(wrong), compiler),
        )
    if half := [name for name in required if name in half_installed()]:
        way = install.way(target, (), compiler)
        return _fault(
            f"{', '.join(half)} cannot be used",
            "half-installed: the package's metadata has no version",
            structs.replace(way, run=f"{way.run} --force-reinstall") if way.run.startswith("pip ") else way,
        )
    if other := _for_other_work(found):
        name, what = other
        return _fault(
            f"{name} {found[name]} is installed, and no {facts.FRAMEWORK_PACKAGE}",
            f"{name} {what}; leave this environment to it",
            install.apart(target, compiler),
        )
    if is_native(found) and meant and _chip(meant) not in facts.NATIVE_CHIPS:
        name = facts.FRAMEWORK_PACKAGE
        return _fault(
            f"{name} {found[name]} is TorchNeuron, which does not run on {meant}",
            f"it knows {', '.join(sorted(facts.NATIVE_CHIPS))}",
            _meant_here() or install.way(meant, (name,)),
        )
    if missing := [name for name in required if name not in found]:
        return _fault(
            f"the Neuron compiler is not available: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not installed",
            "AWS's packages are in AWS's own index, for Linux on Trainium and Inferentia",
            install.way(target, (), compiler),
        )
    if empty := without_code(found):
        return _fault(
            f"{', '.join(empty)} cannot be used",
            _without(empty),
            install.way(target, tuple(empty), compiler),
        )
    return None


def _fault(message: str, cause: str, way: install.Way) -> install.Fault:
    mends = "" if way.run else install.PAGE
    return install.Fault(message, f"{cause}; {way.why}" if way.why else cause, way.run, mends)


def _twice(compiler: str) -> install.Fault | None:
    """A package of which one folder has two versions: pip was cut off, or told to ignore what is installed."""
    for name, found in installed_twice().items():
        return _fault(
            f"{name} is installed twice: {', '.join(found)}",
            "it is not possible to tell which files belong to which",
            install.apart(chip.here(), compiler),
        )
    return None


@cache
def installed_twice() -> dict[str, list[str]]:
    """Neuron's packages that one folder of this environment has several versions of."""
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for name in facts.PACKAGE_MODULES:
        beside: dict[str, set[str]] = {}
        for one in metadata.distributions(name=name):
            with suppress(KeyError, OSError, ValueError):
                if one.version:
                    beside.setdefault(str(one.locate_file("")), set()).add(one.version)
        if several := next((there for there in beside.values() if len(there) > 1), None):
            found[name] = sorted(several, key=release)
    return found


def _together(
    found: Mapping[str, str], rows: Sequence[facts.Pair], verdict: str, compiler: str = ""
) -> install.Fault | None:
    """Packages of which each is sound, and of which somebody knows that they are of two stacks, or fail together.

    Those of two stacks are mended by an environment for one compiler's.
    """
    for one, other, why in rows:
        if all(_within(found.get(name, ""), first, before) for name, first, before in (one, other)):
            said = " with ".join(f"{name} {found[name]}" for name, *_ in (one, other))
            apart = why == facts.TWO_STACKS
            return _fault(f"{said} {verdict}", why, install.apart(chip.here(), compiler) if apart else _mended(found))
    return None


def _of_another_torch(found: Mapping[str, str]) -> install.Fault | None:
    """A torch, or a torch-xla, that torch-neuronx was not built for: its library is not loaded by another."""
    framework = facts.FRAMEWORK_PACKAGE
    if framework not in found or not (others := _other_torches(found)):
        return None
    minor = _minor(found[framework])
    return _fault(
        f"{framework} {found[framework]} with {' and '.join(f'{name} {found[name]}' for name in others)} "
        "cannot be used",
        f"it loads only beside {' and '.join(f'{name} {minor}' for name in _torches(found))}",
        _mended(found),
    )


def _torches(found: Mapping[str, str]) -> tuple[str, ...]:
    """The packages whose minor release is torch-neuronx's own."""
    return ("torch",) if is_native(found) else ("torch", facts.XLA_FRAMEWORK)


def _other_torches(found: Mapping[str, str]) -> list[str]:
    minor = _minor(found[facts.FRAMEWORK_PACKAGE])
    return [name for name in _torches(found) if name in found and _minor(found[name]) != minor]


def _minor(version: str) -> str:
    """Its first two numbers: `2.9`."""
    first, second = (*release(version), 0, 0)[:2]
    return f"{first}.{second}"


def _paired(found: Mapping[str, str]) -> list[str]:
    """The releases of the table that have this torch-neuronx, oldest first; else those that have one of its minor."""
    framework = facts.FRAMEWORK_PACKAGE
    version = public(found[framework])
    theirs = {
        name: public(one.packages[framework]) for name, one in zoo.toolchains().items() if framework in one.packages
    }
    same = [name for name, its in theirs.items() if its == version]
    return same or [name for name, its in theirs.items() if _minor(its) == _minor(version)]


def _mended(found: Mapping[str, str]) -> install.Way:
    """The line that puts beside this torch-neuronx all that its release has, and leaves what fits already."""
    minor, native = _minor(found[facts.FRAMEWORK_PACKAGE]), is_native(found)
    words = [f"{name}=={minor}.*" for name in _other_torches(found)]
    # A later compiler is TorchNeuron's own business: its table names one that is enough.
    paired = [] if native else _paired(found)
    theirs = {name: public(version) for name, version in zoo.toolchain(paired[-1]).packages.items()} if paired else {}
    words += [
        f"{name}=={theirs[name]}"
        for name in (facts.XLA_PACKAGE, facts.COMPILER_PACKAGE)
        if name in theirs and theirs[name] != public(found.get(name, ""))
    ]
    after = {**found, **theirs}
    for (name, first, before), (beside, *bounds), _ in facts.REPORTED:
        if name not in theirs and _within(after.get(name, ""), first, before) and _within(after[beside], *bounds):
            words.append(f"{name}>={before}" if before else f"{name}<{first}")
    compiler = "neuron-native" if native else "neuron"
    lines = [one.install for one in zoo.toolchains().values() if one.compiler == compiler and one.install]
    return install.Way(install.packages_line(words, lines[-1].indexes if lines else (facts.PACKAGE_INDEX,)))


def _of_another_chip(found: Mapping[str, str]) -> install.Fault | None:
    """Packages of a release of the table that does not compile for this machine's chip."""
    target, compiler, framework = chip.meant(), facts.COMPILER_PACKAGE, facts.FRAMEWORK_PACKAGE
    for name, one in zoo.toolchains().items():
        same = all(public(one.packages.get(it, "")) == public(found.get(it, "")) for it in (compiler, framework))
        if same and target and _chip(target) not in map(_chip, one.targets):
            return _fault(
                f"{compiler} {found[compiler]} with {framework} {found[framework]} does not compile for {target}",
                f"these are of {name}, which knows {', '.join(one.targets)}",
                _meant_here() or install.apart(target),
            )
    return None


def _meant_here() -> install.Way | None:
    """The line where the user's override names another chip than the devices', for which the packages may be right."""
    same = _chip(chip.meant()) == _chip(chip.here())
    return None if same else install.Way(f"unset {facts.TARGET_OVERRIDE}")


def doubt(found: Mapping[str, str]) -> install.Fault | None:
    """Packages that can be used together, and had better not be; None where nobody says so."""
    return (
        _never_released(found)
        or _together(found, facts.REPORTED, "are reported to fail together")
        or _of_another_release(found)
    )


def _of_another_release(found: Mapping[str, str]) -> install.Fault | None:
    """A compiler, or a libneuronxla, that the table pairs with other releases of torch-neuronx on XLA."""
    framework = facts.FRAMEWORK_PACKAGE
    if framework not in found or is_native(found) or not (paired := _paired(found)):
        return None
    for package in filter(found.__contains__, (facts.COMPILER_PACKAGE, facts.XLA_PACKAGE)):
        theirs = [zoo.toolchain(name).packages[package] for name in paired]
        others = [one.packages[package] for one in zoo.toolchains().values() if package in one.packages]
        fits = _minor(found[package]) in map(_minor, theirs)
        if package == facts.XLA_PACKAGE:  # all are 2.2: of a build that no release has nobody knows
            fits &= release(found[package])[:3] not in {release(one)[:3] for one in others if one not in theirs}
        if not fits:
            return _fault(
                f"no release in the table has {framework} {found[framework]} with {package} {found[package]}",
                f"{paired[-1]} has it with {package} {public(theirs[-1])}",
                _mended(found),
            )
    return None


def _never_released(found: Mapping[str, str]) -> install.Fault | None:
    """TorchNeuron with a compiler from before it was released."""
    compiler, framework = facts.COMPILER_PACKAGE, facts.FRAMEWORK_PACKAGE
    native = {name: one.packages[compiler] for name, one in zoo.toolchains().items() if one.compiler == "neuron-native"}
    if not is_native(found) or not native:
        return None
    first = min(native, key=lambda name: release(native[name]))
    if release(found[compiler])[:2] >= release(native[first])[:2]:
        return None
    return _fault(
        f"no release in the table has {framework} {found[framework]} with {compiler} {found[compiler]}",
        f"TorchNeuron comes with {compiler} from {native[first]} on ({first})",
        install.apart(chip.here(), "neuron-native"),
    )


def _chip(target: str) -> str:
    return facts.TARGET_CHIPS.get(target, target)


def _within(version: str, first: str, before: str) -> bool:
    numbers = release(version)
    return bool(numbers) and release(first) <= numbers and (not before or numbers < release(before))
