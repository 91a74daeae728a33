"""What compiled graphs and the logs of runs say, in the words of the port: a file, a record's modules, a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from cachekit.store.leaks import Leaks
from cachekit.store.record import Module
from cachekit.values import Answer

# `verified`: whole, and understood. `damaged`: its bytes are not those that were written. `unknown`: of no kind that is
# known here, so that nothing can be said about its bytes. `absent`: no file, or none that can be read.
State = Literal["verified", "damaged", "unknown", "absent"]


class Tensor(Struct, frozen=True):
    """An input or output of a graph.

    Attributes:
        dtype: As the compiler spells it: float32, bfloat16; empty where only the size is known.
        shape: None where only the size is known.
        bytes: None where the file does not say.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    bytes: int | None = None


class Graph(Struct, frozen=True, kw_only=True):
    """What a compiled graph says of itself. All text is safe to print; empty text means that it does not say.

    Attributes:
        digest: How the file's digest is spelled: md5, "md5, words reversed", sha256.
        compiler: neuronx-cc's version with its commit, as in `neuronxcc-<compiler>`.
        target: The chip's internal name: sunda.
        chip: Its instance family: trn1; "any"; the internal name where nobody here knows it; empty: not told.
        subgraphs: One for each physical core.
        features: Names of feature bits, as far as the compiler writes them.
        ranks: Workers that its collectives join; 0 without collectives, or where it does not say.
        built: When it was packed, ISO 8601 in UTC.
        name: What the compiler was given as --output.
        name_is_cut: The end of the name may be missing.
        module: MODULE_<graph>+<flags>, where the name has it.
        members: How many files are packed in it.
        notes: What is odd about it, or could not be read.
        package_version: Of the file's form; so for `neff_version`, as the runtime names it: 2.0.
        build: A version of the packager.
        uuid: Random: two compiles of one graph differ.
        cores: Logical cores that a load takes.
        lnc: Physical cores that make one logical core.
        bytes: Of the file.
    """

    digest: str
    compressed: bool
    compiler: str
    target: str
    chip: str
    revision: str
    subgraphs: tuple[str, ...]
    features: tuple[str, ...]
    ranks: int
    built: str
    name: str
    name_is_cut: bool
    module: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    members: int
    leaks: Leaks
    notes: tuple[str, ...]
    package_version: int
    build: str
    uuid: str
    cores: int
    lnc: int
    bytes: int
    neff_version: str
    feature_bits: str


class CompiledFile(Answer, frozen=True, tag="cachekit/neff/1"):
    """What `store neff` says of a file.

    Attributes:
        reason: Why it is not `verified`.
        module: The one that the file belongs to, where that is known.
        graph: What a verified file says of itself.
    """

    file: str
    state: State
    reason: str = ""
    module: str = ""
    graph: Graph | None = None


class GraphSummary(Struct, frozen=True):
    """The most of what a module's graph says of itself; only its state and reason where it is incomplete."""

    state: State
    reason: str = ""
    inputs: int = 0
    outputs: int = 0
    compiler: str = ""
    target: str = ""
    chip: str = ""
    lnc: int = 0
    built: str = ""


class StoredModule(Module, frozen=True):
    """A module of a record, with what its files say.

    Attributes:
        graph: Of a module that is one graph; None where nothing could be said, so for `graphs`.
        graphs: How many compiled graphs are in an archive of them.
    """

    graph: GraphSummary | None = None
    graphs: int | None = None


class LoggedCompile(Struct, frozen=True):
    """A graph that the run compiled.

    Attributes:
        module: The compiler's name for it, or that of the part of a model; empty where the log does not say.
        seconds: What it took; None where the log does not tell.
        at_most: The log tells only between which lines it happened, so that `seconds` hold more than the compile.
        failed_before: The class of an earlier try's failure, as a `LoggedFailure` has it; empty where there was none.
    """

    module: str
    seconds: float | None = None
    at_most: bool = False
    failed_before: str = ""


class LoggedFailure(Struct, frozen=True):
    """A graph that did not compile.

    Attributes:
        module: See `LoggedCompile`; so for `seconds` and `at_most`.
        kind: The class of the failure, one word: `device-oom`, `internal`, …
        code: The compiler's error code; empty where it gave none.
        message: What it said.
        advice: What helps.
        earlier: It failed in an earlier run, and was skipped in this one.
    """

    module: str
    kind: str
    code: str
    message: str
    advice: str
    seconds: float | None = None
    at_most: bool = False
    earlier: bool = False


class Logged(Struct, frozen=True, kw_only=True):
    """What a log tells.

    Attributes:
        of: `run` for the output of a training, a serving process or a pre-compile; `export` for that of a model's
            export, and `compiler` for the compiler's own log, which know of no cache.
        compilers: The folders of the compiler cache, or the versions, that were named.
        found: Graphs that were in the cache.
        extracted: Graphs that were written down to be compiled later.
        compiled: Graphs that were compiled, the longest first.
        failed: Graphs that were not.
        waits: Seconds that the run waited for somebody else's lock, by module.
        lost_seconds: How long something compiled or waited, what happened at once counted once. None where the log
            tells no time.
        lost_at_most: `lost_seconds` is an upper bound.
        workers: Exit codes of workers that failed, by their names.
        unfinished: Compiles whose end is not in the log: they went on, or were killed.
        counted: What the log itself counts, a sentence each, where its lines show something else.
        groups: How many groups of processes wrote it, each after those before had ended: several where a log holds
            several runs, which are added up here.
    """

    of: Literal["run", "compiler", "export"]
    compilers: tuple[str, ...] = ()
    found: int = 0
    extracted: int = 0
    compiled: tuple[LoggedCompile, ...] = ()
    failed: tuple[LoggedFailure, ...] = ()
    waits: Mapping[str, float] = {}
    lost_seconds: float | None = None
    lost_at_most: bool = False
    workers: Mapping[str, int] = {}
    unfinished: int = 0
    counted: tuple[str, ...] = ()
    groups: int = 1
