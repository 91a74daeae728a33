"""What `cachekit doctor` looks at of Neuron: packages, releases, flags, the cache on disk."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cachekit import files
from cachekit.compilers.neuron import (
    caches,
    chip,
    cores,
    facts,
    flags,
    host,
    install,
    installed,
    locks,
    nki,
    presence,
    remembered,
)
from cachekit.compilers.neuron.devices import DeviceListError, host_instance_type, list_devices
from cachekit.compilers.neuron.entries import CacheEntry, scan_if_there
from cachekit.compilers.neuron.native import contents, split
from cachekit.compilers.neuron.neff import NeffError, read
from cachekit.compilers.neuron.root import resolve, resolve_native, stranger, work_folder
from cachekit.config import Config
from cachekit.errors import CachekitError, UsageError
from cachekit.health import Check, Finding, age, of_others, of_this_environment, trouble
from cachekit.private import new_folder
from cachekit.recipe import zoo
from cachekit.text import count
from cachekit.whose import standing

LOOKED_AT = 200  # graphs of TorchNeuron's cache that are read, of thousands


def concerned() -> bool:
    """Whether this host has anything of Neuron: devices, packages, a cache, or a setting that is looked at here."""
    there = {*installed.versions(), *installed.half_installed()}
    packages = there.intersection((*facts.PACKAGE_MODULES, facts.LITE_PACKAGE))
    # Others of the name's beginning are other programs': NEURON_MODULE_OPTIONS is of a simulator of nerve cells.
    said = any(
        os.environ.get(name)
        for name in (facts.CC_FLAGS, facts.CACHE_URL, facts.NATIVE_ROOT_VARIABLE, facts.LIBTORCH_ROOT)
    )
    # An empty folder may be a container's mount, or what is left of another tool.
    cached = any(files.entries(folder) for folder in (resolve().folder, resolve_native().folder) if folder)
    return bool(packages or said or cached or caches.vllm_folders()) or presence.may_have_devices() or presence.driver()


def packages(config: Config) -> Iterator[Finding]:
    """PyPI's placeholders install, and fail on import; a machine with Neuron devices has packages for them."""
    found = installed.versions()
    required = _required(config)
    wrong = installed.fault(_named(config))
    shown = host.there() if config.compiler == "inductor" else ""
    idle = f"; this machine has Neuron devices ({shown}), which {config.compiler} does not use" if shown else ""
    if config.compiler != "inductor" and (other := host.of_the_other_stack(required)):
        yield Finding("problem", f"{other.message}; {other.cause}", other.hint)
    elif wrong is None:
        names = ", ".join(f"{name} {found[name]}" for name in required)
        if doubt := installed.doubt(found):
            yield Finding("problem", f"{doubt.message}: {doubt.cause}{idle}", doubt.help, doubt.run)
        else:
            said = f"{names}. {facts.NATIVE_EXPERIMENTAL}" if required is installed.NATIVE else names
            yield Finding("ok", f"{said}{idle}")
    elif config.compiler == "inductor":
        yield Finding("ok", f"not needed: another compiler was chosen{idle}")
    elif in_vain := host.unusable(_named(config)):
        mends = "do this" if in_vain.run else in_vain.help
        choose = ", or ".join(filter(None, (mends, f"choose another compiler: {install.INSTEAD}")))
        yield Finding("problem", f"{in_vain.message}; {in_vain.cause}", choose, in_vain.run)
    elif config.compiler != "auto":
        yield Finding("problem", f"{wrong.message}; {wrong.cause}", run=wrong.run)
    else:
        yield Finding("ok", f"no {facts.FRAMEWORK_PACKAGE}: the compiler is PyTorch's Inductor")


def _required(config: Config) -> Sequence[str]:
    """The packages of the compiler that was chosen, or of the one that is likely."""
    return _named(config) or installed.likely()


def _named(config: Config) -> Sequence[str]:
    """The packages of the compiler that was chosen; none where none was."""
    return {"neuron": installed.REQUIRED, "neuron-native": installed.NATIVE}.get(config.compiler, ())


