"""Which Neuron toolchain and which devices a recipe is compiled for: this host's, or what the registry says of another.

Nothing of Neuron is imported: importing torch-neuronx takes seconds and may claim a device. Versions come from package
metadata, in which PyPI's placeholders are recognised, and the code behind them is looked for; whether it runs is seen
when the worker starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from msgspec import Struct, structs

from cachekit.compilers.neuron import devices, facts, install, presence
from cachekit.errors import CompilerUnavailableError, UsageError
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Instance
from cachekit.text import a

REQUIRED = (facts.COMPILER_PACKAGE, facts.XLA_PACKAGE, facts.FRAMEWORK_PACKAGE)
NATIVE = facts.NATIVE_PACKAGES


_FAMILY = re.compile(r"[a-z]+\d+")  # of an instance type: `trn1`
INSTEAD = "--compiler inductor runs the same recipe with PyTorch's own compiler"


class NeuronHost(Struct, frozen=True):
    """What Neuron is on a machine."""

    packages: Mapping[str, str]  # versions by package, with their `+<commit>` where it is known
    target: str  # the compiler's name for the chip: `trn1`, `inf2`, `trn2`
    cores: int  # cores as a framework sees them; 0 where the machine has no device (it can still compile)
    lnc: int  # physical cores in each of them
    instance: str  # machine type; empty where it is not known
    here: bool  # it is this machine
    # Packages that are in a host's key, and whose versions nobody here knows; see `zoo.Toolchain`.
    open: Mapping[str, str] = {}


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
    found = {}
    for name in (*facts.TOOLCHAIN_PACKAGES, *facts.TRAINING_PACKAGES, facts.LORA_PACKAGE, facts.LITE_PACKAGE):
        try:
            # Without the file METADATA importlib gives None, or a KeyError.
            found[name] = metadata.version(name) or ""
        except metadata.PackageNotFoundError:
            continue
        except (KeyError, OSError, ValueError):
            found[name] = ""
    return found


def placeholders(found: Mapping[str, str]) -> list[str]:
    """Packages that are PyPI's placeholders, by their versions: they install, and fail to import."""
    bounds = facts.FIRST_RELEASES
    return [name for name, version in found.items() if name in bounds and release(version) < release(bounds[name])]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version that count for its order: `1.0.post1` is 1, as `1.0.0` is."""
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version.strip())
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def without_code(found: Mapping[str, str]) -> list[str]:
    """Packages that are installed by their metadata, and have no module that could be imported. Executes nothing."""
    return [name for name, module in facts.PACKAGE_MODULES.items() if name in found and not _importable(module)]


def _importable(module: str) -> bool:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a module of that name is there already, and is none of a file
        return False
    return spec is not None and spec.origin is not None  # a bare folder of the name has no origin


def available(required: Sequence[str] = REQUIRED) -> bool:
    """Whether this environment has a Neuron toolchain: real packages, with their code."""
    return not (required is REQUIRED and is_native(versions())) and _lacking(required) is None


def is_native(found: Mapping[str, str]) -> bool:
    """Whether these packages are TorchNeuron, which has its own device, and not torch-neuronx on XLA."""
    return release(found.get(facts.FRAMEWORK_PACKAGE, "")) >= release(facts.NATIVE_FIRST)


def native_available() -> bool:
    """Whether this environment has TorchNeuron."""
    return is_native(versions()) and available(NATIVE)


class Fault(Struct, frozen=True):
    """What is wrong with Neuron's packages in this environment, why, and the command that mends it."""

    message: str
    cause: str
    run: str

    def error(self, message: str = "") -> CompilerUnavailableError:
        """As an error; `message` says what it is the cause of."""
        cause = f"{self.message}; {self.cause}" if message and self.cause else self.message if message else self.cause
        return CompilerUnavailableError(message or self.message, cause=cause, hint=f"{self.run}; or {INSTEAD}")


def fault(required: Sequence[str]) -> Fault | None:
    """What is wrong with these packages at least; None where nothing is."""
    return (
        _twice()
        or _lacking(required)
        or _together(versions(), facts.NOT_TOGETHER, "cannot be used")
        or _of_another_chip(versions())
    )


