"""What cachekit assumes of Neuron on XLA, each with a look at what a run left: `doctor --neuron-contract`.

`verbs.prove` makes the run. An assumption that does not hold is corrected by an edit of `facts.py`, in most cases.
What the run cannot show is listed in docs/neuron.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from cachekit.compilers.evidence import Assumption, Evidence, Observation, Step, Subject, UnknownError
from cachekit.compilers.graphs import Graph
from cachekit.compilers.neuron import facts, flags, neff, processes
from cachekit.compilers.neuron.entries import CacheEntry, scan_if_there
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.installed import public
from cachekit.compilers.neuron.log.event import Event
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log
from cachekit.text import cause_of

FLAGS = ("--model-type", "transformer")  # those of the published key f7f529f3
WRONG_FLAG = "--cachekit-asks-whether-this-is-refused"
PROGRAM = """\
import torch, torch_xla
rows = torch.ones(3, 3).to(torch_xla.device())
print((rows * 2 + 1).sum().item())
"""
CLEARED = (facts.CC_FLAGS, facts.CACHE_URL, facts.EXTRACT_ONLY, facts.NPC_IGNORE_SCRIPT_ERROR)


def _entries(folder: Path | None) -> list[CacheEntry]:
    found = [entry for entry in scan_if_there(folder).entries if entry.names] if folder else []
    if not found:
        raise UnknownError("there is no module")
    return found


def _warmed(seen: Evidence) -> list[CacheEntry]:
    """The modules that a warm finished, also one that failed: it may have failed because of what they are."""
    found = _entries(seen.step("warm").left)
    return [entry for entry in found if facts.DONE in entry.names] or found


def _names(step: Step) -> set[str]:
    """The modules of a command's record, without their compiler's folder."""
    found = step.answer.get("modules") or []
    names = {one["name"] if isinstance(one, Mapping) else str(one) for one in found}
    return {name.rpartition("/")[2] for name in names}


@cache
def _events(text: str) -> tuple[Event, ...]:
    reader = LogReader()
    return (*reader.feed(text), *reader.close())


def _log(step: Step) -> Log:
    return Log().add_all(_events(f"{step.log}\n{step.said}"))


def read_neff(path: Path) -> Graph:
    """A NEFF; what cannot be read is unknown."""
    try:
        return neff.read(path, leaks=False)
    except (neff.NeffError, OSError) as error:
        raise UnknownError(f"{path} cannot be read: {error}") from error


def hard(step: Step, name: str) -> str:
    """An ingredient of a warm's key."""
    ingredients = step.answer.get("ingredients")
    if not isinstance(ingredients, Mapping) or name not in ingredients.get("hard", {}):
        raise UnknownError(f"the warm's answer has no {name}")
    return str(ingredients["hard"][name])


def _target(entry: CacheEntry) -> str:
    words = flags.read_flags(entry.path / facts.FLAGS_FILE) or [""]
    front = f"{facts.TARGET_OPTION}="
    if not words[0].startswith(front):
        raise UnknownError("its flags name no target")
    return words[0].removeprefix(front)


def _module_names(seen: Evidence) -> Observation:
    step = seen.step("warm")
    scanned = scan_if_there(step.left) if step.left else None
    if scanned and not scanned.entries:
        there = [str(path.relative_to(scanned.root)) for path in sorted(scanned.root.rglob("*")) if path.is_file()]
        others = [path for path in there if not path.startswith("cache_dirs/")]
        return Observation(fits=False, words=f"no module, but {listed(others[:3]) or 'nothing'}")
    found = {entry.compiler for entry in _warmed(seen)}
    wanted = str(seen.good("warm").answer.get("directory"))
    return Observation({public(name) for name in found} == {wanted}, f"{listed(found)}; cachekit says {wanted}")


def _module_files(seen: Evidence) -> Observation:
    wanted, found = {facts.NEFF, facts.DONE, facts.FLAGS_FILE, facts.HLO_FILES[0]}, _warmed(seen)
    odd = [
        entry
        for entry in found
        if {*entry.names, *entry.odd} - {*entry.locks} != wanted or (entry.path / facts.DONE).stat().st_size
    ]
    one = (odd or found)[0]
    return Observation(not odd, listed((*one.names, *one.odd)))


def _lock_gone(seen: Evidence) -> Observation:
    found = _warmed(seen)
    locked = [entry for entry in found if entry.locks]
    return Observation(not locked, f"{len(locked)} of {len(found)} modules have a lock")