def _no_machine(config: Config) -> CachekitError | None:
    """Why nothing can be compiled here although the packages can be used; None where it can, or others do."""
    required = _required(config)
    if config.compiler == "inductor" or host.of_the_other_stack(required) or installed.fault(required):
        return None
    try:
        host.this_host(required)
    except CachekitError as error:
        return error
    return None


def release(_: Config) -> Iterator[Finding]:
    """Releases whose keys depend on what they must not depend on."""
    version = installed.public(installed.versions().get(facts.COMPILER_PACKAGE, ""))
    if sdk := facts.KEY_BUGS.get(version):
        said = f"{facts.COMPILER_PACKAGE} {version} is of SDK {sdk}: its keys depend on the environment's path"
        run = install.way(chip.here(), (), "neuron").run
        yield Finding("problem", said, "other environments miss; install a later release:", run and f"{run} --upgrade")
    else:
        yield Finding("ok", "no release with a known bug")


def path(_: Config) -> Iterator[Finding]:
    """The compiler is a program that is looked up on PATH; another environment's has another version."""
    if not (installed.available() or installed.native_available()):
        yield Finding("ok", "not needed: no Neuron packages")
        return
    wanted = Path(sys.executable).parent
    found = shutil.which(facts.COMPILER_PACKAGE)
    run = f"export PATH={shlex.quote(str(wanted))}:$PATH"
    if found is None:
        yield Finding("problem", f"{facts.COMPILER_PACKAGE} is not on PATH", run=run)
    elif not of_this_environment(Path(found)):
        said = f"{facts.COMPILER_PACKAGE} on PATH is {found}, of a different environment from {sys.executable}"
        yield Finding("problem", said, run=run)
    else:
        yield Finding("ok", found)


def devices(config: Config) -> Iterator[Finding]:
    """What neuron-ls lists must be understood, and be the machine that the registry describes."""
    if config.compiler != "inductor" and (wrong := host.without_nodes()):
        yield Finding("problem", f"{wrong.message}; {wrong.cause}", run=wrong.run)
        return
    if config.compiler != "inductor" and (astray := host.astray()):
        yield Finding("problem", astray, run=f"unset {facts.TARGET_OVERRIDE}")
        return
    if not (installed.available() or installed.native_available()):
        if config.compiler != "inductor" and host.unusable(_required(config)):
            yield Finding("unknown", "not looked at: Neuron's packages cannot be used")
        elif presence.driver():
            yield Finding("ok", "Neuron's driver is loaded, and has no device")
        else:
            yield Finding("ok", "not needed: no Neuron packages")
        return
    if error := _no_machine(config):
        yield Finding("problem", "; ".join(filter(None, (error.message, error.cause))), error.hint or "")
        return
    try:
        found = list_devices()
    except DeviceListError as error:
        yield Finding("problem", str(error), f"see {facts.ISSUES}; without it cores and chip are the registry's")
        return
    name = (found.instance_type if found else "") or host_instance_type()
    known = zoo.instances().get(name)
    nodes, partly = presence.device_nodes(), host.shown(name, known)[1]
    if found is None or not found.count:
        if nodes:
            said = f"{'neuron-ls lists no device' if found else 'there is no neuron-ls'}, and {nodes[0]} is there"
            where = "" if found else facts.REPOSITORY
            run = "" if found else install.on_system(facts.TOOLS)
            mend = "see what `neuron-ls` prints" if found else ""
            yield Finding("problem", "; ".join(filter(None, (said, partly, where))), mend, run)
        else:
            driven = "Neuron's driver is loaded, and has no device" if presence.driver() else "no Neuron device"
            yield Finding("ok", f"{driven}: this machine can compile, but not train")
        return
    machine = name or "a machine of unknown type"
    words = f"{machine}: {count(found.count, 'device')}, {found.cores or 'unknown'} cores"
    if nodes and len(nodes) != found.count:
        yield Finding("problem", partly, facts.CONTAINER_DEVICES)
    elif known is None:
        yield Finding(
            "problem",
            f"{words}; not in the registry",
            "set the instance type: `cachekit zoo ls instances` lists those that are known",
        )
    elif partly:
        yield Finding("ok", partly)
    elif found.cores and found.cores != known.cores:
        yield Finding(
            "problem", f"{words}; the registry says {known.cores}", "one of the two is wrong: please report it"
        )
    else:
        yield Finding("ok", words)


