"""Checks that need no compile: packages, tools, devices, and where the cache is."""

from __future__ import annotations

from cachekit.compilers.neuron import device_output, devices, facts, host
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.recipe import zoo

_IMPORTS = "python -c 'import …', one process"
_LS = "runs neuron-ls and neuron-monitor"


@check(
    "packages",
    "the toolchain is {TOOLCHAIN_PACKAGES}, by package metadata; all but nki are installed",
    where=("TOOLCHAIN_PACKAGES", "FIRST_RELEASES"),
    how="importlib.metadata",
)
def packages(lab: Lab) -> Seen:
    """The packages that go into keys are there under these names."""
    found = lab.packages.metadata
    missing = [name for name in facts.TOOLCHAIN_PACKAGES if name not in found and name != "nki"]
    words = ", ".join(f"{name} {found[name]}" for name in facts.TOOLCHAIN_PACKAGES if name in found)
    return Seen(not missing, words + (f"; absent: {', '.join(missing)}" if missing else ""))


@check(
    "imports",
    "{COMPILER_MODULE}, {XLA_MODULE} and {FRAMEWORK_MODULE} import",
    where=("COMPILER_MODULE", "XLA_MODULE", "FRAMEWORK_MODULE"),
    how=_IMPORTS,
)
def imports(lab: Lab) -> Seen:
    """What is installed really imports."""
    found = lab.packages
    if found.failed:
        return Seen(fits=False, words="; ".join(f"{name}: {why}" for name, why in found.failed.items()))
    return Seen(fits=True, words=", ".join(found.modules))


@check(
    "version-source",
    "{COMPILER_MODULE}.__version__ has +<commit>; the metadata has the same version, with or without it",
    where=("COMPILER_MODULE", "host.versions"),
    how=_IMPORTS,
)
def version_source(lab: Lab) -> Seen:
    """Keys use the metadata's version without commit; folders are named after the module's own."""
    own, said = own_version(lab), lab.packages.metadata[facts.COMPILER_PACKAGE]
    fits = host.public(own) == host.public(said) and "+" in own and said in {own, host.public(own)}
    return Seen(fits, f"module {own}, metadata {said}")


@check(
    "compiler-version",
    "`{COMPILER} --version` ends with 0 and says `NeuronX Compiler version` and {COMPILER_MODULE}.__version__",
    where=("COMPILER_VERSION", "COMPILER"),
    how="runs neuronx-cc --version",
)
def compiler_version(lab: Lab) -> Seen:
    """The compiler tells its version as logs have it."""
    own = own_version(lab)
    run = lab.bench.run("neuronx-cc --version", (facts.COMPILER, "--version"))
    found = facts.COMPILER_VERSION.search(f"{run.out}\n{run.err}")
    fits = run.code == 0 and found is not None and found["version"] == own
    return Seen(fits, found[0] if found and not run.code else run.end)


@check(
    "tools",
    "{COMPILER}, {PARALLEL_COMPILE}, neuron-ls and neuron-monitor are on PATH, or in their usual places",
    where=("COMPILER", "PARALLEL_COMPILE", "NEURON_LS", "NEURON_MONITOR"),
    how="looks for each",
)
def tools(lab: Lab) -> Seen:
    """Every tool is found."""
    lab.packages  # noqa: B018 - of a host without Neuron this says nothing
    wanted = ((facts.COMPILER,), (facts.PARALLEL_COMPILE,), facts.NEURON_LS, facts.NEURON_MONITOR)
    found = {names[0]: lab.bench.which(*names) for names in wanted}
    missing = [name for name, path in found.items() if not path]
    words = f"not found: {', '.join(missing)}" if missing else ", ".join(found.values())
    return Seen(not missing, words)


@check(
    "neuron-ls",
    "`neuron-ls {NEURON_LS_JSON}` lists the devices with their cores",
    where=("NEURON_LS", "NEURON_LS_JSON", "device_output.parse_neuron_ls"),
    how="runs it and reads what it prints",
)
def neuron_ls(lab: Lab) -> Seen:
    """The list of devices is understood."""
    try:
        found = listed_devices(lab)
    except device_output.DeviceListError as error:
        return Seen(fits=False, words=str(error))
    words = f"{found.count} devices, {found.cores} cores, LNC {found.lnc or 'not said'}, {found.memory} bytes"
    return Seen(bool(found.count and found.cores and found.memory), words)


