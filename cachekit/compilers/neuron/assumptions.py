"""What cachekit assumes of Neuron on XLA, each with a look at what a run left: `doctor --neuron-contract`.

`verbs.prove` makes the run. An assumption that does not hold is corrected by an edit of `facts.py`, in most cases.
What the run cannot show is listed in docs/neuron.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cachekit.compilers.evidence import Assumption, Evidence, Look, Step, Subject, UnknownError
from cachekit.compilers.graphs import Graph
from cachekit.compilers.neuron import facts, flags, neff, processes
from cachekit.compilers.neuron.entries import CacheEntry, scan_if_there
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.installed import public
from cachekit.compilers.neuron.log.event import Event
from cachekit.compilers.neuron.log.reader import LogReader

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


def read_neff(path: Path) -> Graph:
    """A NEFF; what cannot be read is unknown."""
    try:
        return neff.read(path, leaks=False)
    except (neff.NeffError, OSError) as error:
        raise UnknownError(f"{path.name} cannot be read: {error}") from error


def digests(paths: Iterable[Path]) -> tuple[bool, str]:
    """Whether our reader takes every NEFF for whole."""
    try:
        return True, listed({str(read_neff(path).digest) for path in paths})
    except UnknownError as error:
        return False, str(error)


def hard(step: Step, name: str) -> str:
    """An ingredient of a warm's key."""
    return str(step.answer["ingredients"]["hard"][name])


def listed(names: Iterable[str]) -> str:
    """Names in their order."""
    return ", ".join(sorted(names))


