"""Commands in YAML that is written for another program: Kubernetes' containers, Compose's services, CI's steps.

Source: `command`, `args` and `env` of a container (kubernetes.io/docs/concepts/workloads/pods), `command`, `entrypoint`
and `environment` of a Compose service; of the others every text is looked at.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_BEFORE, _AFTER = ("command", "entrypoint"), "args"
_VARIABLES = ("env", "environment")
_Variable = tuple[int, str, str]  # line (from 0), name, value


def shell_text(text: str) -> str:
    """What a YAML has run, as a shell script whose lines stand about where they do in it; empty where it is no YAML.

    Words of a list are one command, a text after `bash -c` is the script that it is, and a folded text is one line.
    Variables of a container come before its commands.
    """
    try:
        found = [
            piece for document in yaml.compose_all(text, Loader=yaml.SafeLoader) for piece in _pieces(document, set())
        ]
    except (yaml.YAMLError, RecursionError, ValueError):
        return ""
    lines: list[str] = []
    for line, script in found:
        lines += [""] * (line - len(lines))
        lines += script.splitlines()
    return "\n".join(lines) + "\n"


def _pieces(node: yaml.Node, seen: set[int]) -> Iterator[tuple[int, str]]:
    """Line (from 0) and text of each command, and of each text that may be one."""
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node.start_mark.line + (node.style in {"|", ">"}), node.value
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _pieces(inner, seen)
    elif isinstance(node, yaml.MappingNode):
        fields = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        exports = [one for name in _VARIABLES for one in _exports(fields.pop(name, None))]
        lists = [fields.pop(name) for name in (*_BEFORE, _AFTER) if _is_words(fields.get(name))]
        words, used = _filled([word.value for one in lists for word in one.value], exports)
        for line, name, value in exports:
            if name not in used:
                yield line, f"export {name}={shlex.quote(value)}"
        if words:
            at = next((n for n, word in enumerate(words[:-1]) if re.fullmatch("-[a-z]*c", word)), None)
            scripted = at is not None and words[0] in _SHELLS
            yield lists[0].start_mark.line, words[at + 1] if at is not None and scripted else shlex.join(words)
        for value in fields.values():
            yield from _pieces(value, seen)


def _is_words(node: Any) -> bool:
    return (
        isinstance(node, yaml.SequenceNode)
        and bool(node.value)
        and all(isinstance(word, yaml.ScalarNode) for word in node.value)
    )


def _filled(words: Sequence[str], exports: Sequence[_Variable]) -> tuple[list[str], set[str]]:
    """Words with a container's variables in the place of `$(NAME)`, as Kubernetes itself does; and which those are."""
    values, used = {name: value for _, name, value in exports}, set()

    def value_of(found: re.Match[str]) -> str:
        if found[1] in values:
            used.add(found[1])
        return values.get(found[1], found[0])

    return [re.sub(r"\$\((\w+)\)", value_of, word) for word in words], used


def _exports(node: Any) -> Iterator[_Variable]:
    """`[{name: X, value: Y}]`, `{X: Y}` or `[X=Y]`; those from elsewhere (`valueFrom`) are left out."""
    pairs: list[tuple[yaml.Node, Any, Any]] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, key.value, value.value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            if isinstance(item, yaml.MappingNode):
                fields = {key.value: value.value for key, value in item.value if isinstance(key, yaml.ScalarNode)}
                pairs.append((item, fields.get("name"), fields.get("value")))
            elif isinstance(item, yaml.ScalarNode):
                name, equals, value = item.value.partition("=")
                pairs.append((item, name, value if equals else None))
    for place, name, value in pairs:
        if isinstance(name, str) and name.isidentifier() and isinstance(value, str):
            yield place.start_mark.line, name, value
