"""Checks on TorchNeuron: where it keeps its graphs, what they are called after, what is found again, and what is left.

All of it is assumed from an unofficial copy of its source and from AWS's pages; see `facts`.
"""

from __future__ import annotations

from collections.abc import Iterable

from cachekit.compilers.neuron import device_output, facts, fit, neff
from cachekit.compilers.neuron.contract import cached, installed, native_installed
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.compilers.neuron.contract.native_lab import FLAG, LEVEL, WRONG_FLAG, Tried, files
from cachekit.compilers.neuron.failures import USER_ERROR, classify

_FIRST = "torch.compile of three lines, in an empty folder"
_AGAIN = "the same script once more"
_NEFF = "reads the NEFFs that the script left"


@check(
    "native-device",
    "tensors get there by to(**{NATIVE_TO}), and a graph is made by torch.compile(…, **{NATIVE_COMPILE})",
    where=("NATIVE_TO", "NATIVE_COMPILE"),
    how=_FIRST,
)
def device(lab: Lab) -> Seen:
    """How the worker has a model trained; without it nothing below can be looked at."""
    tried = lab.native.attempt
    if tried.run.code:
        if why := lab.packages.failed.get(facts.FRAMEWORK_MODULE):
            raise UnknownError(f"{facts.FRAMEWORK_MODULE} does not import: {why}")
        try:
            installed.listed_devices(lab)
        except device_output.DeviceListError as error:
            raise UnknownError(f"{tried.run.end}; {error}") from error
    return Seen(not tried.run.code, tried.run.end if tried.run.code else "it ran to its end")


@check(
    "native-root-variable",
    "graphs are written below {NATIVE_ROOT_VARIABLE}, as files that end in {NATIVE_SUFFIX}",
    where=("NATIVE_ROOT_VARIABLE", "NATIVE_SUFFIX"),
    how=_FIRST,
)
def root_variable(lab: Lab) -> Seen:
    """A run's own folder is where it writes."""
    tried = lab.native.first
    return Seen(bool(tried.graphs), f"{len(tried.graphs)} graphs" if tried.graphs else f"nothing; {tried.run.end}")


@check(
    "native-names",
    "a graph lies in ab/cd/ by the first digits of its name, which is hex: {NATIVE_NAME.pattern}",
    where=("NATIVE_NAME",),
    how=_FIRST,
)
def names(lab: Lab) -> Seen:
    """What `import` takes for a graph."""
    found = sorted(lab.native.graphs)
    odd = [path for path in found if not _sharded(path)]
    return Seen(not odd, (odd or found)[0])


@check(
    "native-files",
    "nothing else stays in the folder: no file beside a graph, none half-written, no lock",
    where=("NATIVE_SUFFIX", "native.contents"),
    how=_FIRST,
)
def nothing_else(lab: Lab) -> Seen:
    """A graph is one file: what is carried is all that is needed."""
    lab.native.graphs  # noqa: B018
    others = lab.native.first.others
    return Seen(not others, _list(others[:5]) if others else "graphs alone")


@check(
    "native-locks",
    "locks are below {NATIVE_LOCAL}, and graphs are not",
    where=("NATIVE_LOCAL",),
    how=_FIRST,
)
def locks(lab: Lab) -> Seen:
    """Runs of two compilers do not wait for each other, and nothing is kept there that a record would lack."""
    lab.native.graphs  # noqa: B018
    found = sorted(files(lab.native.first.local))
    graphs = [name for name in found if name.endswith(facts.NATIVE_SUFFIX)]
    return Seen(bool(found) and not graphs, _list((graphs or found)[:3]) or "nothing is there")


@check(
    "native-digest",
    "a graph is a NEFF with its header of {NEFF_HEADER_SIZE} bytes, and the MD5 of all that follows",
    where=("NEFF_HEADER", "NEFF_HEADER_SIZE", "NEFF_DIGESTS", "NEFF_DIGEST_WORD"),
    how=_NEFF,
)
def digest(lab: Lab) -> Seen:
    """Whether our reader takes every graph for whole."""
    forms = set()
    for name in sorted(lab.native.graphs):
        try:
            forms.add(neff.read(lab.native.first.root / name, leaks=False).digest)
        except neff.NeffError as error:
            return Seen(fits=False, words=f"{name}: {error.reason}")
    return Seen(fits=True, words=_list(forms))


