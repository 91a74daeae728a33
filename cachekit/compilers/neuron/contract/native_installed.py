"""Checks on TorchNeuron that need no compile: packages, what its files name, and the cores of a process."""

from __future__ import annotations

from collections.abc import Iterable

from cachekit.compilers.neuron import device_output, facts, host
from cachekit.compilers.neuron.contract import installed
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import Lab

_STRINGS = "looks through the package's files; nothing of it is run"
_COUNT = "asks torch.accelerator.device_count()"


@check(
    "native-packages",
    "TorchNeuron is {FRAMEWORK_PACKAGE} {NATIVE_FIRST} or later with {COMPILER_PACKAGE} and torch, by package metadata",
    where=("NATIVE_FIRST", "NATIVE_PACKAGES"),
    how="importlib.metadata",
)
def packages(lab: Lab) -> Seen:
    """The packages that go into keys are there under these names."""
    found = lab.packages.metadata
    wanted = (*facts.NATIVE_PACKAGES, "torch")
    missing = [name for name in wanted if name not in found]
    words = ", ".join(f"{name} {found[name]}" for name in (*wanted, "nki") if name in found)
    return Seen(not missing and host.is_native(found), words + (f"; absent: {', '.join(missing)}" if missing else ""))


@check(
    "native-imports",
    "{COMPILER_MODULE} and {FRAMEWORK_MODULE} import",
    where=("COMPILER_MODULE", "FRAMEWORK_MODULE"),
    how="python -c 'import …', one process",
)
def imports(lab: Lab) -> Seen:
    """What is installed really imports."""
    wanted = (facts.COMPILER_MODULE, facts.FRAMEWORK_MODULE)
    failed = {name: why for name, why in lab.packages.failed.items() if name in wanted}
    return Seen(not failed, "; ".join(f"{name}: {why}" for name, why in failed.items()) or ", ".join(wanted))


@check(
    "native-variables",
    "it reads {NATIVE_ROOT_VARIABLE}, {NATIVE_LOCAL}, {NATIVE_METRICS} and one of {NATIVE_DISABLE}",
    where=("NATIVE_ROOT_VARIABLE", "NATIVE_LOCAL", "NATIVE_METRICS", "NATIVE_DISABLE"),
    how=_STRINGS,
)
def variables(lab: Lab) -> Seen:
    """The variables that cachekit sets, or takes away, are ones that its code knows."""
    needed = (facts.NATIVE_ROOT_VARIABLE, facts.NATIVE_LOCAL, facts.NATIVE_METRICS)
    found = lab.native.in_package(*needed, *facts.NATIVE_DISABLE)
    fits = found.issuperset(needed) and not found.isdisjoint(facts.NATIVE_DISABLE)
    missing = [name for name in (*needed, *facts.NATIVE_DISABLE) if name not in found]
    return Seen(fits, f"in its files: {_list(found) or 'none'}" + (f"; not: {_list(missing)}" if missing else ""))


@check(
    "native-default-root",
    "with no variable it keeps its graphs in {NATIVE_DEFAULT_ROOT}",
    where=("NATIVE_DEFAULT_ROOT",),
    how=f"{_STRINGS}, as to try it would write into your own folder",
)
def default_root(lab: Lab) -> Seen:
    """Where `env`, `doctor` and `import` look for a user's own graphs."""
    if facts.NATIVE_DEFAULT_ROOT in lab.native.in_package(facts.NATIVE_DEFAULT_ROOT):
        return Seen(fits=True, words="its files name it")
    raise UnknownError("its files do not name it, and nothing else tells where it is")


@check(
    "native-cores",
    "{NUM_CORES} and {VISIBLE_CORES} leave a process so many cores; of both, {VISIBLE_CORES} counts",
    where=("NUM_CORES", "VISIBLE_CORES", "cores.allowed"),
    how=f"{_COUNT} with each",
)
def cores(lab: Lab) -> Seen:
    """As many workers are started as the runtime gives cores."""
    count = lab.native.cores
    if (whole := lab.native.all_cores) < 2:  # noqa: PLR2004
        raise UnknownError(f"a process has {whole} cores without them: fewer cannot be told")
    found = {
        "number": count(**{facts.NUM_CORES: "1"}),
        "list": count(**{facts.VISIBLE_CORES: "0-1" if whole > 2 else "0"}),  # noqa: PLR2004
        "both": count(**{facts.VISIBLE_CORES: "0", facts.NUM_CORES: "2"}),
    }
    wanted = {"number": 1, "list": 2 if whole > 2 else 1, "both": 1}  # noqa: PLR2004
    return Seen(found == wanted, f"{whole} without; " + ", ".join(f"{name} {n}" for name, n in found.items()))


@check(
    "native-count",
    "a process without these variables has as many cores as neuron-ls lists",
    where=("device_output.parse_neuron_ls", "host.this_host"),
    how=f"{_COUNT} without them, and runs neuron-ls",
)
def count(lab: Lab) -> Seen:
    """One worker is started for each core that neuron-ls lists."""
    try:
        listed = installed.listed_devices(lab).cores
    except device_output.DeviceListError as error:
        raise UnknownError(str(error)) from error
    if not listed:
        raise UnknownError("neuron-ls tells no cores")
    found = lab.native.all_cores
    return Seen(found == listed, f"{found}; neuron-ls lists {listed}")


def _list(found: Iterable[str]) -> str:
    return ", ".join(sorted(found))


CHECKS = (
    packages, imports, installed.version_source, installed.compiler_version, installed.neuron_ls, installed.instance,
    installed.neuron_monitor, variables, default_root, cores, count,
)  # fmt: skip
