"""Why a compile failed: the class of a failure, whether it would fail again, and what helps.

Neuron keeps every failure for ever, also one by Ctrl-C, and skips the graph from then on. cachekit keeps apart what
would fail again (`deterministic`) from what only went wrong this time, and says which entries may be cleared.
"""

from __future__ import annotations

import re
import signal as signals

from msgspec import Struct
from msgspec.structs import replace

from cachekit.compilers.neuron import facts
from cachekit.text import cut, one_line

_HEAD, _TAIL = 1 << 16, 1 << 18  # characters of a log that are looked at
_MESSAGE = 300
_EXIT_TIMEOUT, _EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND, _EXIT_SIGNALS = 124, 126, 127, range(129, 193)  # of a shell
_WARNING = re.compile(r"\bWARN(?:ING)?\b")


class FailureClass(Struct, frozen=True):
    """A kind of failure."""

    name: str  # as it is printed and stored
    advice: str  # the command or the edit that helps
    deterministic: bool = (
        False  # the same graph, flags and compiler would fail again; only such failures are remembered
    )


DEVICE_OOM = FailureClass(
    "device-oom",
    "the graph needs more memory than a core has, and will again: lower per_device_train_batch_size or max_seq_length, "
    "raise tensor_parallel_size, or use an instance with more memory per core",
    deterministic=True,
)
HOST_OOM = FailureClass(
    "host-oom",
    "the compiler ran out of this host's memory: compile fewer graphs at once (compiler.options.num_parallel: 1 in the "
    f"recipe; {facts.PARALLEL_COMPILE} {facts.NPC_PARALLEL_OPTION} 1), add swap, or compile on a host with more memory",
)
INTERNAL = FailureClass(
    "internal",
    f"the compiler has a fault with this graph: try another {facts.COMPILER}, another optimisation level (-O1) or "
    f"another shape, and report the log to {facts.ISSUES}",
    deterministic=True,
)
CRASHED = FailureClass(
    "crashed",
    "the compiler stopped without giving a reason; it is known to do so now and then with many compiles at once: "
    "compile it again, with fewer at a time",
)
USER_ERROR = FailureClass(
    "user-error",
    f"the compiler refuses this graph or these flags: change what its message names ({facts.ERROR_CODES_PAGE})",
    deterministic=True,
)
INTERRUPTED = FailureClass("interrupted", "the compile was stopped from outside: run it again")
TIMED_OUT = FailureClass(
    "timed-out", "the time limit passed: run it again with a longer one, and with fewer compiles at once"
)
DISK_FULL = FailureClass(
    "disk-full", "make room in the cache root and in /tmp, where the compiler works (TMPDIR moves it), and run it again"
)
NO_COMPILER = FailureClass(
    "no-compiler",
    f"{facts.COMPILER} is not on PATH, or a part of it is missing: activate the environment that has it, or install it "
    f"from AWS's index (pip --extra-index-url {facts.PACKAGE_INDEX})",
)
UNKNOWN = FailureClass(
    "unknown",
    f"read the log; `cachekit warm` compiles it again, and so does a run with {facts.RETRY_FLAG} in {facts.CC_FLAGS}",
)
CLASSES = {
    kind.name: kind
    for kind in (
        DEVICE_OOM, HOST_OOM, INTERNAL, CRASHED, USER_ERROR, INTERRUPTED, TIMED_OUT, DISK_FULL, NO_COMPILER, UNKNOWN,
    )
}  # fmt: skip


# What helps with a code of which more is known than its class.
_BY_CODE = {
    facts.KERNEL_MISSING: (
        f"a kernel's file that the graph names is not in NKI's folder of kernels ({facts.NKI_COMPILE_CACHE}, by "
        f"default {facts.NKI_DEFAULT_FOLDER}), as after a cache was copied without that folder: trace the graph again, "
        "with `cachekit warm`, which makes the kernels, or `cachekit pull` a record: it carries "
        "the kernels with the graphs"
    ),
    facts.BROKEN_PAIR: (
        "reported of torch-neuronx 2.9 with neuronx-cc 2.27, in every graph of a transformer: install "
        f"{facts.BROKEN_PAIR_MEND}; with another pair of versions report the log to {facts.ISSUES}"
    ),
}


class CompileFailure(Struct, frozen=True):
    """One failure, classified."""

    kind: FailureClass  # its class
    code: str = ""  # the compiler's error code (`NCC_EOOM002`, `F137`); empty where it gave none
    # The line that told the class, or the most telling where none did; empty where only an exit code did.
    message: str = ""
    # The text or the code named the class; False where it follows from an exit code that can mean other things too, and
    # then the failure is never deterministic.
    certain: bool = True
    seconds: float | None = None  # how long the compiler ran until then, where somebody measured that

    @property
    def deterministic(self) -> bool:
        """Whether the same compile would fail again, as far as it is known for certain."""
        return self.kind.deterministic and self.certain and self.code != facts.KERNEL_MISSING

    @property
    def clearable(self) -> bool:
        """Whether an entry of Neuron's cache with this failure may go without asking: it may end well next time."""
        return self.kind is not UNKNOWN and not self.deterministic

    @property
    def advice(self) -> str:
        """The command or the edit that helps."""
        return _BY_CODE.get(self.code, self.kind.advice)


