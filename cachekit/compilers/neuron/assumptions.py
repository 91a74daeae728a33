"""What cachekit assumes of Neuron, each with a look at what a run left: `doctor --neuron-contract`.

`verbs.prove` makes the run. An assumption that does not hold is corrected by an edit of `facts.py`, in most cases.
What the run cannot show is listed in docs/neuron.md. All of TorchNeuron is from an unofficial copy of its source and
from AWS's pages.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from msgspec import structs

from cachekit.compilers.evidence import Assumption, Evidence, Look, Step, Subject, UnknownError
from cachekit.compilers.graphs import Graph
from cachekit.compilers.neuron import facts, flags, native, neff, processes
from cachekit.compilers.neuron.entries import CacheEntry, scan_if_there
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.installed import public
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.text import cut

FLAGS = ("--model-type", "transformer")  # those of the published key f7f529f3
WRONG_FLAG = "--cachekit-asks-whether-this-is-refused"
PROGRAM = """\
import torch, torch_xla
rows = torch.ones(3, 3).to(torch_xla.device())
print((rows * 2 + 1).sum().item())
"""


def _entries(step: Step) -> list[CacheEntry]:
    """The modules that a command left."""
    found = [entry for entry in scan_if_there(step.left or step.cache).entries if entry.names]
    if not found:
        raise UnknownError("there is no module")
    return found


def _warmed(seen: Evidence) -> list[CacheEntry]:
    """The modules that a warm finished, also one that failed: it may have failed because of what they are."""
    found = _entries(seen.step("warm"))
    return [entry for entry in found if facts.DONE in entry.names] or found


def _read(paths: Iterable[Path]) -> tuple[list[Graph], str]:
    """NEFFs, and what is wrong with the first that our reader does not take for whole."""
    found: list[Graph] = []
    for path in paths:
        try:
            found.append(neff.read(path, leaks=False))
        except (neff.NeffError, OSError) as error:
            return found, f"{path.name} cannot be read: {error}"
    return found, ""


def _planned(seen: Evidence, name: str) -> str:
    """An ingredient of the key: what cachekit takes this machine for, also where a warm fails because it is another."""
    return str(seen.good("plan").answer["ingredients"]["hard"][name])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _module_names(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("warm")
    found = {public(entry.compiler) for entry in scan_if_there(step.left or step.cache).entries if entry.names}
    if not found:
        others = [path for path in step.files if not path.startswith("cache_dirs/")]
        return False, f"no module, but {_listed(others[:3]) or 'nothing'}"
    wanted = seen.good("plan").answer["directory"]
    return found == {wanted}, f"{_listed(found)}; cachekit says {wanted}"


def _module_files(seen: Evidence) -> tuple[bool, str]:
    wanted, found = {facts.NEFF, facts.DONE, facts.FLAGS_FILE, facts.HLO_FILES[0]}, _warmed(seen)
    odd = [entry for entry in found if {*entry.names, *entry.odd} != wanted or (entry.path / facts.DONE).stat().st_size]
    one = (odd or found)[0]
    return not odd, _listed((*one.names, *one.odd))


def _done_last(seen: Evidence) -> tuple[bool, str]:
    found = _entries(seen.step("killed"))
    done = [entry for entry in found if facts.DONE in entry.names]
    _, torn = _read(entry.path / facts.NEFF for entry in done)
    return not torn, f"{len(done)} of {len(found)} modules were done; {torn or 'all of them are whole'}"


def _flags_hash(seen: Evidence) -> tuple[bool, str]:
    entry = _warmed(seen)[0]
    made = flags.flags_hash(flags.read_flags(entry.path / facts.FLAGS_FILE) or [])
    return entry.name.endswith(f"+{made}"), f"{made}, and the module is {entry.name}"


def _target(seen: Evidence) -> tuple[bool, str]:
    words = flags.read_flags(_warmed(seen)[0].path / facts.FLAGS_FILE) or []
    said, wanted = flags.option(words[:1], facts.TARGET_OPTION), _planned(seen, "target.chip")
    return said in facts.TARGETS and said == wanted, f"{said or 'no target'}; cachekit says {wanted}"


def _neff_contents(seen: Evidence) -> tuple[bool, str]:
    entries = _warmed(seen)
    graphs, wrong = _read(entry.path / facts.NEFF for entry in entries)
    if wrong:
        return False, wrong
    entry, found, chip = entries[0], graphs[0], facts.TARGET_CHIPS.get(_planned(seen, "target.chip"))
    told = (found.compiler, found.chip, found.target, found.module)
    named = (entry.compiler.removeprefix(facts.COMPILER_DIRECTORY_PREFIX), chip, entry.name)
    fits = (found.compiler, found.chip, found.module) == named
    return fits, ", ".join(one or "nothing" for one in told)


def _told(kind: str, name: str, of: str) -> Look:
    """Whether a command's log reports every module of a command's record, of which a warm tells more than its name."""

    def look(seen: Evidence) -> tuple[bool, str]:
        step, record = seen.good(name), seen.good(of).answer.get("modules") or []
        wanted = {Path(one["name"] if isinstance(one, dict) else one).name for one in record}
        text, reader = f"{step.log}\n{step.said}", LogReader()
        events = (*reader.feed(text), *reader.close())
        told = {event.module for event in events if event.kind == kind and event.at and event.pid}
        line = next((cut(line, 300) for line in text.splitlines() if facts.MODULE_PREFIX in line), "none")
        fits = bool(wanted) and wanted <= told
        return fits, f"{len(told & wanted)} of {len(wanted)} modules; a line that names one: {line}"

    return look


def _process(seen: Evidence) -> tuple[bool, str]:
    """What seconds of compiling are told by, and --require-warm stops at."""
    compiled, unseen = seen.step("warm").new, seen.lacking.get("compiler-process", "")
    if unseen and not compiled:
        raise UnknownError("nothing compiled while it was warmed")
    return not unseen, unseen or "seen while a graph compiled"


def _lock_left(seen: Evidence) -> tuple[bool, str]:
    if not (locked := [entry for entry in _entries(seen.step("killed")) if entry.locks]):
        return False, "no module has a lock"
    entry = locked[0]
    sizes = {file.st_size for name, file in entry.files().items() if name in entry.locks}
    fits = entry.locks == (f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}",) and sizes == {0} and entry.state == "locked"
    return fits, f"{_listed(entry.names)}; lock of {_listed(map(str, sizes))} bytes"


def _failure(seen: Evidence) -> tuple[bool, str]:
    found = [entry for entry in scan_if_there(seen.step("refused").cache).entries if entry.names]
    odd = [_listed(entry.names) for entry in found if entry.state != "failed" or entry.locks]
    if odd or not found:
        return False, odd[0] if odd else "no module"
    read = classify((found[0].path / facts.FAILURE_LOG).read_text("utf-8", "replace"))
    return read.kind is USER_ERROR, f"{read.kind.name}: {read.message}"


_LOCK, _GRAPH = f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}", facts.HLO_FILES[0]
PROCESS = Assumption(
    "compiler-process", f"while a graph compiles, one of {facts.COMPILER_PROCESSES} runs below the command",
    "--require-warm does not stop a compile, and its seconds are not known", _process,
)  # fmt: skip
ROWS = (
    Assumption("module-names", f"modules are {facts.COMPILER_DIRECTORY_PREFIX}<version>, with or without commit, and "
               f"in there MODULE_<number>+<{facts.FLAGS_HASH_DIGITS} hex digits>",
               "cachekit looks for modules in the wrong place: nothing is kept, and nothing found", _module_names),
    Assumption("module-files",
               f"a finished module is {facts.NEFF}, an empty {facts.DONE}, {facts.FLAGS_FILE}, {_GRAPH} and no lock",
               "records may lack what Neuron needs, or finished modules are not kept, or waited for", _module_files),
    Assumption("done-last", f"{facts.DONE} is written last: a module that has it is whole",
               "after a kill a torn graph is taken for a finished one, and runs fail to load it", _done_last),
    Assumption("flags-hash", f"the flags' half of a module's name is the beginning of the MD5 of {facts.FLAGS_FILE}",
               "`why` and `verify` misjudge modules with other flags; what runs is right", _flags_hash),
    Assumption("target", f"the target is one of {facts.TARGETS}, and the one of this instance",
               "records are kept for the wrong chip: nothing is found, or not loaded", _target),
    Assumption("neff-contents", f"a NEFF has a header of {facts.NEFF_HEADER_SIZE} bytes with the digest of all that "
               "follows, and names its compiler, with commit, its chip by the names of NEFF_TARGETS, and its module",
               "graphs that are damaged or another compiler's go unnoticed, or right ones are refused", _neff_contents),
    Assumption("extraction-line", "a trial run reports every graph that it extracts, with time and process",
               "a warm does not know its graphs, and records are incomplete", _told("extracted", "warm", of="warm")),
    Assumption("log-compiled", "a compile in the run itself is reported",
               "compiles are not counted: cold runs are reported as warm", _told("compiled", "run", of="run")),
    Assumption("log-hit", "every module that is found is reported, with time and process",
               "hits are not counted, and records lack modules that a run used", _told("hit", "train", of="warm")),
    PROCESS,
    Assumption("lock-left", f"a compile that is killed leaves one empty lock, {_LOCK}",
               "locks of killed compiles are not cleared, and later runs wait forever", _lock_left),
    Assumption("failure",
               f"a compile that fails leaves {facts.FAILURE_LOG}, neither {facts.NEFF} nor {facts.DONE} nor a lock; "
               "the refusal of a flag is read there as: user-error",
               "failed graphs are mistaken for unfinished ones, or are tried again in vain", _failure),
)  # fmt: skip


XLA = Subject(
    "neuron",
    PROGRAM,
    place=lambda folder: {facts.CACHE_URL: str(folder), facts.CC_FLAGS: shlex.join(FLAGS)},
    contents=lambda folder: frozenset(one.module for one in scan_if_there(folder).entries if one.finished),
    compiling=lambda pid: bool(processes.compiles_below(pid)),
    refused={facts.CC_FLAGS: WRONG_FLAG},
    another={facts.CC_FLAGS: shlex.join([*FLAGS, "--optlevel", "1"])},
    cleared=frozenset((facts.CC_FLAGS, facts.CACHE_URL, facts.EXTRACT_ONLY, facts.NPC_IGNORE_SCRIPT_ERROR)),
    tools=((facts.NEURON_LS[0], "-j"), (facts.COMPILER, "--version"), ("dpkg-query", "-W", "aws-neuron*")),
    rows=ROWS,
)


# TorchNeuron

_COUNTER = facts.NATIVE_COUNTERS["compiled"]
NATIVE_PROGRAM = f"""\
import importlib, torch
importlib.import_module({facts.FRAMEWORK_MODULE!r})
rows = torch.ones(3, 3).to(**{facts.NATIVE_TO!r})
print(torch.compile(lambda x: (x * 2 + 1).sum(), **{facts.NATIVE_COMPILE!r})(rows).item())
try:
    print("counted:", importlib.import_module({facts.NATIVE_METRICS_MODULE!r}).get_counter_value({_COUNTER!r}))
