"""What cachekit assumes of TorchNeuron, each with a look at what an experiment left; see `assumptions`.

All of it comes from an unofficial copy of its source and from AWS's pages; see `facts`.
"""

from __future__ import annotations

from pathlib import Path

from cachekit.compilers.evidence import Assumption, Evidence, Observation, Subject, UnknownError
from cachekit.compilers.neuron import facts, native
from cachekit.compilers.neuron.assumptions import (
    CLEARED,
    SOURCE,
    WRONG_FLAG,
    compiler_process,
    compiling,
    digests,
    hard,
    listed,
    read_neff,
)
from cachekit.compilers.neuron.failures import USER_ERROR, classify
from cachekit.compilers.neuron.host import public

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


def _names(seen: Evidence) -> Observation:
    found = _graphs(seen)
    odd = [path for path in found if not _sharded(path)]
    return Observation(not odd, (odd or found)[0])


def _sharded(path: str) -> bool:
    *folders, name = path.split("/")
    return folders == [name[:2], name[2:4]] and facts.NATIVE_NAME.fullmatch(name) is not None


def _nothing_else(seen: Evidence) -> Observation:
    others = sorted(set(_files(seen.step("flags").cache / _TREE)) - set(_graphs(seen)))
    return Observation(not others, listed(others[:5]) or "graphs alone")


def _locks(seen: Evidence) -> Observation:
    found = _files(seen.step("flags").cache / _LOCAL)
    graphs = [name for name in found if name.endswith(facts.NATIVE_SUFFIX)]
    return Observation(bool(found) and not graphs, listed((graphs or found)[:3]) or "nothing is there")


def _digest(seen: Evidence) -> Observation:
    return digests(_paths(seen))


def _contents(seen: Evidence) -> Observation:
    step = seen.good("warm")
    chip = facts.TARGET_CHIPS.get(hard(step, "target.chip"), "")
    version = hard(step, f"toolchain.{facts.COMPILER_PACKAGE}")
    found = {(one.compiler, one.chip) for one in map(read_neff, _paths(seen))}
    fits = {(public(compiler), of) for compiler, of in found} == {(version, chip)} and chip in facts.NATIVE_CHIPS
    told = (f"compiler {compiler or 'none'}, chip {of or 'none'}" for compiler, of in found)
    return Observation(fits, f"{listed(told)}; cachekit says {version}, {chip}")


def _lnc(seen: Evidence) -> Observation:
    found, wanted = {str(read_neff(path).lnc) for path in _paths(seen)}, hard(seen.good("warm"), "target.lnc")
    return Observation(found == {wanted}, f"{listed(found)}; cachekit says {wanted}")


def _counters(seen: Evidence) -> Observation:
    said = [line for line in seen.good("flags").said.splitlines() if line.startswith("counted: ")]
    count = said[-1].removeprefix("counted: ") if said else "nothing"
    return Observation(count.isdecimal() and int(count) > 0, f"it counted {count}")


def _killed(seen: Evidence) -> Observation:
    left = seen.step("killed").left
    found = [path for path in left.rglob(f"*{facts.NATIVE_SUFFIX}") if not path.name.startswith(".")] if left else []
    torn = [path for path in found if not digests([path]).fits]
    return Observation(not torn, f"{len(found)} graphs, {len(torn)} of them damaged")


def _failure(seen: Evidence) -> Observation:
    step = seen.step("refused")
    kind = classify(f"{step.log}\n{step.said}").kind
    return Observation(kind is USER_ERROR, f"{kind.name}; {step.end}")


ROWS = (
    Assumption("native-names", "a graph is in ab/cd/ by the first digits of its name, {NATIVE_NAME.pattern}",
               ("NATIVE_NAME", "NATIVE_ROOT_VARIABLE", "NATIVE_SUFFIX"), _names),
    Assumption("native-files", "nothing else stays in the folder", ("NATIVE_SUFFIX", "native.contents"), _nothing_else),
    Assumption("native-locks", "locks are below {NATIVE_LOCAL}, and graphs are not", ("NATIVE_LOCAL",), _locks),
    Assumption("native-digest", "a graph is a NEFF: header of {NEFF_HEADER_SIZE} bytes, digest of all that follows",
               ("NEFF_HEADER", "NEFF_HEADER_SIZE", "NEFF_DIGESTS", "NEFF_DIGEST_WORD"), _digest),
    Assumption("native-contents", "a graph names its compiler, and the chip of this machine",
               ("NEFF_INFO", "NEFF_KELF", "NEFF_TARGETS", "NATIVE_CHIPS"), _contents),
    Assumption("native-lnc", "a graph is for as many physical cores in one as this machine has in one",
               ("DEFAULT_LNC", "NEFF_LNC_IS_REQUIRED"), _lnc),
    Assumption("native-counters", "{NATIVE_METRICS}=1 has {NATIVE_METRICS_MODULE} count {NATIVE_COUNTERS[compiled]}",
               ("NATIVE_METRICS", "NATIVE_METRICS_MODULE", "NATIVE_COUNTERS"), _counters),
    Assumption("native-process", "while a graph compiles, {COMPILER} runs below the command",
               ("COMPILER", "processes.compiles_below"), compiler_process),
    Assumption("native-killed", "a compile that is killed leaves finished graphs intact", ("NATIVE_SUFFIX",), _killed),
    Assumption("native-failure", "the compiler's refusal of a flag ends the run, and is read as: user-error",
               ("FAILURE_WORDS",), _failure),
)  # fmt: skip


def _place(folder: Path) -> dict[str, str]:
    beside = {name: str(folder / _LOCAL / name) for name in facts.NATIVE_BESIDE}
    tree, local = str(folder / _TREE), str(folder / _LOCAL)
    return {**beside, facts.NATIVE_ROOT_VARIABLE: tree, facts.NATIVE_LOCAL: local, facts.NATIVE_METRICS: "1"}


def _graphs_of(folder: Path) -> frozenset[str]:
    return native.contents(folder / _TREE)


NATIVE = Subject(
    "neuron-native", PROGRAM, _place, _graphs_of, compiling,
    refused=(f"compiler.flags=[{WRONG_FLAG}]",),
    another={facts.CC_FLAGS: "-O3"},
    cleared=frozenset((*CLEARED, facts.NATIVE_LEVEL, *facts.NATIVE_QUIET)),
    rows=ROWS, facts=vars(facts), source=SOURCE,
)  # fmt: skip