def classify(
    text: str = "", *, exit_code: int | None = None, signal: int | None = None, timed_out: bool = False
) -> CompileFailure:
    """Find the class of a failure from what there is of it.

    What the compiler says outranks how its process ended, and a code outranks words: `[F137]` ends with 70 as an
    internal error does, and an interrupted compiler prints an internal error.

    Args:
        text: `model.log`, the end of the compiler's log, or what the wrapper printed; of a long one both ends count.
        exit_code: Of the compiler or of what ran it; negative for a signal, as Python's subprocess has it.
        signal: The signal that ended the process, if it is known otherwise.
        timed_out: The caller stopped the process because its time was over.
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    lines = [line for line in text.splitlines() if not _WARNING.search(line)]
    if timed_out:
        return CompileFailure(TIMED_OUT)
    return (
        _by_text("\n".join(lines))
        or _by_end(exit_code, signal, "\n".join(lines))
        or CompileFailure(UNKNOWN, message=_telling(lines))
    )


def _by_text(text: str) -> CompileFailure | None:
    codes = [match["code"] for match in facts.ERROR_CODE.finditer(text)]
    old = facts.OLD_ERROR_CODE.search(text)
    crash = facts.CRASH_CODE.search(text)

    def coded(kind: FailureClass, code: str) -> CompileFailure:
        return CompileFailure(kind, code, _line(text, text.find(f"[{code}]")))

    def worded(kind: FailureClass, code: str = "") -> CompileFailure | None:
        found = facts.FAILURE_WORDS[kind.name].search(text)
        return CompileFailure(kind, code, _line(text, found.start())) if found else None

    any_code = codes[0] if codes else old["code"] if old else ""
    if memory := next((code for code in codes if facts.DEVICE_MEMORY_CODES.fullmatch(code)), None):
        return coded(DEVICE_OOM, memory)
    if found := worded(DEVICE_OOM, any_code) or worded(DISK_FULL):
        return found
    if crash and crash["code"] == facts.HOST_MEMORY_CRASH:
        return coded(HOST_OOM, facts.HOST_MEMORY_CRASH)
    if found := worded(HOST_OOM) or worded(NO_COMPILER):
        return found
    if killed := facts.KILLED.search(text):
        return CompileFailure(HOST_OOM, "", _line(text, killed.start()), certain=False)
    if user := next((code for code in codes if facts.USER_CODES.fullmatch(code)), None):
        return coded(USER_ERROR, user)
    if found := worded(USER_ERROR, any_code) or worded(INTERRUPTED) or worded(TIMED_OUT):
        return found
    if any_code:
        return coded(INTERNAL, any_code)
    if crash:
        return coded(CRASHED, crash["code"])
    found = worded(CRASHED) or worded(INTERNAL)
    said = _explained(text)
    return replace(found, message=said) if found and said else found


def _by_end(exit_code: int | None, signal: int | None, text: str) -> CompileFailure | None:
    message = ""
    if exit_code in {None, 0, 1} and signal is None:
        # A wrapper ends with 1 whatever happened; the compiler's own end stands in its text.
        ends = [found for found in facts.COMPILE_EXIT_IN_TEXT.finditer(text) if int(found["code"]) not in {0, 1}]
        if ends:
            exit_code, message = int(ends[0]["code"]), _line(text, ends[0].start())
    if signal is None and exit_code is not None:
        signal = -exit_code if exit_code < 0 else exit_code - 128 if exit_code in _EXIT_SIGNALS else None
    if signal == signals.SIGKILL:
        return CompileFailure(HOST_OOM, "", message, certain=False)
    if signal in {signals.SIGINT, signals.SIGTERM, signals.SIGHUP}:
        return CompileFailure(INTERRUPTED, "", message, certain=False)
    if signal is not None:
        return CompileFailure(CRASHED, "", message, certain=False)
    if exit_code == _EXIT_TIMEOUT:
        return CompileFailure(TIMED_OUT, "", message, certain=False)
    if exit_code in {_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND}:
        return CompileFailure(NO_COMPILER, "", message, certain=False)
    if exit_code == facts.EXIT_INTERNAL or facts.INTERNAL_WORDS.search(text):
        return CompileFailure(INTERNAL, "", message, certain=False)
    return None


def _explained(text: str) -> str:
    """What the compiler says under `An Internal Compiler Error has occurred`; empty where it says nothing."""
    if not (found := facts.INTERNAL_WORDS.search(text)):
        return ""
    for line in text[found.end() : found.end() + _HEAD].splitlines()[1:]:
        parsed = facts.COMPILER_LOG_LINE.search(line)
        said = (parsed["text"] if parsed else line).strip(" *")
        if said.startswith("Internal details"):
            return ""
        if said:
            return _line(said, 0)
    return ""


def _telling(lines: list[str]) -> str:
    """The first line with an error in it, or else the last one."""
    said = [line for line in lines if line.strip()]
    errors = (line for line in said if any(mark in line for mark in facts.ERROR_MARKS))
    line = next(errors, said[-1] if said else "")
    # The first line of Neuron's log quotes the whole command before it says what went wrong.
    return _line(line, min((place for mark in facts.ERROR_MARKS if (place := line.find(mark)) >= 0), default=0))


def _line(text: str, place: int) -> str:
    """The line around a place, cut to a readable length."""
    start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    line = text[start : end if end >= 0 else len(text)]
    if place - start > _MESSAGE // 2:  # a line that quotes a whole command first
        line = line[place - start :]
    return cut(one_line(" ".join(line.split())), _MESSAGE)