def _done_last(seen: Evidence) -> Observation:
    found = _entries(seen.step("killed").left)
    done = [entry for entry in found if facts.DONE in entry.names]
    torn = [entry for entry in done if not digests([entry.path / facts.NEFF]).fits]
    return Observation(not torn, f"{len(done)} of {len(found)} modules were done, {len(torn)} of them not whole")


def _flags_hash(seen: Evidence) -> Observation:
    entry = _warmed(seen)[0]
    made = flags.flags_hash(flags.read_flags(entry.path / facts.FLAGS_FILE) or [])
    return Observation(entry.name.endswith(f"+{made}"), f"{made}, and the module is {entry.name}")


def _target_is_known(seen: Evidence) -> Observation:
    said, wanted = _target(_warmed(seen)[0]), hard(seen.good("warm"), "target.chip")
    return Observation(said in facts.TARGETS and said == wanted, f"{said}; cachekit says {wanted}")


def _neff_digest(seen: Evidence) -> Observation:
    return digests(entry.path / facts.NEFF for entry in _warmed(seen))


def digests(paths: Iterable[Path]) -> Observation:
    """Whether our reader takes every NEFF for whole."""
    forms = set()
    for path in paths:
        try:
            forms.add(neff.read(path, leaks=False).digest)
        except neff.NeffError as error:
            return Observation(fits=False, words=f"{path.name}: {error.reason}")
        except OSError as error:
            return Observation(fits=False, words=f"{path.name}: {cause_of(error)}")
    return Observation(bool(forms), listed(forms) or "there is none")


def _neff_contents(seen: Evidence) -> Observation:
    entry = _warmed(seen)[0]
    found, chip = read_neff(entry.path / facts.NEFF), facts.TARGET_CHIPS.get(hard(seen.good("warm"), "target.chip"))
    compiler = f"{facts.COMPILER_DIRECTORY_PREFIX}{found.compiler}"
    told = (found.compiler, found.chip, found.target, found.module)
    return Observation(
        (compiler, found.chip, found.module) == (entry.compiler, chip, entry.name),
        ", ".join(one or "nothing" for one in told),
    )


def _extraction_line(seen: Evidence) -> Observation:
    step = seen.good("warm")
    return _told(set(_log(step).extracted), step)


def _log_compiled(seen: Evidence) -> Observation:
    step = seen.good("run")
    return _told(set(_log(step).compiled), step)


def _log_hit(seen: Evidence) -> Observation:
    step = seen.good("train")
    return _told(set(_log(step).hits), step, wanted=_names(seen.good("warm")))


def _told(told: set[str], step: Step, wanted: set[str] | None = None) -> Observation:
    """Every module of a record is told."""
    wanted = _names(step) if wanted is None else wanted
    lines = [line for line in f"{step.log}\n{step.said}".splitlines() if facts.MODULE_PREFIX in line]
    sample = "" if told >= wanted else f"; a line that names one: {lines[0][:300]}" if lines else "; no line names one"
    return Observation(
        bool(wanted) and told >= wanted, f"{len(told & wanted)} of {len(wanted)} modules reported{sample}"
    )


def _log_header(seen: Evidence) -> Observation:
    hits = [event for event in _events(seen.good("train").log) if event.kind == "hit"]
    if not hits:
        raise UnknownError("no hit was reported")
    return Observation(
        all(event.at and event.pid for event in hits), f"time {hits[0].at or 'none'}, process {hits[0].pid}"
    )


def compiler_process(seen: Evidence) -> Observation:
    """What seconds of compiling are told by, and --require-warm stops at."""
    seen.good("warm")
    unseen = seen.lacking.get("compiler-process", "")
    return Observation(not unseen, unseen or "seen while a graph compiled")


def _lock_left(seen: Evidence) -> Observation:
    locked = [entry for entry in _entries(seen.step("killed").left) if entry.locks]
    if not locked:
        return Observation(fits=False, words="no module has a lock")
    entry = locked[0]
    sizes = {file.st_size for name, file in entry.files().items() if name in entry.locks}
    fits = entry.locks == (f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}",) and sizes == {0} and entry.state == "locked"
    return Observation(fits, f"{listed(entry.names)}; lock of {listed(map(str, sizes))} bytes")


def _failure_log(seen: Evidence) -> Observation:
    found = _entries(seen.step("refused").cache)
    odd = [entry for entry in found if entry.state != "failed" or entry.locks]
    return Observation(not odd, listed((odd or found)[0].names))