except Exception as error:
    print("counted:", repr(error))
"""
_TREE, _LOCAL = "graphs", "local"


def _native_files(seen: Evidence) -> tuple[bool, str]:
    step = seen.good("alone")
    tree, cache = step.cache / _TREE, step.cache
    if not (graphs := [tree / name for name in sorted(native.contents(tree))]):
        return False, f"no graph, but {_listed([*step.files][:3]) or 'nothing'}"
    odd = {path for path in graphs if facts.NATIVE_NAME.fullmatch(path.name) is None}
    odd |= {path for path in graphs if path.relative_to(tree).parts[:-1] != (path.name[:2], path.name[2:4])}
    odd |= {path for path in tree.rglob("*") if path.is_file()} - {*graphs}
    odd |= {*(cache / _LOCAL).rglob(f"*{facts.NATIVE_SUFFIX}")}
    return not odd, _listed(path.relative_to(cache).as_posix() for path in [*odd][:5] or graphs[:1])


def _native_contents(seen: Evidence) -> tuple[bool, str]:
    version, lnc = _planned(seen, f"toolchain.{facts.COMPILER_PACKAGE}"), _planned(seen, "target.lnc")
    chip, tree = facts.TARGET_CHIPS.get(_planned(seen, "target.chip"), ""), seen.good("alone").cache / _TREE
    graphs, wrong = _read(tree / name for name in native.contents(tree))
    if wrong:
        return False, wrong
    if not graphs:
        raise UnknownError("the program alone left no graph")
    found = {(public(one.compiler), one.chip, str(one.lnc)) for one in graphs}
    told = (", ".join(one or "nothing" for one in each) for each in found)
    fits = found == {(version, chip, lnc)} and chip in facts.NATIVE_CHIPS
    return fits, f"{_listed(told)}; cachekit says {version}, {chip}, {lnc}"


def _counters(seen: Evidence) -> tuple[bool, str]:
    count = seen.good("flags").said.rpartition("counted: ")[2].partition("\n")[0]
    return count.isdecimal() and int(count) > 0, f"it counted {count}"


def _native_killed(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("killed")
    left = step.left or step.cache
    found = [left / name for name in native.contents(left)]
    _, torn = _read(found)
    return not torn, f"{len(found)} graphs; {torn or 'all of them are whole'}"


def _native_failure(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("refused")
    kind = classify(f"{step.log}\n{step.said}").kind
    return kind is USER_ERROR, f"{kind.name}; {step.end}"


NATIVE_ROWS = (
    Assumption("native-files",
               f"graphs are in ab/cd/ by the first digits of their names, {facts.NATIVE_NAME.pattern}; "
               f"nothing else stays there, and locks are below {facts.NATIVE_LOCAL}",
               "graphs are not recognised, and are not kept", _native_files),
    Assumption("native-contents", "a graph is a NEFF that names its compiler, this machine's chip, and how many cores "
               "are one", "graphs for others go unnoticed, or right ones are refused", _native_contents),
    Assumption("native-counters", f"{facts.NATIVE_METRICS}=1 has {facts.NATIVE_METRICS_MODULE} count {_COUNTER}",
               "compiles are counted by files alone, and hits not at all", _counters),
    PROCESS,
    Assumption("native-killed", "a compile that is killed leaves finished graphs intact",
               "after a kill a torn graph is taken for a finished one", _native_killed),
    Assumption("native-failure", "the compiler's refusal of a flag ends the run, and is read as: user-error",
               "a graph that does not compile runs op by op, slowly, and nobody is told", _native_failure),
)  # fmt: skip


NATIVE = structs.replace(
    XLA,
    compiler="neuron-native",
    probe=NATIVE_PROGRAM,
    place=lambda folder: {
        **{name: str(folder / _LOCAL / name) for name in facts.NATIVE_BESIDE},
        facts.NATIVE_ROOT_VARIABLE: str(folder / _TREE),
        facts.NATIVE_LOCAL: str(folder / _LOCAL),
        facts.NATIVE_METRICS: "1",
    },
    contents=native.contents,
    another={facts.CC_FLAGS: "-O3"},
    cleared=XLA.cleared | {facts.NATIVE_LEVEL, *facts.NATIVE_QUIET},
    rows=NATIVE_ROWS,
)
