"""YAML text in, plain values out, with the line of every field; strict where YAML 1.1 surprises.

`5e-5` is a number, `no` and `on` are words, a name that stands twice is an error, and so is a tag that builds objects.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from cachekit.errors import RecipeError

Path = tuple[str | int, ...]
# libyaml's parser is several times faster; the pure one is always there.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, unused-ignore]
    """A safe loader with YAML 1.2's booleans and floats."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rsplit(":", 1)[1] not in {"bool", "float", "timestamp"}]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)


def _register_int_before_float() -> None:
    # The float pattern above matches plain integers too; resolvers are tried in order, so ints must come first.
    for first, resolvers in _Loader.yaml_implicit_resolvers.items():
        _Loader.yaml_implicit_resolvers[first] = sorted(resolvers, key=lambda item: item[0].endswith(":float"))


_register_int_before_float()


def parse(text: str, source: str) -> tuple[Any, dict[Path, int]]:
    """Parse one YAML document.

    Args:
        text: The document.
        source: What to call it in errors.

    Returns:
        The plain value, and for the path of each field and item the line (from 1) where it stands.

    Raises:
        RecipeError: The text is no YAML, holds a name twice, or nests names that are no strings.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Path, int] = {}
            value = None if node is None else _build(loader, node, (), lines, source)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _explained(error, source) from error
    except RecursionError as error:
        raise RecipeError(f"{source}: nested too deeply to be a recipe") from error
    return value, lines


def scalar(text: str) -> Any:
    """Read the value of `--set name=value` as YAML would: numbers, true/false, lists, else words.

    Raises:
        RecipeError: The text is no YAML value.
    """
    return parse(text, "--set")[0]


def _explained(error: yaml.YAMLError, source: str) -> RecipeError:
    mark = getattr(error, "problem_mark", None)
    where = f"{source}, line {mark.line + 1}" if mark else source
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    hint = "tabs cannot indent YAML: use spaces" if "\\t" in problem else "compare with a recipe of `cachekit zoo`"
    return RecipeError(f"{where}: not valid YAML", cause=problem, hint=hint)


def _build(loader: Any, node: yaml.Node, path: Path, lines: dict[Path, int], source: str) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        value: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise RecipeError(f"{source}, line {line}: a field's name must be a plain word")
            name = str(key_node.value)
            here = (*path, name)
            if name in value:
                raise RecipeError(
                    f"{source}, line {line}: {_dotted(here)} stands twice",
                    cause=f"first on line {lines[here]}",
                    hint="remove one of them",
                )
            lines[here] = line
            value[name] = _build(loader, value_node, here, lines, source)
        return value
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*path, index), lines, source) for index, item in enumerate(node.value)]
    built = loader.construct_object(node)
    if not (built is None or isinstance(built, str | int | float | bool)):
        raise RecipeError(f"{source}, line {node.start_mark.line + 1}: {node.tag} is not a plain value")
    if isinstance(built, float) and not math.isfinite(built):
        raise RecipeError(f"{source}, line {node.start_mark.line + 1}: {_dotted(path)} is not a finite number")
    return built


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)