@check(
    "instance",
    "neuron-ls, {PRODUCT_NAME} and registry/instances.yaml agree on the type and its cores",
    where=("PRODUCT_NAME", "INSTANCE_TYPE", "DEFAULT_LNC"),
    how="compares them; the registry counts cores as frameworks see them by default",
)
def instance(lab: Lab) -> Seen:
    """The machine is the one that the registry describes."""
    try:
        found = listed_devices(lab)
    except device_output.DeviceListError as error:
        raise UnknownError(str(error)) from error
    sysfs = devices.host_instance_type()
    name = found.instance_type or sysfs
    words = f"neuron-ls {found.instance_type or 'names none'} with {found.cores} cores, sysfs {sysfs or 'names none'}"
    known = zoo.instances().get(name)
    if not name or not found.cores:
        raise UnknownError("nothing names the instance" if not name else "neuron-ls tells no cores")
    if known is None:
        return Seen(fits=False, words=f"{words}; not in the registry")
    same = not (found.instance_type and sysfs) or found.instance_type == sysfs
    return Seen(same and found.cores == known.cores, f"{words}, registry {known.cores}")


@check(
    "neuron-monitor",
    "neuron-monitor prints JSON records that tell devices and cores as neuron-ls does",
    where=("NEURON_MONITOR", "device_output.parse_neuron_monitor"),
    how=_LS,
)
def neuron_monitor(lab: Lab) -> Seen:
    """A record of the monitor is understood."""
    try:
        listed, tool = listed_devices(lab), lab.bench.which(*facts.NEURON_MONITOR)
    except device_output.DeviceListError as error:
        raise UnknownError(str(error)) from error
    if not tool or not listed.cores:
        raise UnknownError("neuron-monitor is not on PATH" if not tool else "neuron-ls tells no cores")
    try:
        record = devices.sample_monitor((tool,))
    except device_output.DeviceListError as error:
        return Seen(fits=False, words=str(error))
    assert record is not None
    cores = (record.devices or 0) * (record.cores_per_device or 0)
    words = f"{record.device_type}, {record.devices} devices, {cores} cores"
    # With several physical cores in one, which of them it counts is not documented.
    fits = record.devices == listed.count and cores in {listed.cores, (listed.cores or 0) * (record.lnc or 1)}
    problems = f"; errors: {'; '.join(record.errors)}" if record.errors else ""
    return Seen(fits, words + problems)


@check(
    "default-root",
    "with neither flag nor variable the cache is in {DEFAULT_ROOT}",
    where=("DEFAULT_ROOT",),
    how="asks libneuronxla's CacheUrl",
)
def default_root(lab: Lab) -> Seen:
    """Asked, not tried: the default is the user's own root."""
    said = lab.asked_root()
    return Seen(said.removeprefix("file://").rstrip("/") == facts.DEFAULT_ROOT, said)


@check(
    "root-variable",
    "{CACHE_URL} names the cache",
    where=("CACHE_URL",),
    how="asks libneuronxla's CacheUrl with it set",
)
def root_variable(lab: Lab) -> Seen:
    """The variable is the one that is read."""
    wanted = str(lab.root("asked"))
    said = lab.asked_root(**{facts.CACHE_URL: wanted})
    return Seen(said.removeprefix("file://").rstrip("/") == wanted, said)


def own_version(lab: Lab) -> str:
    """What the compiler's module says of itself.

    Raises:
        UnknownError: It does not import.
    """
    found = lab.packages
    if facts.COMPILER_MODULE not in found.modules:
        raise UnknownError(f"{facts.COMPILER_MODULE} does not import")
    return found.modules[facts.COMPILER_MODULE]


def asked_devices(lab: Lab) -> device_output.Devices | None:
    """What neuron-ls answers; it is asked once, as one that hangs would be waited for by each check. None without it.

    Raises:
        DeviceListError: It does not answer, or is not understood.
    """
    if "devices" not in lab.made:
        tool = lab.bench.which(*facts.NEURON_LS)
        try:
            lab.made["devices"] = devices.list_devices((tool,)) if tool else None
        except device_output.DeviceListError as error:
            lab.made["devices"] = error
    found: device_output.Devices | device_output.DeviceListError | None = lab.made["devices"]
    if isinstance(found, device_output.DeviceListError):
        raise found
    return found


def listed_devices(lab: Lab) -> device_output.Devices:
    """What neuron-ls lists.

    Raises:
        DeviceListError: That is not understood.
        UnknownError: There is no such tool, or no device.
    """
    lab.packages  # noqa: B018 - of a host without Neuron this says nothing
    if not lab.bench.which(*facts.NEURON_LS):
        raise UnknownError("neuron-ls is not on PATH")
    found = asked_devices(lab)
    if found is None or not found.count:
        raise UnknownError("there is no Neuron device")
    return found


CHECKS = (
    packages, imports, version_source, compiler_version, tools, neuron_ls, instance, neuron_monitor, default_root,
    root_variable,
)  # fmt: skip