def _lacking(required: Sequence[str]) -> Fault | None:
    """Why these packages are no toolchain for this machine's chip; None where they are whole, and for it."""
    found, target = versions(), chip()
    compiler = "neuron-native" if required is NATIVE and not is_native(found) else ""
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
    if facts.LITE_PACKAGE in found and facts.FRAMEWORK_PACKAGE not in found:
        return _fault(
            f"{facts.LITE_PACKAGE} {found[facts.LITE_PACKAGE]} is installed, which serves models and trains none",
            "SDK 2.30 to 2.32 have it for vLLM on Trn2 and Trn3; leave this environment to it",
            install.apart(target, compiler),
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
            f"installed by name only: there is no module {', '.join(facts.PACKAGE_MODULES[name] for name in empty)}",
            install.way(target, tuple(empty), compiler),
        )
    if is_native(found) and target and _chip(target) not in facts.NATIVE_CHIPS:
        name = facts.FRAMEWORK_PACKAGE
        return _fault(
            f"{name} {found[name]} is TorchNeuron, which does not run on {target}",
            f"it knows {', '.join(sorted(facts.NATIVE_CHIPS))}",
            install.way(target, (name,)),
        )
    return None


def _fault(message: str, cause: str, way: install.Way) -> Fault:
    return Fault(message, f"{cause}; {way.why}" if way.why else cause, way.run)


def _twice() -> Fault | None:
    """A package of which one folder has two versions: pip was cut off, or told to ignore what is installed."""
    for name, found in installed_twice().items():
        return _fault(
            f"{name} is installed twice: {', '.join(found)}",
            "which files are whose nobody can tell",
            install.apart(chip()),
        )
    return None


@cache
def installed_twice() -> dict[str, list[str]]:
    """Neuron's packages that one folder of this environment has several versions of."""
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


def _together(found: Mapping[str, str], rows: Sequence[facts.Pair], verdict: str) -> Fault | None:
    """Packages of which each is sound, and of which somebody knows that they are of two stacks, or fail together."""
    for one, other, why, wanted in rows:
        if all(_within(found.get(name, ""), first, before) for name, first, before in (one, other)):
            said = " with ".join(f"{name} {found[name]}" for name, *_ in (one, other))
            install_it = install.Way(f"pip install --extra-index-url {facts.PACKAGE_INDEX} {wanted}")
            return _fault(f"{said} {verdict}", why, install_it if wanted else install.apart(chip()))
    return None


def _of_another_chip(found: Mapping[str, str]) -> Fault | None:
    """Packages of a release of the table that does not compile for this machine's chip."""
    target, compiler, framework = chip(), facts.COMPILER_PACKAGE, facts.FRAMEWORK_PACKAGE
    for name, one in zoo.toolchains().items():
        same = all(public(one.packages.get(it, "")) == public(found.get(it, "")) for it in (compiler, framework))
        if same and target and _chip(target) not in map(_chip, one.targets):
            return _fault(
                f"{compiler} {found[compiler]} with {framework} {found[framework]} does not compile for {target}",
                f"these are of {name}, which knows {', '.join(one.targets)}",
                install.apart(target),
            )
    return None


def doubt(found: Mapping[str, str]) -> Fault | None:
    """Packages that can be used together, and had better not be; None where nobody says so."""
    return _together(found, facts.REPORTED, "are reported to fail together") or _never_released(found)


def _never_released(found: Mapping[str, str]) -> Fault | None:
    """TorchNeuron with a compiler from before it was released."""
    compiler, framework = facts.COMPILER_PACKAGE, facts.FRAMEWORK_PACKAGE
    native = {name: one.packages[compiler] for name, one in zoo.toolchains().items() if one.compiler == "neuron-native"}
    if not is_native(found) or not native:
        return None
    first = min(native, key=lambda name: release(native[name]))
    if release(found[compiler])[:2] >= release(native[first])[:2]:
        return None
    return Fault(
        f"no release in the table has {framework} {found[framework]} with {compiler} {found[compiler]}",
        f"TorchNeuron comes with {compiler} from {native[first]} on ({first})",
        install.apart(chip(), "neuron-native").run,
    )


def _chip(target: str) -> str:
    return facts.TARGET_CHIPS.get(target, target)


def _within(version: str, first: str, before: str) -> bool:
    numbers = release(version)
    return bool(numbers) and release(first) <= numbers and (not before or numbers < release(before))