def options(_: Config) -> Iterator[Finding]:
    """Options in the environment that every run then has."""
    words, _problem = flags.split(os.environ.get(facts.CC_FLAGS, ""))
    if facts.RETRY_FLAG in words:
        said = f"{facts.CC_FLAGS} has {facts.RETRY_FLAG}: every run tries again what cannot be compiled"
        rest = shlex.join(word for word in words if word != facts.RETRY_FLAG)
        yield Finding("problem", said, run=f"export {facts.CC_FLAGS}={shlex.quote(rest)}")
    elif wrong := _wrong_cores():
        yield Finding("problem", f"{wrong.message}; {wrong.cause}", wrong.hint or "")
    else:
        yield Finding("ok", f"{facts.CC_FLAGS}={' '.join(words)}" if words else f"{facts.CC_FLAGS} is not set")


def _wrong_cores() -> UsageError | None:
    """What is wrong with this shell's list or number of cores, where it is known how many there are."""
    if not (installed.available() or installed.native_available()):
        return None
    try:
        machine = host.this_host(installed.NATIVE if installed.native_available() else installed.REQUIRED)
    except CachekitError:  # other checks say so
        return None
    return _refused(lambda: cores.of_run(machine, None))


def _refused(look: Callable[[], object]) -> UsageError | None:
    """What a run would be refused with; None where it would not be."""
    try:
        look()
    except UsageError as error:
        return error
    return None


def root(_: Config) -> Iterator[Finding]:
    """Where Neuron's cache is, and what is wrong with the place."""
    found = resolve()
    if found.origin == "default" and not installed.available() and not found.folder:
        yield Finding("ok", "no Neuron cache on this host")
        return
    wrong = trouble(found.folder, facts.CACHE_URL) if found.folder else None
    if wrong is None and found.path and (whose := standing(found.path)).whose != "own":
        run = ("" if stranger(found.path) else whose.mend) or new_folder(facts.CACHE_URL)
        wrong = Finding("problem", f"{found.path} is not used: somebody else can change it; {whose.why}", run=run)
    if not found.warnings and wrong is None:
        yield Finding("ok", f"{found.path or found.url} ({found.origin})")
    repair = f"{facts.CC_FLAGS} and {facts.CACHE_URL} set its place"
    for warning in found.warnings:
        yield Finding("problem", warning, repair)
    if wrong is not None:
        yield wrong


def stale(_: Config) -> Iterator[Finding]:
    """Locks without an owner: whoever meets one waits for ever."""
    entries = _entries()
    findings = locks.examine(entries)
    live = sum(finding.verdict == "live" for finding in findings)
    if live == len(findings):
        yield Finding("ok", f"{len(entries)} modules, {live} compiling" if live else f"{len(entries)} modules, no lock")
    for finding in findings:
        lock = finding.lock
        words = f"{lock.entry.name}: lock of {age(lock.age)}"
        if finding.verdict == "stale":
            yield Finding("problem", f"{words}, stale: {finding.reason}", run=_remove(lock.path))
        elif finding.verdict == "maybe":
            yield Finding("problem", f"{words}, perhaps stale: {finding.reason}", finding.advice)


def failures(_: Config) -> Iterator[Finding]:
    """Failures that Neuron remembers: such a graph is never compiled again."""
    entries = _entries()
    found = remembered.by_neuron(entries)
    if not found:
        yield Finding("ok", f"{len(entries)} modules, no remembered failure")
    for one in found:
        failure = one.failure
        said = failure.message or "its log is empty"
        repair = "" if failure.clearable else f"{failure.advice}; to compile it again anyway:"
        words = f"{one.entry.name}: failed {age(one.age)} ago, {failure.kind.name}: {said}"
        yield Finding("problem", words, repair, _remove(one.log))


