"""Which Neuron machine a recipe is compiled for: this one, or what the registry says of another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from cachekit.compilers.neuron import chip, devices, facts, install, installed, presence
from cachekit.errors import CompilerUnavailableError, UsageError
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Instance
from cachekit.text import a, count


class NeuronHost(Struct, frozen=True):
    """What Neuron is on a machine."""

    packages: Mapping[str, str]  # versions by package, with their `+<commit>` where it is known
    target: str  # the compiler's name for the chip: `trn1`, `inf2`, `trn2`
    cores: int  # cores as a framework sees them; 0 where the machine has no device (it can still compile)
    lnc: int  # physical cores in each of them
    instance: str  # instance type; empty where it is not known
    here: bool  # it is this machine
    partly: str = ""  # a sentence where it shows not all of its devices
    astray: str = ""  # a sentence where its devices are not of the chip that it compiles for
    # Packages that are in a host's key, and whose versions nobody here knows; see `zoo.Toolchain`.
    open: Mapping[str, str] = {}


def unusable(required: Sequence[str] = ()) -> install.Fault | None:
    """Why a machine with Neuron devices, or an environment with torch-neuronx, has nothing to compile with; else None.

    By default these packages are those of the stack that is likely.
    """
    may_have = presence.may_have_devices()
    if not (may_have or presence.meant()) or (wrong := installed.fault(required)) is None:
        return None
    if may_have and (shown_by := there()):
        wrong = structs.replace(wrong, cause="; ".join(filter(None, (wrong.cause, astray()))))
        return wrong.of(f"this machine has Neuron devices ({shown_by}), and the packages for them cannot be used")
    if may_have and (failed := chip.listed()[1]):
        unknown = "whether this machine has Neuron devices is not known"
        return install.Fault(unknown, failed, "", "see what `neuron-ls` prints")
    # Else it is an image with Neuron's tools, on a machine without devices.
    return wrong if presence.meant() else None


def there() -> str:
    """What shows that this machine has Neuron devices; empty where nothing does."""
    if nodes := presence.device_nodes():
        return nodes[0]
    seen = chip.listed()[0]
    if seen is not None and seen.count:
        return "neuron-ls lists them"
    if name := presence.machine():
        return f"it is {a(name)}"
    if presence.driven():
        return "their driver has them"
    return "they are on its PCI bus" if presence.pci_chip() else ""


def without_nodes() -> install.Fault | None:
    """Why a machine that has Neuron devices shows none; None where it shows them, or has none."""
    if presence.device_nodes() or not (presence.machine() or presence.driven() or presence.pci_chip()):
        return None
    name = a(presence.machine() or "machine with Neuron devices")
    if presence.driven():
        return install.Fault(
            f"this is {name}, and there is no /dev/neuron* here",
            "the driver has devices: a container must be given them",
            facts.CONTAINER_DEVICES,
        )
    if presence.driver():
        return install.Fault(
            f"this is {name}, and Neuron's driver has found no device",
            "it is loaded, and there is no /dev/neuron*; `sudo dmesg` says why",
            facts.DRIVER_AGAIN,
        )
    return install.Fault(
        f"this is {name}, and Neuron's driver is not loaded",
        f"without it there is no /dev/neuron*, and nothing runs on the devices; {facts.REPOSITORY}",
        install.on_system(facts.DRIVER),
    )


def of_the_other_stack(required: Sequence[str]) -> CompilerUnavailableError | None:
    """The error of a torch-neuronx that is not the one of these packages; None where it is, or is absent."""
    found, name = installed.versions(), facts.FRAMEWORK_PACKAGE
    native = installed.is_native(found)
    if name not in found or installed.placeholders(found) or native == (required is installed.NATIVE):
        return None
    if native:
        return CompilerUnavailableError(
            f"{name} {found[name]} is TorchNeuron, which does not use XLA",
            cause=f"{name} runs on PyTorch/XLA before {facts.NATIVE_FIRST} only",
            hint="--compiler neuron-native",
        )
    return CompilerUnavailableError(
        f"{name} {found[name]} runs on PyTorch/XLA",
        cause=f"TorchNeuron begins with {name} {facts.NATIVE_FIRST}",
        hint="--compiler neuron is for this one",
    )


def this_host(required: Sequence[str] = installed.REQUIRED) -> NeuronHost:
    """The Neuron toolchain (these packages at least) and devices of this machine.

    Raises:
        CompilerUnavailableError: The packages are absent, are placeholders, fail together, or are of the other stack;
            or the devices of this machine cannot be reached, and nobody says what else to compile for.
        UsageError: `NEURON_PLATFORM_TARGET_OVERRIDE` names no target, or `NEURON_LOGICAL_NC_CONFIG` no LNC.
    """
    found = installed.versions()
    if other := of_the_other_stack(required):
        raise other
    if wrong := installed.fault(required):
        raise (unusable(required) or wrong).error()
    if not os.environ.get(facts.TARGET_OVERRIDE) and (wrong := without_nodes()):
        raise wrong.error()
    seen = chip.listed()[0]
    name = (seen.instance_type if seen else "") or devices.host_instance_type()
    known = zoo.instances().get(name)
    target = chip.of(os.environ.get(facts.TARGET_OVERRIDE, ""), name, known) or devices.chip()
    if target and target not in facts.TARGETS:
        raise CompilerUnavailableError(
            f"this machine's chip is {target}", cause=install.way(target).why, hint=install.PAGE
        )
    able = [
        one for one, its in facts.TARGET_CHIPS.items() if required is not installed.NATIVE or its in facts.NATIVE_CHIPS
    ]
    if not target and presence.device_nodes():
        raise CompilerUnavailableError(
            f"this machine has Neuron devices ({presence.device_nodes()[0]}), and their chip could not be identified",
            cause=chip.listed()[1]
            or f"neither neuron-ls, nor the driver, nor the machine's type ({name or 'unknown'}) names it",
            hint=f"set {facts.TARGET_OVERRIDE} ({', '.join(able)})",
        )
    if not target:
        raise CompilerUnavailableError(
            "there is no Neuron device here to compile for",
            cause=f"neuron-ls finds none, and {name or 'this machine'} is not an instance type that has one",
            hint=f"set {facts.TARGET_OVERRIDE} ({', '.join(able)}) to compile for another machine",
        )
    cores, partly = shown(name, known, target)
    said = os.environ.get(facts.LNC, "").strip()
    if said and said not in facts.LNCS:
        raise UsageError(f"{facts.LNC}={said} cannot be read", hint=f"set it to one of {', '.join(facts.LNCS)}")
    listed = (seen.lnc if seen else None) or facts.DEFAULT_LNC.get(target, 1)
    lnc = int(said or 0) or listed
    # With fewer physical cores in each, there are more of them than are listed [SDK: logical-neuroncore-config].
    return NeuronHost(found, target, cores * listed // lnc, lnc, name, here=True, partly=partly, astray=astray())


def astray() -> str:
    """Why what this shell has compiled does not run on this machine's devices; empty where it does, or none is here."""
    said, its = os.environ.get(facts.TARGET_OVERRIDE, ""), chip.shown()
    theirs = facts.TARGET_CHIPS.get(said)
    if not theirs or not its or theirs == facts.TARGET_CHIPS.get(its, its) or without_nodes():
        return ""
    return f"the devices here are {its}, and {facts.TARGET_OVERRIDE}={said}: what is compiled for it does not run here"


