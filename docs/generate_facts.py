"""The page of facts about Neuron with their evidence, made from the one module that holds them; see `generate.py`."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST = 160  # characters of a value in a table
PAGE = "reference/neuron-facts.md"


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=neuron_facts()))
    return files


def neuron_facts() -> str:
    """Every assumption about Neuron with its source, from the text of `facts.py`."""
    from cachekit.compilers.neuron import facts

    source = Path(facts.__file__).read_text(encoding="utf-8")
    lines = ["# Facts about Neuron, with their evidence", "", inspect.getdoc(facts) or "", ""]
    lines += ["The source of a fact is in brackets. This page is made from `cachekit/compilers/neuron/facts.py`:"]
    lines += ["the code runs on the values below.", ""]
    for title, entries in sections(source):
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| name | value | what is known, and from where |", "| --- | --- | --- |"]
        for name, said in entries:
            lines.append(f"| `{name}` | {_shown(getattr(facts, name))} | {_inert(said)} |")
        lines.append("")
    return "\n".join(lines)


def sections(source: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Titles, and the names below each with the comments above, beside and within their values."""
    title, entries = "", list[tuple[str, str]]()
    above: list[str] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    position = 0
    while position < len(tokens):
        token = tokens[position]
        at_start = token.start[1] == 0
        if token.type == tokenize.COMMENT and at_start:
            if section := re.match(r"# --- (.*?) -*$", token.string):
                if title:
                    yield title, entries
                title, entries, above = section[1], [], []
            else:
                above.append(token.string.lstrip("# "))
        elif title and token.type == tokenize.NAME and at_start and re.fullmatch("[A-Z][A-Z0-9_]*", token.string):
            name, beside = token.string, []
            while tokens[position].type != tokenize.NEWLINE:
                if tokens[position].type == tokenize.COMMENT:
                    beside.append(re.sub(r"noqa: \S+( - )?", "", tokens[position].string.lstrip("# ")))
                position += 1
            entries.append((name, " ".join(" ".join([*above, *beside]).split())))
        elif (token.type == tokenize.NL and not token.line.strip()) or (token.type == tokenize.NAME and at_start):
            above = []
        position += 1
    if title:
        yield title, entries


def _shown(value: Any) -> str:
    if isinstance(value, re.Pattern):
        value = value.pattern
    if isinstance(value, frozenset | set):
        value = sorted(map(str, value))
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = " ".join(str(value).split())
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return f"<code>{_inert(text)}</code>" if text else "(empty)"


def _inert(text: str) -> str:
    """Text that neither Markdown nor HTML takes for its own; a pattern looks like both."""
    return "".join(char if char.isalnum() or char in " ./:,;=-" else f"&#{ord(char)};" for char in text)
