"""What cachekit assumes of TorchNeuron, each with a look at what a run left; see `assumptions`.

All of it comes from an unofficial copy of its source and from AWS's pages; see `facts`.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cachekit.compilers.evidence import Assumption, Evidence, UnknownError
from cachekit.compilers.neuron import facts, native
from cachekit.compilers.neuron.assumptions import XLA, compiler_process, digests, hard, listed, read_neff
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.installed import public

_COUNTER = facts.NATIVE_COUNTERS["compiled"]
PROGRAM = f"""\
import importlib, torch
importlib.import_module({facts.FRAMEWORK_MODULE!r})
rows = torch.ones(3, 3).to(**{facts.NATIVE_TO!r})
print(torch.compile(lambda x: (x * 2 + 1).sum(), **{facts.NATIVE_COMPILE!r})(rows).item())
metrics = importlib.import_module({facts.NATIVE_METRICS_MODULE!r})
print("counted:", metrics.get_counter_value({_COUNTER!r}))
"""
_TREE, _LOCAL = "graphs", "local"


def _graphs(seen: Evidence) -> list[Path]:
    tree = seen.step("flags").cache / _TREE
    found = [tree / name for name in sorted(native.contents(tree))]
    if not found:
        raise UnknownError(f"the program alone left no *{facts.NATIVE_SUFFIX} in {facts.NATIVE_ROOT_VARIABLE}")
    return found


def _files(seen: Evidence) -> tuple[bool, str]:
    graphs, cache = _graphs(seen), seen.step("flags").cache
    odd = {path for path in graphs if facts.NATIVE_NAME.fullmatch(path.name) is None}
    odd |= {path for path in graphs if path.relative_to(cache / _TREE).parts[:-1] != (path.name[:2], path.name[2:4])}
    odd |= {path for path in (cache / _TREE).rglob("*") if path.is_file()} - {*graphs}
    odd |= {*(cache / _LOCAL).rglob(f"*{facts.NATIVE_SUFFIX}")}
    return not odd, listed(path.relative_to(cache).as_posix() for path in [*odd][:5] or graphs[:1])


def _contents(seen: Evidence) -> tuple[bool, str]:
    step = seen.good("warm")
    version, lnc = hard(step, f"toolchain.{facts.COMPILER_PACKAGE}"), hard(step, "target.lnc")
    chip = facts.TARGET_CHIPS.get(hard(step, "target.chip"), "")
    found = {(public(one.compiler), one.chip, str(one.lnc)) for one in map(read_neff, _graphs(seen))}
    told = (", ".join(one or "nothing" for one in each) for each in found)
    fits = found == {(version, chip, lnc)} and chip in facts.NATIVE_CHIPS
    return fits, f"{listed(told)}; cachekit says {version}, {chip}, {lnc}"


def _counters(seen: Evidence) -> tuple[bool, str]:
    said = [line for line in seen.good("flags").said.splitlines() if line.startswith("counted: ")]
    count = said[-1].removeprefix("counted: ") if said else "nothing"
    return count.isdecimal() and int(count) > 0, f"it counted {count}"


def _killed(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("killed")
    left = step.left or step.cache
    found = [left / name for name in native.contents(left)]
    whole, words = digests(found)
    return whole, f"{len(found)} graphs; {words}"


def _failure(seen: Evidence) -> tuple[bool, str]:
    step = seen.step("refused")
    kind = classify(f"{step.log}\n{step.said}").kind
    return kind is USER_ERROR, f"{kind.name}; {step.end}"


ROWS = (
    Assumption("native-files",
               f"graphs are in ab/cd/ by the first digits of their names, {facts.NATIVE_NAME.pattern}; "
               f"nothing else stays there, and locks are below {facts.NATIVE_LOCAL}",
               "graphs are not recognized, and are not kept", _files),
    Assumption("native-digest",
               f"a graph is a NEFF: header of {facts.NEFF_HEADER_SIZE} bytes, digest of all that follows",
               "whole graphs are taken for damaged ones, and are not used", lambda seen: digests(_graphs(seen))),
    Assumption("native-contents", "a graph names its compiler, this machine's chip, and how many cores are one",
               "graphs for others go unnoticed, or right ones are refused", _contents),
    Assumption("native-counters", f"{facts.NATIVE_METRICS}=1 has {facts.NATIVE_METRICS_MODULE} count {_COUNTER}",
               "compiles are counted by files alone, and hits not at all", _counters),
    Assumption("native-process", f"while a graph compiles, {facts.COMPILER} runs below the command",
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


NATIVE = structs.replace(
    XLA,
    compiler="neuron-native",
    probe=PROGRAM,
    place=_place,
    contents=native.contents,
    another={facts.CC_FLAGS: "-O3"},
    cleared=XLA.cleared | {facts.NATIVE_LEVEL, *facts.NATIVE_QUIET},
    rows=ROWS,
)