def shown(name: str, known: Instance | None, target: str = "") -> tuple[int, str]:
    """Cores of the devices that this machine shows, and a sentence where it shows not all of them; else empty.

    A container has the devices whose nodes it was given [SDK: containers]; its firmware names the whole machine.
    """
    seen, nodes = chip.listed()[0], len(presence.device_nodes())
    listed = seen.count if seen else 0
    each = facts.CORES_OF_CHIP.get(target, 0)
    if seen and listed and seen.cores:
        each = seen.cores // listed
    elif known:
        each = known.cores // known.chips
    there = min(filter(None, (listed, nodes)), default=known.chips if known else 0)
    partly = ""
    if listed and nodes and listed != nodes:
        partly = (
            f"neuron-ls lists {count(listed, 'device')}, and {presence.DEVICE_FOLDER} has {count(nodes, 'node')}: "
            f"{there} {'is' if there == 1 else 'are'} taken"
        )
    elif known and there < known.chips:
        partly = f"this machine shows {there} of the {known.chips} devices of {a(name)}, as a container may"
    return there * each, partly


def _example(toolchain: str) -> str:
    """An instance that a toolchain of the registry compiles for."""
    targets = zoo.toolchain(toolchain).targets
    return next((name for name, one in zoo.instances().items() if one.target in targets), "trn1.2xlarge")


