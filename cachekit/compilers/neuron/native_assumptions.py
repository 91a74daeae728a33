"""What cachekit assumes of TorchNeuron, each with a look at what a run left; see `assumptions`.

All of it comes from an unofficial copy of its source and from AWS's pages; see `facts`.
"""

from __future__ import annotations

from pathlib import Path

from cachekit.compilers.evidence import Assumption, Evidence, Observation, Subject, UnknownError
from cachekit.compilers.neuron import facts, native
from cachekit.compilers.neuron.assumptions import (
    CLEARED,
    TOOLS,
    WRONG_FLAG,
    compiler_process,
    compiling,
    digests,
    hard,
    listed,
    read_neff,
)
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.installed import public

PROGRAM = f"""\
import importlib, torch
importlib.import_module({facts.FRAMEWORK_MODULE!r})
rows = torch.ones(3, 3).to(**{facts.NATIVE_TO!r})
print(torch.compile(lambda x: (x * 2 + 1).sum(), **{facts.NATIVE_COMPILE!r})(rows).item())
metrics = importlib.import_module({facts.NATIVE_METRICS_MODULE!r})
print("counted:", metrics.get_counter_value({facts.NATIVE_COUNTERS["compiled"]!r}))
"""
_TREE, _LOCAL = "graphs", "local"


def _graphs(seen: Evidence) -> list[str]:
    step = seen.step("flags")
    found = sorted(native.contents(step.cache / _TREE))
    if not found:
        raise UnknownError(f"the program alone left no *{facts.NATIVE_SUFFIX} in {facts.NATIVE_ROOT_VARIABLE}")
    return found


def _paths(seen: Evidence) -> list[Path]:
    return [seen.step("flags").cache / _TREE / name for name in _graphs(seen)]


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _files_seen(seen: Evidence) -> Observation:
    graphs, cache = _graphs(seen), seen.step("flags").cache
    odd = [name for name in graphs if not _sharded(name)]
    others = sorted({*_files(cache / _TREE)} - {*graphs})
    lost = [name for name in _files(cache / _LOCAL) if name.endswith(facts.NATIVE_SUFFIX)]
    return Observation(not (odd or others or lost), listed([*odd, *others, *lost][:5] or graphs[:1]))


def _sharded(path: str) -> bool:
    *folders, name = path.split("/")
    return folders == [name[:2], name[2:4]] and facts.NATIVE_NAME.fullmatch(name) is not None


def _digest(seen: Evidence) -> Observation:
    return digests(_paths(seen))


def _contents(seen: Evidence) -> Observation:
    step = seen.good("warm")
    version, lnc = hard(step, f"toolchain.{facts.COMPILER_PACKAGE}"), hard(step, "target.lnc")
    chip = facts.TARGET_CHIPS.get(hard(step, "target.chip"), "")
    found = {(public(one.compiler), one.chip, str(one.lnc)) for one in map(read_neff, _paths(seen))}
    told = (", ".join(one or "nothing" for one in each) for each in found)
    fits = found == {(version, chip, lnc)} and chip in facts.NATIVE_CHIPS
    return Observation(fits, f"{listed(told)}; cachekit says {version}, {chip}, {lnc}")


def _counters(seen: Evidence) -> Observation:
    said = [line for line in seen.good("flags").said.splitlines() if line.startswith("counted: ")]
    count = said[-1].removeprefix("counted: ") if said else "nothing"
    return Observation(count.isdecimal() and int(count) > 0, f"it counted {count}")


def _killed(seen: Evidence) -> Observation:
    left = seen.step("killed").left
    found = [left / name for name in native.contents(left)] if left else []
    torn = [path for path in found if not digests([path]).fits]
    return Observation(not torn, f"{len(found)} graphs, {len(torn)} of them damaged")


def _failure(seen: Evidence) -> Observation:
    step = seen.step("refused")
    kind = classify(f"{step.log}\n{step.said}").kind
    return Observation(kind is USER_ERROR, f"{kind.name}; {step.end}")


ROWS = (
    Assumption("native-files", "graphs are in ab/cd/ by the first digits of their names, {NATIVE_NAME.pattern}; "
               "nothing else stays there, and locks are below {NATIVE_LOCAL}",
               "graphs are not recognized, and are not kept", _files_seen),
    Assumption("native-digest", "a graph is a NEFF: header of {NEFF_HEADER_SIZE} bytes, digest of all that follows",
               "whole graphs are taken for damaged ones, and are not used", _digest),
    Assumption("native-contents", "a graph names its compiler, this machine's chip, and how many cores are one",
               "graphs for others go unnoticed, or right ones are refused", _contents),
    Assumption("native-counters", "{NATIVE_METRICS}=1 has {NATIVE_METRICS_MODULE} count {NATIVE_COUNTERS[compiled]}",
               "compiles are counted by files alone, and hits not at all", _counters),
    Assumption("native-process", "while a graph compiles, {COMPILER} runs below the command",
               "--require-warm does not stop a compile, and its seconds are not known", compiler_process),
    Assumption("native-killed", "a compile that is killed leaves finished graphs intact",
               "after a kill a torn graph is taken for a finished one", _killed),
    Assumption("native-failure", "the compiler's refusal of a flag ends the run, and is read as: user-error",
               "a graph that does not compile runs op by op, slowly, and nobody is told", _failure),
)  # fmt: skip


def _place(folder: Path) -> dict[str, str]:
    beside = {name: str(folder / _LOCAL / name) for name in facts.NATIVE_BESIDE}
    tree, local = str(folder / _TREE), str(folder / _LOCAL)
    return {**beside, facts.NATIVE_ROOT_VARIABLE: tree, facts.NATIVE_LOCAL: local, facts.NATIVE_METRICS: "1"}


NATIVE = Subject(
    "neuron-native", PROGRAM, _place, native.contents, compiling,
    refused={facts.CC_FLAGS: WRONG_FLAG},
    another={facts.CC_FLAGS: "-O3"},
    cleared=frozenset((*CLEARED, facts.NATIVE_LEVEL, *facts.NATIVE_QUIET)),
    tools=TOOLS, rows=ROWS, facts=vars(facts),
)  # fmt: skip
