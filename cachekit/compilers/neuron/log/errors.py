"""Whose failure a line of the compiler's is about: the line names no module, and other lines around it do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.failures import UNKNOWN, CompileFailure, FailureClass, classify
from cachekit.compilers.neuron.log.event import Event, codes_in, same_process

_Cause = tuple[FailureClass, str]  # the class of a failure, and the compiler's code
_MOST = 256  # errors that are kept until their failure is told


class _Said(Struct, eq=False):
    """An error, and the modules that it may be about: those that its process compiled then."""

    event: Event
    modules: set[str]


class Errors:
    """The errors of a log whose failures are yet to be told.

    An error belongs to the only module that its process compiles, or else to the next failure without a reason of its
    own that its process reports, or one that the log does not tell apart from it.
    """

    def __init__(self) -> None:
        self._said: list[_Said] = []
        self._failed: dict[str, bool] = {}  # the modules that failed, and whether anything says why
        self._causes: set[_Cause] = set()  # what is told of them
        self._before: dict[str, set[_Cause]] = {}  # the same by module, of those that errors before the failure tell

    def add(self, error: Event, busy: Iterable[Event]) -> bool:
        """Take an error; gives whether it belongs to the failure of its module, which is told already.

        Args:
            error: The error; its module is that of the failure that its line follows.
            busy: What began the compiles that have not ended, of all processes.
        """
        cause = classify(error.text)
        # What follows a failure that has its reason already, and is another reason, comes before the next one.
        if error.module and _cause(cause) in self._before.get(error.module, {_cause(cause)}):
            self._explain(error.module, cause)
            return True
        modules = {one.module for one in busy if same_process(one, error) is not False}
        # A process that calls the compiler again has lost the compile that it complained of before.
        lost = {module for one in self._said if len(one.modules) == 1 for module in one.modules}
        self._said.append(_Said(replace(error, module=""), modules - lost or modules))
        del self._said[:-_MOST]
        return False

    def failed(self, module: str) -> bool:
        """Take a failure without any words; gives whether the module had failed before."""
        before = module in self._failed
        self._failed.setdefault(module, False)
        return before

    def of(self, failure: Event, *, repeated: bool = False) -> str:
        """The errors that belong to a failure, which is told at this moment; `repeated`: it was told before, too."""
        module, own = failure.module, classify(failure.text)
        taken = [one for one in self._said if one.modules == {module}]
        others = [one for one in self._said if one not in taken and self._may_be(one, failure)]
        if repeated:
            others = []
        elif _is_known(own):
            others = [one for one in others if _cause(classify(one.event.text)) == _cause(own)]
        elif len({_cause(classify(one.event.text)) for one in others if len(one.modules) > 1}) > 1:
            others = [one for one in others if not one.modules]  # whose is which is not told yet
        # Two compiles may have been killed with the same words.
        taken += {one.event.text: one for one in reversed(others)}.values()
        self._said = [one for one in self._said if one not in taken]
        self._explain(module, own)
        for one in taken:
            cause = classify(one.event.text)
            self._explain(module, cause)
            self._before.setdefault(module, {_cause(own)}).add(_cause(cause))
        if _is_known(own):
            self._not_of(module)
        return "\n".join(one.event.text for one in taken)

    def ended_well(self, compiled: Event) -> None:
        """What was said of a compile that ended well says nothing of the next one."""
        self._not_of(compiled.module)
        self._said = [one for one in self._said if one.modules or not same_process(one.event, compiled)]

    def left(self, busy: Iterable[Event]) -> Iterator[Event]:
        """At the end of the log: the failures that errors alone tell, and errors of nobody."""
        said, self._said = self._said, []
        began = {one.module for one in busy}
        for one in said:
            text = one.event.text
            module = next(iter(one.modules)) if len(one.modules) == 1 else ""
            if module in self._failed:
                yield replace(one.event, module=module)
            elif module in began and (codes_in(text) or facts.KILLED.match(text) or _names_compiler(text)):
                yield replace(one.event, kind="failed", module=module)
            elif not facts.ERROR_CODE.search(text) and not facts.CRASH_CODE.search(text) and not _names_compiler(text):
                continue  # another program's, for all that is known
            elif len(self._failed) == 1 and not all(self._failed.values()):
                yield replace(one.event, module=next(iter(self._failed)))
            elif _cause(classify(text)) not in self._causes:
                yield one.event

    def _explain(self, module: str, cause: CompileFailure) -> None:
        self._failed[module] = self._failed.get(module, False) or _is_known(cause)
        self._causes.add(_cause(cause))

    def _may_be(self, one: _Said, failure: Event) -> bool:
        return (not one.modules or failure.module in one.modules) and same_process(one.event, failure) is not False

    def _not_of(self, module: str) -> None:
        """A module has another end: the errors that can be of no other compile go."""
        for one in [one for one in self._said if module in one.modules]:
            one.modules.discard(module)
            if not one.modules:
                self._said.remove(one)


def _names_compiler(text: str) -> bool:
    return facts.COMPILER in text or facts.COMPILER_MODULE in text


def _is_known(failure: CompileFailure) -> bool:
    return failure.kind is not UNKNOWN and failure.certain


def _cause(failure: CompileFailure) -> _Cause:
    return failure.kind, failure.code