def named(toolchain: str, instance: str, compiler: str = "neuron") -> NeuronHost:
    """A machine that is not here, from the registry; of an empty toolchain the newest that compiles for the instance.

    Raises:
        UnknownNameError: The registry has no such toolchain or instance.
        UsageError: They do not go together, or no instance was named.
    """
    if not instance:
        raise UsageError(
            f"the toolchain {toolchain} needs an instance to compile for",
            hint=f"add --instance {_example(toolchain)}, or another of `cachekit zoo ls instances`",
        )
    machine = zoo.instance(instance)
    if not machine.target:
        raise UsageError(
            f"{instance} has no Neuron device", hint="`cachekit zoo ls instances` lists those that have one"
        )
    if not toolchain:
        fitting = zoo.toolchains_for(machine.target, compiler)
        if not fitting:
            others = zoo.toolchains_for(machine.target)
            raise UsageError(
                f"no toolchain of the registry compiles for {machine.target} with {compiler}",
                hint=f"--compiler {zoo.toolchain(others[-1]).compiler}" if others else "`cachekit zoo ls toolchains`",
            )
        toolchain = fitting[-1]
    release = zoo.toolchain(toolchain)
    if release.trains == "no":
        theirs = release.shipped(machine.target)
        # The newest of each compiler: what NeuronTrainer splits, TorchNeuron does not train.
        known = (zoo.toolchains_for(machine.target, one) for one in ("neuron-native", "neuron"))
        fitting = [names[-1] for names in known if names]
        raise UsageError(
            f"nothing trains with {toolchain}",
            cause=theirs.evidence if theirs else release.evidence,
            hint=f"--toolchain {', or '.join(fitting)}" if fitting else "`cachekit zoo ls toolchains` lists others",
        )
    if release.compiler != compiler:
        others = zoo.toolchains_for(machine.target, compiler)
        raise UsageError(
            f"{toolchain} is a toolchain of {release.compiler}, not of {compiler}",
            cause=f"its {facts.FRAMEWORK_PACKAGE} is {release.packages[facts.FRAMEWORK_PACKAGE]}; "
            f"TorchNeuron begins with {facts.NATIVE_FIRST}",
            hint=f"--compiler {release.compiler}" + (f", or --toolchain {others[-1]}" if others else ""),
        )
    if machine.target not in release.targets:
        raise UsageError(
            f"{toolchain} does not compile for {instance}",
            cause=f"it knows {', '.join(release.targets)}; {instance} is {machine.target}"
            + (f": {theirs.evidence}" if (theirs := release.shipped(machine.target)) else ""),
            hint=f"--toolchain {others[-1]}" if (others := zoo.toolchains_for(machine.target)) else "",
        )
    lnc = facts.DEFAULT_LNC.get(machine.target, 1)
    return NeuronHost(
        dict(release.packages), machine.target, machine.cores, lnc, instance, here=False, open=dict(release.open)
    )
