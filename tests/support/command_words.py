"""Whether a command line that stands in help or in a document could be typed: its verb, its options, its arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from cachekit.cli.app import VERBS, Commands

COMMANDS = Commands()


def walk() -> Iterator[tuple[tuple[str, ...], object]]:
    """All verbs with their parsers: `("plan",)`, `("zoo", "ls")`; hidden ones are left out."""
    for name in VERBS:
        parser = COMMANDS[name]
        yield (name,), parser
        for inner, command in sorted(getattr(parser, "commands", {}).items()):
            if not command.hidden:
                yield (name, inner), command


def options_of(parser) -> dict[str, object]:
    """The parser's options by each of their names."""
    return {name: one for one in parser.params for name in one.opts if name.startswith("-")}


def problem(line: str) -> str:
    """What is wrong with `cachekit ...`; empty where it could be typed. Words in capitals stand for anything."""
    words = shlex.split(line.partition(" | ")[0], comments=True)
    assert words[0] == "cachekit", line
    words = words[1:]
    if not words or words[0] in {"--help", "--version", "-h", "--install-completion", "--show-completion"}:
        return ""
    if words[0] not in VERBS:
        return "" if words[0].isupper() else f"{words[0]} is no verb"
    parser, name = COMMANDS[words[0]], words[0]
    words = words[1:]
    inner = getattr(parser, "commands", None)
    if inner and words and not words[0].startswith("-"):
        if words[0] not in inner:
            return "" if words[0].isupper() else f"{name} has no {words[0]}"
        parser, name, words = inner[words[0]], f"{name} {words[0]}", words[1:]
    known = options_of(parser)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            return ""
        if name == "run" and not word.startswith("-"):
            return ""  # the command's own words
        if word == "-" or not word.startswith("-") or re.fullmatch(r"-\d+", word):
            continue
        option, equals, _ = word.partition("=")
        if option in {"--help", "-h"}:
            continue
        if option not in known:
            return f"{name} has no {option}"
        if not known[option].is_flag and not getattr(known[option], "count", False) and not equals:
            if position == len(words):
                return f"{name} {option} lacks its value"
            position += 1
    return ""


def commands_in(text: str) -> list[str]:
    """Command lines of cachekit in a document: in its code blocks, after `$ ` or alone, and in backticks.

    A line that ends in a backslash goes on in the next one.
    """
    found, fenced = [], False
    for line in text.replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        code = re.match(r"\s*(?:- run: )?(?:\$ )?((?:[A-Z_]+=\S+ )*cachekit(?: .*)?)$", line)
        if code and (fenced or line.startswith(("    ", "\t", "$ "))):
            found += _each(code[1])
        else:
            spans = re.findall(r"`((?:[A-Z_]+=\S+ )*cachekit [^`]*)`", line)
            found += [command for span in spans for command in _each(span)]
    return found


def _each(line: str) -> list[str]:
    """The commands of a line: without variables before, what follows a pipe, and a comment behind two spaces."""
    parts = re.split(r"\s(?:\||&&|;|>|2>)\s?", line)
    told = []
    for part in parts:
        bare = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", part.strip())
        if re.match(r"cachekit(\s|$)", bare):
            told.append(
                re.split(r"\s{2,}(?=\S)", bare.rstrip(" .;"), maxsplit=1)[0] if "  " in bare else bare.rstrip(" .;")
            )
    return told
