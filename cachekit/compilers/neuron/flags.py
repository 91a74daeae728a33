"""Compiler flags: what of NEURON_CC_FLAGS is the wrapper's and what the compiler's, and how they are in a key.

The second half of a module's name is the first digits of an MD5 over the flags, as they are spelled and in the order
they stand (`facts`). Nothing here decides a hit.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.files import opened

LARGEST = 1 << 20  # bytes of a flags file


def split(text: str) -> tuple[list[str], str]:
    """The words of NEURON_CC_FLAGS as a shell reads them; and what is wrong, where it cannot be read so."""
    try:
        return shlex.split(text), ""
    except ValueError as error:
        return text.split(), f"{error}; split at blanks instead"


def without_wrapper_options(words: Sequence[str]) -> list[str]:
    """The flags without those that the wrapper takes for itself, in either spelling: `--x=v`, `--x v`."""
    return wrappers(words)[0]


def wrapper_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options that the wrapper takes for itself, as they are spelled, where a run may have them.

    Gives those, and why another was left out, a sentence each. Folder and cache are always set anew, without a word.
    """
    passed: list[str] = []
    said: list[str] = []
    for name, value, spelled in wrappers(words)[1]:
        if name == facts.LOG_LEVEL_FLAG and value.upper() not in facts.TELLING_LEVELS:
            said.append(f"{' '.join(spelled)} is left out: what the compiler does is read from lines at INFO")
        elif name not in {facts.CACHE_DIR_FLAG, facts.NO_CACHE_FLAG}:
            passed += spelled
    return passed, said


def wrappers(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The compiler's words, and the wrapper's options with value and spelling."""
    kept: list[str] = []
    taken: list[tuple[str, str, list[str]]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in facts.WRAPPER_OPTIONS:
            kept.append(word)
        elif facts.WRAPPER_OPTIONS[name] and not equals:
            value = next(rest, "")
            taken.append((name, value, [word, value] if value else [word]))
        else:
            taken.append((name, value, [word]))
    return kept, taken


def flags_hash(words: Sequence[str]) -> str:
    """The flags' half of a module's name, since SDK 2.20.1, of what `compile_flags.json` lists, target first."""
    digest = hashlib.md5(json.dumps([*words]).encode(), usedforsecurity=False).hexdigest()
    return digest[: facts.FLAGS_HASH_DIGITS]


def read_flags(path: Path) -> list[str] | None:
    """The list in a `compile_flags.json`; None where it cannot be read or is not a list of words."""
    try:
        with opened(path) as source:
            value = json.loads(source.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(value, str):  # not seen, but what a wrapper that joins its flags would write
        return split(value)[0]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    return None


class Option(Struct, frozen=True):
    """One option: its long name, its value, and the words it was written with."""

    name: str
    value: str
    words: str


def option(words: Sequence[str], name: str) -> str:
    """The value of an option, however it is spelled (`facts.OPTION_SYNONYMS`); the last one counts, empty for none."""
    return next((found.value for found in reversed(options(words)) if found.name == name), "")


def options(words: Sequence[str]) -> list[Option]:
    """The options in a list of words, and in between the words that belong to none, under an empty name."""
    found: list[Option] = []
    number = 0
    while number < len(words):
        word = words[number]
        following = words[number + 1] if number + 1 < len(words) else "-"
        number += 1
        if not word.startswith("-"):
            found.append(Option("", word, word))
            continue
        name, equals, value = word.partition("=")
        if not equals:
            short = next(
                (key for key in facts.GLUED_OPTIONS if word.startswith(key) and word[len(key) :].isdigit()), ""
            )
            if short:
                name, value = short, word[len(short) :]
            elif not following.startswith("-") or (number < len(words) and facts.OPTIONS_OF_PARTS.fullmatch(name)):
                value, word = following, f"{word} {following}"
                number += 1
        found.append(Option(facts.OPTION_SYNONYMS.get(name, name), value, word))
    return found