def chip() -> str:
    """The compiler's name for this machine's chip, asked of the user's override, the devices, and the firmware.

    Empty where nothing tells: a machine without Neuron.
    """
    said = os.environ.get(facts.TARGET_OVERRIDE, "")
    if said in facts.TARGETS:
        return said
    if not presence.may_have_devices():
        return ""
    seen = _devices()
    name = (seen.instance_type if seen else "") or devices.host_instance_type()
    found = target_of("", name, zoo.instances().get(name)) or devices.chip()
    family = _FAMILY.match(name)
    return found or (family[0] if family else "")


def unusable_devices(required: Sequence[str] = ()) -> CompilerUnavailableError | None:
    """The error of a machine that has Neuron devices and lacks these packages; None on every other machine.

    By default the packages are those of the stack that is there.
    """
    wanted = required or (NATIVE if is_native(versions()) else REQUIRED)
    if not presence.may_have_devices() or (wrong := fault(wanted)) is None:
        return None
    there = _there()
    if not there and (failed := _listed()[1]):
        return CompilerUnavailableError(
            "whether this machine has Neuron devices is not known",
            cause=failed,
            hint=f"see what `neuron-ls` prints; or {INSTEAD}",
        )
    if not there:
        return None  # an image with Neuron's tools, on a machine without devices
    return wrong.error(f"this machine has Neuron devices ({there}), and the packages for them cannot be used")


def _there() -> str:
    """What shows that this machine has Neuron devices; empty where nothing does."""
    if nodes := presence.device_nodes():
        return nodes[0]
    seen = _devices()
    if seen is not None and seen.count:
        return "neuron-ls lists them"
    if name := presence.machine():
        return f"it is {a(name)}"
    if presence.driver():
        return "their driver is loaded"
    return "they are on its PCI bus" if presence.pci_chip() else ""


def without_nodes() -> Fault | None:
    """Why a machine that has Neuron devices shows none; None where it shows them, or has none."""
    if presence.device_nodes() or not (presence.machine() or presence.driver() or presence.pci_chip()):
        return None
    name = a(presence.machine() or "machine with Neuron devices")
    if presence.driver():
        return Fault(
            f"this is {name}, and there is no /dev/neuron* here",
            "the driver is loaded: a container must be given the devices",
            facts.CONTAINER_DEVICES,
        )
    return Fault(
        f"this is {name}, and Neuron's driver is not loaded",
        "without it there is no /dev/neuron*, and nothing runs on the devices",
        install.driver(),
    )


def this_host(required: Sequence[str] = REQUIRED) -> NeuronHost:
    """The Neuron toolchain (these packages at least) and devices of this machine.

    Raises:
        CompilerUnavailableError: The packages are absent, are placeholders, fail together, or are of the other stack;
            or the devices of this machine cannot be reached, and nobody says what else to compile for.
        UsageError: `NEURON_PLATFORM_TARGET_OVERRIDE` names no target.
    """
    found = versions()
    if required is REQUIRED and is_native(found):
        raise CompilerUnavailableError(
            f"{facts.FRAMEWORK_PACKAGE} {found[facts.FRAMEWORK_PACKAGE]} is TorchNeuron, which does without XLA",
            cause=f"{facts.FRAMEWORK_PACKAGE} runs on PyTorch/XLA before {facts.NATIVE_FIRST} only",
            hint="--compiler neuron-native",
        )
    if wrong := fault(required):
        raise unusable_devices(required) or wrong.error()
    if required is NATIVE and not is_native(found):
        raise CompilerUnavailableError(
            f"{facts.FRAMEWORK_PACKAGE} {found[facts.FRAMEWORK_PACKAGE]} is the one on PyTorch/XLA",
            cause=f"TorchNeuron begins with {facts.FRAMEWORK_PACKAGE} {facts.NATIVE_FIRST}",
            hint="--compiler neuron is for this one",
        )
    if not os.environ.get(facts.TARGET_OVERRIDE) and (wrong := without_nodes()):
        raise wrong.error()
    seen = _devices()
    name = (seen.instance_type if seen else "") or devices.host_instance_type()
    known = zoo.instances().get(name)
    target = target_of(os.environ.get(facts.TARGET_OVERRIDE, ""), name, known) or devices.chip()
    nodes = len(presence.device_nodes())
    able = [one for one, its in facts.TARGET_CHIPS.items() if required is not NATIVE or its in facts.NATIVE_CHIPS]
    if not target and nodes:
        raise CompilerUnavailableError(
            f"this machine has Neuron devices ({presence.device_nodes()[0]}), and nothing says of which chip",
            cause=_listed()[1]
            or f"neither neuron-ls, nor the driver, nor the machine's type ({name or 'unknown'}) does",
            hint=f"set {facts.TARGET_OVERRIDE} ({', '.join(able)})",
        )
    if not target:
        raise CompilerUnavailableError(
            "there is no Neuron device here to compile for",
            cause=f"neuron-ls finds none, and {name or 'this machine'} is not an instance type that has one",
            hint=f"set {facts.TARGET_OVERRIDE} ({', '.join(able)}) to compile for another machine",
        )
    cores = (seen.cores if seen else None) or (known.cores if known else nodes * facts.CORES_OF_CHIP.get(target, 0))
    said = os.environ.get(facts.LNC, "")
    lnc = (int(said) if said.isdecimal() else 0) or (seen.lnc if seen else None) or facts.DEFAULT_LNC.get(target, 1)
    return NeuronHost(found, target, cores, lnc, name, here=True)