@check(
    "native-contents",
    "a graph tells its compiler, with commit, and the chip of this machine by the names of NEFF_TARGETS",
    where=("NEFF_INFO", "NEFF_KELF", "NEFF_TARGETS", "NATIVE_CHIPS"),
    how=_NEFF,
)
def contents(lab: Lab) -> Seen:
    """What keeps compilers and chips apart, as the names do not."""
    own, target = installed.own_version(lab), cached.machine_target(lab)
    wanted = (own, facts.TARGET_CHIPS.get(target, target))
    found = {(one.compiler, one.chip, one.target) for one in _read(lab)}
    fits = {one[:2] for one in found} == {wanted} and wanted[1] in facts.NATIVE_CHIPS
    words = (f"compiler {own or 'none'}, chip {chip or 'none'} ({name or 'none'})" for own, chip, name in found)
    return Seen(fits, f"{'; '.join(sorted(words))}; this machine is {target}")


@check(
    "native-lnc",
    "a graph is for as many physical cores in one as this machine has in one: DEFAULT_LNC, or what neuron-ls says",
    where=("DEFAULT_LNC", "NEFF_LNC_IS_REQUIRED"),
    how=_NEFF,
)
def lnc(lab: Lab) -> Seen:
    """A graph of another LNC is never restored."""
    found = {one.header.lnc for one in _read(lab)}
    try:
        listed = installed.asked_devices(lab)
    except device_output.DeviceListError:
        listed = None
    set_here = lab.bench.environ.get(facts.LNC, "")
    said = int(set_here) if set_here.isdecimal() else (listed.lnc if listed else None)
    wanted = said or facts.DEFAULT_LNC.get(cached.machine_target(lab), 1)
    return Seen(found == {wanted}, f"{_list(map(str, found))}; cachekit says {wanted}")


@check(
    "native-process",
    "while a graph compiles, {COMPILER} runs below the script",
    where=("COMPILER", "processes.compiles_below"),
    how=f"{_FIRST}, looking at /proc meanwhile",
)
def process(lab: Lab) -> Seen:
    """What seconds of compiling are told by, and --require-warm stops at."""
    seen = lab.native.first.compiler
    return Seen(seen, "seen" if seen else "none was seen from the script's beginning to its end")


@check(
    "native-found",
    "a second process compiles nothing and writes nothing",
    where=("NATIVE_ROOT_VARIABLE", "native.contents"),
    how=_AGAIN,
)
def found_again(lab: Lab) -> Seen:
    """What a warm is for."""
    tried, _ = lab.native.second
    return _fresh(tried)


@check(
    "native-elsewhere",
    "a graph is found in a copy of the folder in another place: the path is not in its name",
    where=("native.restore",),
    how="the same script with a copy of the folder",
)
def elsewhere(lab: Lab) -> Seen:
    """Each run has a folder of its own, so this is every restore."""
    return _fresh(lab.native.moved)


@check(
    "native-reads",
    "each graph that is found is read from its file, which its access time tells",
    where=("reads.Reads",),
    how=f"{_AGAIN}, with access times long past",
)
def reads(lab: Lab) -> Seen:
    """How it is known which graphs a run used."""
    _, used = lab.native.second
    if used is None:
        raise UnknownError("the file system of the temporary folder keeps no access times")
    return Seen(used == lab.native.graphs, f"{len(used)} of {len(lab.native.graphs)} were read")


@check(
    "native-counters",
    "{NATIVE_METRICS}=1 has {NATIVE_METRICS_MODULE} count {NATIVE_COUNTERS[compiled]} and {NATIVE_COUNTERS[found]}",
    where=("NATIVE_METRICS", "NATIVE_METRICS_MODULE", "NATIVE_COUNTERS"),
    how=f"{_FIRST}, and once more",
)
def counters(lab: Lab) -> Seen:
    """What tells it where the file system does not."""
    graphs, (again, _) = len(lab.native.graphs), lab.native.second
    first, second = (_counted(tried) for tried in (lab.native.first, again))
    fits = first[1] > 0 and second[0] > 0 and not second[1]
    error = lab.native.first.told.get("error")
    told = f"found and compiled: {first} with {graphs} new graphs, then {second}"
    return Seen(fits, str(error) if error else told)


@check(
    "native-flags",
    "the flags in {CC_FLAGS} are in a graph's name",
    where=("CC_FLAGS", "native_adapter.NeuronNative"),
    how=f"the script with {FLAG}, in an empty folder",
)
def flags(lab: Lab) -> Seen:
    """Otherwise a neighbour's record would give graphs that were compiled with other flags."""
    return _others(lab, lab.native.flagged)