def _failure_class(seen: Evidence) -> Observation:
    logs = [entry.path / facts.FAILURE_LOG for entry in _entries(seen.step("refused").cache)]
    if not (there := [path for path in logs if path.is_file()]):
        raise UnknownError("no failure is remembered")
    found = classify(there[0].read_text("utf-8", "replace"))
    return Observation(found.kind is USER_ERROR, f"{found.kind.name}: {found.message}")


ROWS = (
    Assumption("module-names", "modules are {COMPILER_DIRECTORY_PREFIX}<version>, with or without commit, and in there "
               "MODULE_<number>+<{FLAGS_HASH_DIGITS} hex digits>",
               "cachekit looks for modules in the wrong place: nothing is kept, and nothing found", _module_names),
    Assumption("module-files", "a finished module is {NEFF}, an empty {DONE}, {FLAGS_FILE} and {HLO_FILES[0]}, no more",
               "records may lack a file that Neuron needs, and what is restored is compiled again", _module_files),
    Assumption("lock-gone", "a finished compile leaves no lock",
               "finished modules look as if they were being compiled: they are not kept, or waited for", _lock_gone),
    Assumption("done-last", "{DONE} is written last: a module that has it is whole",
               "after a kill a torn graph is taken for a finished one, and runs fail to load it", _done_last),
    Assumption("flags-hash", "the flags' half of a module's name is the beginning of the MD5 of {FLAGS_FILE}",
               "`why` and `verify` misjudge modules with other flags; what runs is right", _flags_hash),
    Assumption("target", "the target is one of {TARGETS}, and the one of this instance",
               "records are kept for the wrong chip: nothing is found, or not loaded", _target_is_known),
    Assumption("neff-digest", "a NEFF has its header of {NEFF_HEADER_SIZE} bytes, and the digest of all that follows",
               "whole graphs are taken for damaged ones, and are not used", _neff_digest),
    Assumption("neff-contents", "a NEFF names its compiler, with commit, its chip by the names of NEFF_TARGETS, and in "
               "its name its module", "graphs of another compiler or chip go unnoticed, or right ones are refused",
               _neff_contents),
    Assumption("extraction-line", "a trial reports every graph that it extracts",
               "a warm does not know its graphs, and records are incomplete", _extraction_line),
    Assumption("log-compiled", "a compile in the run itself is reported",
               "compiles are not counted: runs are told to be warm that are not", _log_compiled),
    Assumption("log-hit", "every module that is found is reported",
               "hits are not counted, and records lack modules that a run used", _log_hit),
    Assumption("log-header", "lines of the log begin with their time and process",
               "no seconds of compiles, and no ranks", _log_header),
    Assumption("compiler-process", "while a graph compiles, one of {COMPILER_PROCESSES} runs below the command",
               "--require-warm does not stop a compile, and its seconds are not known", compiler_process),
    Assumption("lock-left", "a compile that is killed leaves one empty lock, {HLO_FILES[0]}{LOCK_SUFFIX}",
               "locks of killed compiles are not cleared, and later runs wait for ever", _lock_left),
    Assumption("failure-log", "a compile that fails leaves {FAILURE_LOG}, neither {NEFF} nor {DONE} nor a lock",
               "failed graphs are not told from unfinished ones, and are not tried again", _failure_log),
    Assumption("failure-class", "the compiler's refusal of a flag is read as: user-error",
               "failed compiles are explained wrongly, and are tried again in vain", _failure_class),
)  # fmt: skip


def _place(folder: Path) -> dict[str, str]:
    return {facts.CACHE_URL: str(folder), facts.CC_FLAGS: shlex.join(FLAGS)}


def _contents(folder: Path) -> frozenset[str]:
    return frozenset(entry.module for entry in scan_if_there(folder).entries if entry.finished)


def compiling(pid: int) -> bool:
    """Whether the compiler runs below a process."""
    return bool(processes.compiles_below(pid))


def listed(names: Iterable[str]) -> str:
    """Names in their order."""
    return ", ".join(sorted(names))


TOOLS = (
    (facts.NEURON_LS[0], "-j"), (facts.COMPILER, "--version"), ("dpkg-query", "-W", "aws-neuron*"),
)  # fmt: skip
XLA = Subject(
    "neuron", PROGRAM, _place, _contents, compiling,
    refused={facts.CC_FLAGS: WRONG_FLAG},
    another={facts.CC_FLAGS: shlex.join([*FLAGS, "--optlevel", "1"])},
    cleared=frozenset(CLEARED),
    tools=TOOLS, rows=ROWS, facts=vars(facts),
)  # fmt: skip