def named(toolchain: str, instance: str, compiler: str = "neuron") -> NeuronHost:
    """A machine that is not here, from the registry; of an empty toolchain the newest that compiles for the instance.

    Raises:
        UnknownNameError: The registry has no such toolchain or instance.
        UsageError: They do not go together, or no instance was named.
    """
    if not instance:
        raise UsageError(
            f"the toolchain {toolchain} needs an instance to compile for",
            hint="add --instance trn1.2xlarge, or another of `cachekit zoo ls instances`",
        )
    machine = zoo.instance(instance)
    if not machine.target:
        raise UsageError(
            f"{instance} has no Neuron device", hint="`cachekit zoo ls instances` lists those that have one"
        )
    if not toolchain:
        fitting = zoo.toolchains_for(machine.target, compiler)
        if not fitting:
            raise UsageError(
                f"no toolchain of the registry compiles for {machine.target} with {compiler}",
                hint="`cachekit zoo ls toolchains`",
            )
        toolchain = fitting[-1]
    release = zoo.toolchain(toolchain)
    if release.compiler != compiler:
        others = zoo.toolchains_for(machine.target, compiler)
        raise UsageError(
            f"{toolchain} is a toolchain of {release.compiler}, not of {compiler}",
            cause=f"its {facts.FRAMEWORK_PACKAGE} is {release.packages[facts.FRAMEWORK_PACKAGE]}; "
            f"TorchNeuron begins with {facts.NATIVE_FIRST}",
            hint=f"--compiler {release.compiler}" + (f", or --toolchain {others[-1]}" if others else ""),
        )
    if release.trains == "no":
        fitting = zoo.toolchains_for(machine.target)
        raise UsageError(
            f"nothing trains with {toolchain}",
            cause=release.evidence,
            hint=f"--toolchain {fitting[-1]}" if fitting else "`cachekit zoo ls toolchains` lists others",
        )
    if machine.target not in release.targets:
        raise UsageError(
            f"{toolchain} does not compile for {instance}",
            cause=f"it knows {', '.join(release.targets)}; {instance} is {machine.target}",
            hint="`cachekit zoo ls toolchains` lists others",
        )
    lnc = facts.DEFAULT_LNC.get(machine.target, 1)
    return NeuronHost(
        dict(release.packages), machine.target, machine.cores, lnc, instance, here=False, open=dict(release.open)
    )


def target_of(override: str, instance: str, known: Instance | None) -> str:
    """The compiler's name for a machine's chip: as the user says, as the registry says, or by the instance's family.

    Raises:
        UsageError: The user says a name that is none: nothing could be compared with it.
    """
    if override:
        if override not in facts.TARGETS:
            raise UsageError(
                f"{facts.TARGET_OVERRIDE}={override} is not a known target",
                hint=f"set it to one of {', '.join(facts.TARGETS)}",
            )
        return override
    if known is not None:
        return known.target
    family = _FAMILY.match(instance)
    return facts.TARGET_FAMILIES.get(family[0], "") if family else ""


def _devices() -> devices.Devices | None:
    return _listed()[0]


@cache
def _listed() -> tuple[devices.Devices | None, str]:
    """What neuron-ls lists, and why it lists nothing where it failed."""
    try:
        return devices.list_devices(), ""
    except devices.DeviceListError as error:
        return None, str(error)
