"""The compiler's command line as logs and metadata quote it: a shell line, or Python's list of strings."""

from __future__ import annotations

import ast
import re
import shlex

from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.log.event import module_in

_LONGEST = 1 << 16  # characters of a command that are read
_OUTPUT = (facts.OUTPUT_OPTION, facts.OUTPUT_SHORT)


class Command(Struct, frozen=True):
    """A call of the compiler.

    Attributes:
        arguments: Everything, the program first.
        input: The graph's file; empty where none is named.
        output: The value of `--output`; empty where there is none.
        flags: What follows `--output <file>`: since SDK 2.20.1 the list whose hash is the second half of a module's
            name, apart from the `--verbose` that the wrapper itself adds at the end.
    """

    arguments: tuple[str, ...]
    input: str
    output: str
    flags: tuple[str, ...]

    @property
    def module(self) -> str:
        """The module that is compiled (`MODULE_<graph>+<flags>`); empty for a file of another name."""
        return module_in(self.output) or module_in(self.input)


def parse_command(text: str) -> Command:
    """What a command line asks for; parts that it lacks are empty.

    Args:
        text: `neuronx-cc compile …` or `['neuronx-cc', 'compile', …]`, with anything after the list ignored. A text
            that is no proper quotation is split at its spaces.
    """
    arguments = _split(text)
    output, place = "", len(arguments)
    flags: tuple[str, ...] = ()
    for index, word in enumerate(arguments):
        if word in _OUTPUT:
            output, flags, place = next(iter(arguments[index + 1 : index + 2]), ""), arguments[index + 2 :], index
            break
        if word.startswith(f"{facts.OUTPUT_OPTION}="):
            output, flags, place = word.partition("=")[2], arguments[index + 1 :], index
            break
    return Command(arguments, _input(arguments[:place]), output, flags)


def _split(text: str) -> tuple[str, ...]:
    text = text.strip()[:_LONGEST]
    if text.startswith("["):
        end = re.search(r"['\"]\]", text)
        try:
            found = ast.literal_eval(text[: end.end()] if end else text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return tuple(part.strip(",'\"[]") for part in text.split())
        return tuple(str(part) for part in found) if isinstance(found, list) else ()
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _input(before: tuple[str, ...]) -> str:
    """The first word after `compile` that is no option and no option's value."""
    verb = facts.COMPILE_COMMAND[1]
    words = iter(before[before.index(verb) + 1 :] if verb in before else before[1:])
    for word in words:
        if word in {facts.FRAMEWORK_OPTION, facts.TARGET_OPTION}:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""
