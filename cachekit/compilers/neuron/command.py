"""The compiler's command line as logs and metadata quote it: a shell line, or Python's list of strings."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass

from cachekit.compilers.neuron import facts

_LONGEST = 1 << 16  # characters of a command that are read
_OUTPUT = (facts.OUTPUT_OPTION, facts.OUTPUT_SHORT)


@dataclass(frozen=True, slots=True)
class Command:
    """A call of the compiler.

    Attributes:
        arguments: Everything, the program first.
        input: The graph's file; empty where none is named.
        output: The value of `--output`; empty where there is none.
        flags: What follows `--output <file>`: since SDK 2.20.1 the list whose hash is the second half of a module's
            name, apart from the `--verbose` that the wrapper itself adds at the end.
        target: The value of `--target`; empty where there is none.
    """

    arguments: tuple[str, ...]
    input: str
    output: str
    flags: tuple[str, ...]
    target: str

    @property
    def target_in_flags(self) -> bool:
        """Whether the target stands among the hashed flags, as it does since SDK 2.20.1."""
        return any(flag == facts.TARGET_OPTION or flag.startswith(f"{facts.TARGET_OPTION}=") for flag in self.flags)


def split_command(text: str) -> tuple[str, ...]:
    """Split a quoted command; a text that is no proper quotation is split at its spaces.

    Args:
        text: `neuronx-cc compile …` or `['neuronx-cc', 'compile', …]`, with anything after the list ignored.
    """
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


def parse_command(text: str) -> Command:
    """What a command line asks for; parts that it lacks are empty."""
    arguments = split_command(text)
    output, place = "", len(arguments)
    flags: tuple[str, ...] = ()
    for index, word in enumerate(arguments):
        if word in _OUTPUT:
            output, flags, place = next(iter(arguments[index + 1 : index + 2]), ""), arguments[index + 2 :], index
            break
        if word.startswith(f"{facts.OUTPUT_OPTION}="):
            output, flags, place = word.partition("=")[2], arguments[index + 1 :], index
            break
    return Command(arguments, _input(arguments[:place]), output, flags, _value(arguments, facts.TARGET_OPTION))


def _value(arguments: tuple[str, ...], option: str) -> str:
    for index, word in enumerate(arguments):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and index + 1 < len(arguments):
            return arguments[index + 1]
    return ""


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