def foreign(_: Config) -> Iterator[Finding]:
    """Modules that another user made: neither their locks nor their failures can be cleared."""
    folder = resolve().folder
    if folder and (others := of_others(folder)):
        said = f"{others} folders in {folder} belong to another user"
        yield Finding("problem", said, run=new_folder(facts.CACHE_URL))
    elif folder and (why := stranger(folder)):
        yield Finding("problem", f"{folder} is not used: {why}", run=new_folder(facts.CACHE_URL))
    elif facts.NKI_PACKAGE in installed.versions() and (error := _refused(nki.check_folder)):
        yield Finding(
            "problem", f"{error.message}; {error.cause}" if error.cause else error.message, run=error.hint or ""
        )
    elif (work := standing(work_folder())).whose != "own":
        said = f"Neuron compiles in {work_folder()}, where somebody else can change it; {work.why}"
        yield Finding("problem", said, run=work.mend or new_folder("TMPDIR"))
    else:
        yield Finding("ok", "all of it is this user's" if folder else "no Neuron cache on this host")


def native(_: Config) -> Iterator[Finding]:
    """TorchNeuron's cache: which compiler made a graph is in no name, so a folder of several serves either's."""
    found = resolve_native()
    repair = f"{facts.NATIVE_ROOT_VARIABLE} says where it is"
    for warning in found.warnings:
        yield Finding("problem", warning, repair)
    if not found.folder:
        if not found.warnings:
            yield Finding("ok", "no cache of TorchNeuron's on this host")
        return
    names = sorted(contents(found.folder))
    mixed: set[str] = set()
    damaged: list[tuple[Path, str]] = []
    for name in names[:: max(1, len(names) // LOOKED_AT)]:
        try:
            version = read(found.folder / name, leaks=False).compiler
            mixed |= set() if split(name)[0] else {version}  # a folder of a version is one compiler's alone
        except NeffError as error:
            if error.damaged:
                damaged.append((found.folder / name, error.reason))
        except OSError:
            continue  # gone meanwhile
    for graph, reason in damaged[:3]:
        yield Finding("problem", f"{graph}: {reason}", run=_remove(graph))
    if len(mixed) > 1:
        said = f"compilers {', '.join(sorted(mixed))} share {found.path}, and no name tells their graphs apart"
        repair = (
            "`cachekit store import` sorts them by compiler; give each its own folder with "
            f"{facts.NATIVE_ROOT_VARIABLE}"
        )
        yield Finding("problem", said, repair)
    elif not damaged and not found.warnings:
        yield Finding("ok", f"{found.path} ({found.origin}): {len(names)} compiled graphs")


def serving(_: Config) -> Iterator[Finding]:
    """vLLM-Neuron's cache: the mark of an entry is all that vLLM asks for."""
    found = caches.vllm_folders()
    if not found:
        yield Finding("ok", "no cache of vLLM-Neuron's on this host")
    for folder in found:
        entries = [*caches.vllm_entries(folder)]
        damaged = [one for one in entries if one.damage]
        for one in damaged[:3]:
            said = f"{one.path}: {one.damage}; vLLM takes it for a hit"
            yield Finding("problem", said, run=f"rm -r {shlex.quote(str(one.path))}")
        if not damaged:
            whole = sum(one.marked for one in entries)
            left = f", and {len(entries) - whole} unfinished, which vLLM compiles again" if whole < len(entries) else ""
            yield Finding("ok", f"{folder}: {whole} compiled graphs{left}")


def _entries() -> Sequence[CacheEntry]:
    place = resolve().path
    return scan_if_there(place).entries if place else ()


def _remove(path: Path) -> str:
    return f"rm {shlex.quote(str(path))}"


CHECKS = (
    Check("neuron-packages", packages, installed=True),
    Check("neuron-release", release, installed=True),
    Check("neuron-path", path, installed=True),
    Check("neuron-devices", devices, installed=True),
    Check("neuron-flags", options),
    Check("neuron-root", root),
    Check("neuron-owner", foreign),
    Check("neuron-locks", stale),
    Check("neuron-failures", failures),
    Check("torchneuron-cache", native),
    Check("vllm-cache", serving),
)