@check(
    "native-level",
    "the level of optimization in {NATIVE_LEVEL} is in a graph's name",
    where=("NATIVE_LEVEL", "native_adapter.NeuronNative"),
    how=f"the script with {LEVEL} there, in an empty folder",
)
def level(lab: Lab) -> Seen:
    """The same for the variable that TorchNeuron has for it."""
    return _others(lab, lab.native.leveled)


@check(
    "native-version",
    "the compiler's version is not in a graph's name",
    where=("native.directory", "NATIVE_ROOT_VARIABLE"),
    how="the script with a compiler that says another version: its module, its metadata, and --version",
)
def version(lab: Lab) -> Seen:
    """Why each version has a folder of its own; where it is in the name after all, that folder does no harm."""
    if not (other := lab.native.renamed.graphs):
        raise UnknownError("the script left no graph then")
    same = other & lab.native.graphs
    return Seen(other == lab.native.graphs, f"{len(same)} of {len(lab.native.graphs)} names are the same")


@check(
    "native-disable",
    "one of {NATIVE_DISABLE} has nothing kept",
    where=("NATIVE_DISABLE",),
    how="the script with each of them set to 1, in an empty folder",
)
def disable(lab: Lab) -> Seen:
    """What a run must not inherit from a shell; and what `env` warns of."""
    left = lab.native.disabled
    words = ", ".join(f"{name}: {f'{count} files' if count else 'nothing kept'}" for name, count in left.items())
    return Seen(0 in left.values(), words)


@check(
    "native-failure",
    "a compile that fails ends the run, leaves no graph, and is read as: user-error",
    where=("native.contents", "FAILURE_WORDS"),
    how=f"the script with {WRONG_FLAG}",
)
def failure(lab: Lab) -> Seen:
    """Nothing is remembered of a failure."""
    tried = lab.native.failed
    if not tried.run.code and tried.graphs:
        raise UnknownError("the compiler took the flag that it should not know")
    if not tried.run.code:
        return Seen(
            fits=False, words="the script ended well, without a graph: what fails to compile runs some other way"
        )
    kind = classify(f"{tried.run.out}\n{tried.run.err}").kind
    # What was copied to the device compiled before: with these flags that fails as well.
    return Seen(not tried.graphs and kind is USER_ERROR, f"{len(tried.graphs)} graphs, {kind.name}; {tried.run.end}")


@check(
    "native-killed",
    "a compile that is killed leaves whole graphs alone, and the next process does not wait for it",
    where=("NATIVE_SUFFIX", "NATIVE_LOCAL"),
    how="kills it with SIGKILL as soon as the compiler is seen, and runs the script again in its folder",
)
def killed(lab: Lab) -> Seen:
    """Names are given to whole files, and locks are the kernel's."""
    left = lab.native.killed
    torn = [name for name in left.graphs if fit.check(left.root / name)]
    ended = left.after is not None and not left.after.code
    words = f"{len(left.graphs)} graphs, {len(torn)} of them damaged"
    return Seen(not torn and ended, f"{words}; then {left.after.end if left.after else 'the next process did not end'}")


def _sharded(path: str) -> bool:
    *folders, name = path.split("/")
    return folders == [name[:2], name[2:4]] and facts.NATIVE_NAME.fullmatch(name) is not None


def _counted(tried: Tried) -> tuple[int, int]:
    return int(tried.told.get("found") or 0), int(tried.told.get("compiled") or 0)


def _read(lab: Lab) -> list[neff.Neff]:
    found = []
    for name in sorted(lab.native.graphs):
        try:
            found.append(neff.read(lab.native.first.root / name, leaks=False))
        except neff.NeffError as error:
            raise UnknownError(f"{name} cannot be read: {error}") from error
    return found


def _others(lab: Lab, tried: Tried) -> Seen:
    """Its graphs have other names."""
    if not tried.graphs:
        raise UnknownError("the script left no graph then")
    same = tried.graphs & lab.native.graphs
    return Seen(not same, f"{len(same)} of {len(lab.native.graphs)} names are the same")


def _fresh(tried: Tried) -> Seen:
    """Nothing compiled: a graph that is written again under its old name is a miss as well."""
    words = f"{len(tried.written)} graphs written, {'a' if tried.compiler else 'no'} compiler was seen"
    return Seen(not tried.written and not tried.compiler, words)


def _list(found: Iterable[str]) -> str:
    return ", ".join(sorted(found))


CHECKS = (
    *native_installed.CHECKS, device, root_variable, names, nothing_else, locks, digest, contents, lnc, process,
    found_again, elsewhere, reads, counters, flags, level, version, disable, failure, killed,
)  # fmt: skip