def _module_names(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("warm")
    found = {public(entry.compiler) for entry in scan_if_there(step.left or step.cache).entries if entry.names}
    if not found:
        others = [path for path in step.files if not path.startswith("cache_dirs/")]
        return False, f"no module, but {listed(others[:3]) or 'nothing'}"
    wanted = seen.good("warm").answer["directory"]
    return found == {wanted}, f"{listed(found)}; cachekit says {wanted}"


def _module_files(seen: Evidence) -> tuple[bool, str]:
    wanted, found = {facts.NEFF, facts.DONE, facts.FLAGS_FILE, facts.HLO_FILES[0]}, _warmed(seen)
    odd = [
        entry
        for entry in found
        if {*entry.names, *entry.odd} - {*entry.locks} != wanted or (entry.path / facts.DONE).stat().st_size
    ]
    one = (odd or found)[0]
    return not odd, listed((*one.names, *one.odd))


def _lock_gone(seen: Evidence) -> tuple[bool, str]:
    found = _warmed(seen)
    locked = [entry for entry in found if entry.locks]
    return not locked, f"{len(locked)} of {len(found)} modules have a lock"


def _done_last(seen: Evidence) -> tuple[bool, str]:
    found = _entries(seen.step("killed"))
    done = [entry for entry in found if facts.DONE in entry.names]
    whole, _ = digests(entry.path / facts.NEFF for entry in done)
    return whole, f"{len(done)} of {len(found)} modules were done, {'all' if whole else 'not all'} of them whole"


def _flags_hash(seen: Evidence) -> tuple[bool, str]:
    entry = _warmed(seen)[0]
    made = flags.flags_hash(flags.read_flags(entry.path / facts.FLAGS_FILE) or [])
    return entry.name.endswith(f"+{made}"), f"{made}, and the module is {entry.name}"


def _target(seen: Evidence) -> tuple[bool, str]:
    words = flags.read_flags(_warmed(seen)[0].path / facts.FLAGS_FILE) or []
    said, wanted = flags.option(words[:1], facts.TARGET_OPTION), hard(seen.good("warm"), "target.chip")
    return said in facts.TARGETS and said == wanted, f"{said or 'no target'}; cachekit says {wanted}"


def _neff_contents(seen: Evidence) -> tuple[bool, str]:
    entry = _warmed(seen)[0]
    found, chip = read_neff(entry.path / facts.NEFF), facts.TARGET_CHIPS.get(hard(seen.good("warm"), "target.chip"))
    compiler = f"{facts.COMPILER_DIRECTORY_PREFIX}{found.compiler}"
    told = (found.compiler, found.chip, found.target, found.module)
    fits = (compiler, found.chip, found.module) == (entry.compiler, chip, entry.name)
    return fits, ", ".join(one or "nothing" for one in told)


@cache
def _events(text: str) -> tuple[Event, ...]:
    reader = LogReader()
    return (*reader.feed(text), *reader.close())


def _told(kind: str, name: str, of: str) -> Look:
    """Whether a command's log reports every module of a command's record."""

    def look(seen: Evidence) -> tuple[bool, str]:
        step, record = seen.good(name), seen.good(of).answer.get("modules") or []
        # A warm's answer says more of each than its name.
        wanted = {Path(one["name"] if isinstance(one, dict) else one).name for one in record}
        text = f"{step.log}\n{step.said}"
        told = {event.module for event in _events(text) if event.kind == kind}
        line = next((line[:300] for line in text.splitlines() if facts.MODULE_PREFIX in line), "none")
        return bool(
            wanted
        ) and wanted <= told, f"{len(told & wanted)} of {len(wanted)} modules; a line that names one: {line}"

    return look


def _log_header(seen: Evidence) -> tuple[bool, str]:
    hits = [event for event in _events(seen.good("train").log) if event.kind == "hit"]
    if not hits:
        raise UnknownError("no hit was reported")
    return all(event.at and event.pid for event in hits), f"time {hits[0].at or 'none'}, process {hits[0].pid}"


def compiler_process(seen: Evidence) -> tuple[bool, str]:
    """What seconds of compiling are told by, and --require-warm stops at."""
    seen.good("warm")
    unseen = seen.lacking.get("compiler-process", "")
    return not unseen, unseen or "seen while a graph compiled"


def _lock_left(seen: Evidence) -> tuple[bool, str]:
    locked = [entry for entry in _entries(seen.step("killed")) if entry.locks]
    if not locked:
        return False, "no module has a lock"
    entry = locked[0]
    sizes = {file.st_size for name, file in entry.files().items() if name in entry.locks}
    fits = entry.locks == (f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}",) and sizes == {0} and entry.state == "locked"
    return fits, f"{listed(entry.names)}; lock of {listed(map(str, sizes))} bytes"


def _failure_log(seen: Evidence) -> tuple[bool, str]:
    found = _entries(seen.step("refused"))
    odd = [entry for entry in found if entry.state != "failed" or entry.locks]
    return not odd, listed((odd or found)[0].names)


def _failure_class(seen: Evidence) -> tuple[bool, str]:
    logs = [entry.path / facts.FAILURE_LOG for entry in _entries(seen.step("refused"))]
    if not (there := [path for path in logs if path.is_file()]):
        raise UnknownError("no failure is remembered")
    found = classify(there[0].read_text("utf-8", "replace"))
    return found.kind is USER_ERROR, f"{found.kind.name}: {found.message}"


_LOCK, _GRAPH = f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}", facts.HLO_FILES[0]
ROWS = (
    Assumption("module-names", f"modules are {facts.COMPILER_DIRECTORY_PREFIX}<version>, with or without commit, and "
               f"in there MODULE_<number>+<{facts.FLAGS_HASH_DIGITS} hex digits>",
               "cachekit looks for modules in the wrong place: nothing is kept, and nothing found", _module_names),
    Assumption("module-files",
               f"a finished module is {facts.NEFF}, an empty {facts.DONE}, {facts.FLAGS_FILE} and {_GRAPH}, no more",
               "records may lack a file that Neuron needs, and what is restored is compiled again", _module_files),
    Assumption("lock-gone", "a finished compile leaves no lock",
               "finished modules look as if they were being compiled: they are not kept, or waited for", _lock_gone),
    Assumption("done-last", f"{facts.DONE} is written last: a module that has it is whole",
               "after a kill a torn graph is taken for a finished one, and runs fail to load it", _done_last),
    Assumption("flags-hash", f"the flags' half of a module's name is the beginning of the MD5 of {facts.FLAGS_FILE}",
               "`why` and `verify` misjudge modules with other flags; what runs is right", _flags_hash),
    Assumption("target", f"the target is one of {facts.TARGETS}, and the one of this instance",
               "records are kept for the wrong chip: nothing is found, or not loaded", _target),
    Assumption("neff-digest", f"a NEFF has its header of {facts.NEFF_HEADER_SIZE} bytes, and the digest of all that "
               "follows", "whole graphs are taken for damaged ones, and are not used",
               lambda seen: digests(entry.path / facts.NEFF for entry in _warmed(seen))),
    Assumption("neff-contents", "a NEFF names its compiler, with commit, its chip by the names of NEFF_TARGETS, and in "
               "its name its module", "graphs of another compiler or chip go unnoticed, or right ones are refused",
               _neff_contents),
    Assumption("extraction-line", "a trial reports every graph that it extracts",
               "a warm does not know its graphs, and records are incomplete", _told("extracted", "warm", of="warm")),
    Assumption("log-compiled", "a compile in the run itself is reported",
               "compiles are not counted: runs are told to be warm that are not", _told("compiled", "run", of="run")),
    Assumption("log-hit", "every module that is found is reported",
               "hits are not counted, and records lack modules that a run used", _told("hit", "train", of="warm")),
    Assumption("log-header", "lines of the log begin with their time and process",
               "no seconds of compiles, and no ranks", _log_header),
    Assumption("compiler-process", f"while a graph compiles, one of {facts.COMPILER_PROCESSES} runs below the command",
               "--require-warm does not stop a compile, and its seconds are not known", compiler_process),
    Assumption("lock-left", f"a compile that is killed leaves one empty lock, {_LOCK}",
               "locks of killed compiles are not cleared, and later runs wait for ever", _lock_left),
    Assumption("failure-log",
               f"a compile that fails leaves {facts.FAILURE_LOG}, neither {facts.NEFF} nor {facts.DONE} nor a lock",
               "failed graphs are not told from unfinished ones, and are not tried again", _failure_log),
    Assumption("failure-class", "the compiler's refusal of a flag is read as: user-error",
               "failed compiles are explained wrongly, and are tried again in vain", _failure_class),
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
