"""The reference of the site, made from the code: verbs, settings, the recipe, errors, the Python API.

`mkdocs.yml` names this file as a hook, so that `make docs` has these pages as it has the written ones; nothing of it is
kept in the repository. `pages()` gives them to whoever asks.
"""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: add the generated pages."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """All generated pages, Markdown by path below `docs/`, and the JSON Schema of each verb's answer."""
    schemas = dict(_schemas())
    return {
        "reference/json.md": documents(schemas),
        **{f"reference/schema/{name}.json": json.dumps(found, indent=2) for name, found in schemas.items()},
        "reference/verbs.md": verbs(),
        "reference/settings.md": settings(),
        "reference/recipe.md": recipe(),
        "reference/errors.md": errors(),
        "reference/python.md": python(),
    }


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(header), line(["---"] * len(header)), *map(line, rows)]


# Verbs


def verbs() -> str:
    """Every verb with its options, as its parser has them."""
    from cachekit.cli.app import VERBS, Commands

    commands = Commands()
    lines = [
        "# Verbs",
        "",
        "Each verb as its `--help` has it. All verbs print data on stdout and everything else on stderr;",
    ]
    lines += ["`--format json` for programs; errors are three lines, and [exit codes](errors.md) mean something.", ""]
    for name in VERBS:
        parser = commands[name]
        lines += _verb(f"cachekit {name}", parser, "##")
        for inner, command in getattr(parser, "commands", {}).items():
            if not command.hidden:
                lines += _verb(f"cachekit {name} {inner}", command, "###")
    return "\n".join(lines) + "\n"


def _verb(name: str, parser: Any, level: str) -> list[str]:
    lines = [f"{level} `{name}`", ""]
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(parser.help or "")):
        words = " ".join(paragraph.split())
        if words.startswith("Example:"):
            lines += ["```console", f"$ {words.removeprefix('Example:').strip()}", "```", ""]
        else:
            lines += [words, ""]
    rows = []
    for one in parser.params:
        if one.param_type_name == "argument":
            rows.append([f"`{one.make_metavar(_context(parser))}`", one.help or "", ""])
        elif one.name != "help" and not one.hidden:
            metavar = f" {one.metavar}" if one.metavar else ""
            default = one.default if isinstance(one.default, str | int | float) and not one.is_flag else None
            shown = "" if default in (None, "") or one.count else f"`{default}`"
            rows.append([f"`{', '.join(one.opts)}{metavar}`", one.help or "", shown])
    return [*lines, *(_table(["option", "", "default"], rows) if rows else []), ""]


def _context(parser: Any) -> Any:
    return parser.make_context(parser.name, [], resilient_parsing=True, **_settings())


def _settings() -> dict[str, Any]:
    """Those of the command line: a command keeps the names of the help option that its first context had."""
    from cachekit.cli.app import app

    settings = app.info.context_settings
    return settings if isinstance(settings, dict) else {}


# JSON


def _schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """What `--schema` prints, of each verb that has it."""
    from cachekit.cli.app import VERBS, Commands

    commands = Commands()
    for name in VERBS:
        for words, parser in ((name, commands[name]), *_inner(name, commands[name])):
            if any("--schema" in one.opts for one in parser.params):
                with redirect_stdout(io.StringIO()) as said:
                    parser.main(["--schema"], prog_name=f"cachekit {words}", standalone_mode=False, **_settings())
                yield words.replace(" ", "-"), json.loads(said.getvalue())


def _inner(name: str, parser: Any) -> Iterator[tuple[str, Any]]:
    for inner, command in getattr(parser, "commands", {}).items():
        if not command.hidden:
            yield f"{name} {inner}", command


def documents(schemas: dict[str, dict[str, Any]]) -> str:
    """Every document that a verb prints, with its fields, from the types of the answers."""
    lines = [
        "# JSON",
        "",
        "With `--format json` a verb prints one document, and `--schema` prints its JSON Schema. A document says what",
        "it is: `schema` is its name and the version of its fields, which is raised when a field is removed or changes",
        "its meaning. Fields may be added at any time: do not refuse those that you do not know. Where a verb fails,",
        "its document has an `error`; without an answer it is `cachekit/error/1`. Each element of a list has its",
        "`schema`.",
        "",
    ]
    lines += _table(
        ["verb", "JSON Schema", "documents"],
        [
            [f"`{found['title']}`", f"[{name}.json](schema/{name}.json)", ", ".join(_printed(found))]
            for name, found in schemas.items()
        ],
    )
    parts = {name: part for found in schemas.values() for name, part in found["$defs"].items()}
    top = {_name_of(part): part for part in parts.values() if _name_of(part)}
    for title, part in [*sorted(top.items()), *sorted((n, p) for n, p in parts.items() if not _name_of(p))]:
        lines += ["", f"## `{title}`", "", _description(part), ""]
        said = _attributes(part)
        rows = [
            [f"`{field}`", f"`{_kind(kind, parts)}`", said.get(field) or kind.get("description", "")]
            for field, kind in part.get("properties", {}).items()
            if field != "schema"
        ]
        lines += _table(["field", "type", "meaning"], rows) if rows else []
    return "\n".join(lines) + "\n"


def _printed(found: dict[str, Any]) -> Iterator[str]:
    """The documents of a verb, the error left out."""
    for one in found["anyOf"]:
        inner = one.get("items", one)["$ref"].rpartition("/")[2]
        if name := _name_of(found["$defs"][inner]).replace("cachekit/error/1", ""):
            yield f"{'a list of ' if 'items' in one else ''}[`{name}`](#{name.replace('/', '')})"


def _name_of(part: dict[str, Any]) -> str:
    """`cachekit/plan/1`; nothing for a part of a document."""
    names = part.get("properties", {}).get("schema", {}).get("enum", [""])
    return str(names[0])


def _attributes(part: dict[str, Any]) -> dict[str, str]:
    """What the docstring of a part's class says of its fields, with those of the classes that it derives from."""
    import msgspec

    def below(cls: type) -> Iterator[type]:
        for one in cls.__subclasses__():
            yield from (one, *below(one))

    fields = part.get("properties", {}).keys() - {"schema"}
    for cls in below(msgspec.Struct):
        if cls.__name__ == part.get("title") and set(cls.__struct_encode_fields__) == fields:
            docs = [inspect.getdoc(one) or "" for one in reversed(cls.__mro__)]
            return {name: said for text in docs for name, said in _items(text, "Attributes")}
    return {}


def _description(part: dict[str, Any]) -> str:
    return " ".join(part.get("description", "").split("\n\n")[0].split())


def _kind(kind: dict[str, Any], parts: dict[str, Any]) -> str:
    """A type in a word or some."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return _name_of(parts[name]) or name
    if "anyOf" in kind:
        return " or ".join(dict.fromkeys(_kind(one, parts) for one in kind["anyOf"]))
    if "enum" in kind:
        return " or ".join(map(json.dumps, kind["enum"]))
    found = kind.get("title") or kind.get("type", "any")
    if found == "array":
        return f"list of {_kind(kind.get('items') or {}, parts)}"
    if found == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"mapping to {_kind(kind['additionalProperties'], parts)}"
    return str(found)


# Settings, errors, recipe


def settings() -> str:
    """Every setting, from `config.py`."""
    from cachekit import config

    found = config.load({}, environ={}, cwd=Path("/"))
    rows = []
    for one in found.settings:
        default = {"home": "the platform's cache folder", "compiler_cache_dir": "`<home>/v1/cache_dirs`"}.get(one.name)
        rows.append(
            [
                f"`{one.name}`",
                one.help,
                default or f"`{config.default(one.name)}`",
                f"`{config.PREFIX}{one.name.upper()}`",
            ]
        )
    return "\n".join(
        [
            "# Settings",
            "",
            "`cachekit config` prints each with its value and its origin. A flag wins over the environment,",
            "the environment over the project's `cachekit.toml` (or `[tool.cachekit]` of `pyproject.toml`), that file",
            "over the user's `config.toml`, and that file over the default.",
            "",
            *_table(["setting", "meaning", "default", "variable"], rows),
            "",
        ]
    )


def errors() -> str:
    """Errors by exit code, from `errors.py`."""
    from cachekit.errors import EXIT_CODES, every_error

    rows = [
        [str(code), meaning, ", ".join(f"`{cls.code}`" for cls in every_error() if cls.exit_code == code)]
        for code, meaning in EXIT_CODES.items()
    ]
    lines = [
        "# Errors and exit codes",
        "",
        "An error is three lines on stderr: what happened, the cause, and what helps. With",
    ]
    lines += ["`--format json` the same is a document on stdout, under `error`. `-vv` adds a traceback.", ""]
    lines += [*_table(["exit code", "meaning", "error codes"], rows), "", "## Classes", ""]
    lines += ["The library raises them; each has `message`, `cause`, `hint`, `code`, `exit_code` and `as_dict()`.", ""]
    for cls in every_error():
        above = cls.__mro__[1].__name__
        lines.append(f"- `{cls.__name__}` (`{cls.code}`, {cls.exit_code}; a `{above}`): {_first(cls)}")
    return "\n".join(lines) + "\n"


def recipe() -> str:
    """Every field of a recipe, from its schema."""
    import msgspec

    from cachekit.recipe import schema

    lines = [
        "# The recipe's schema",
        "",
        "`cachekit zoo schema` prints it for editors; [recipes](../recipes.md) explains.",
        "",
    ]
    for part in (schema.Recipe, *_parts(schema)):
        lines += [f"## {part.__name__}", "", _first(part), ""]
        said = dict(_items(inspect.getdoc(part) or "", "Attributes"))
        hints = {field.name: field for field in msgspec.structs.fields(part)}
        rows = []
        for name, field in hints.items():
            default = "required" if field.required else _value(field.default)
            if field.default_factory is not msgspec.NODEFAULT:
                default = "" if isinstance(field.default_factory, type) else _value(field.default_factory())
            kind = str(part.__annotations__.get(name, ""))
            rows.append([f"`{name}`", f"`{kind}`", default, said.get(name, "")])
        lines += [*_table(["field", "type", "default", "meaning"], rows), ""]
    return "\n".join(lines)


def _parts(schema: Any) -> Iterator[Any]:
    import msgspec

    for _, value in inspect.getmembers(schema, inspect.isclass):
        ours = issubclass(value, msgspec.Struct) and value.__module__ == schema.__name__
        if ours and value.__name__[0] != "_" and value is not schema.Recipe:
            yield value


def _value(value: Any) -> str:
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


# Python


def python() -> str:
    """What `cachekit.__all__` holds, from signatures and docstrings."""
    import cachekit
    import cachekit.api

    lines = [
        "# Python API",
        "",
        *_markdown(inspect.getdoc(cachekit) or ""),
        "",
        *_markdown(inspect.getdoc(cachekit.api) or ""),
    ]
    names = [name for name in cachekit.__all__ if not name.startswith("_")]
    lines += ["", "## Functions", ""]
    for name in (name for name in names if name[0].islower()):
        value = getattr(cachekit, name)
        lines += [f"### `{name}`", "", "```python", _signature(name, value), "```", ""]
        lines += [*_markdown(inspect.getdoc(value) or ""), ""]
    lines += ["## Options", "", *_cache(), "## The callback", "", *_callback(), "", "## Results and collaborators", ""]
    shown = {"Cache", "CacheCallback"}
    for name in (name for name in names if name[0].isupper() and not name.endswith("Error") and name not in shown):
        value = getattr(cachekit, name)
        lines += [f"### `{name}`", "", f"`{value.__module__}.{name}`", "", *_markdown(inspect.getdoc(value) or ""), ""]
        for member, found in vars(value).items():
            if (
                member[0] != "_"
                and (inspect.isfunction(found) or isinstance(found, property))
                and inspect.getdoc(found)
            ):
                call = f"{member}" if isinstance(found, property) else f"{member}()"
                lines.append(f"- `{call}`: {_first(found)}")
        lines.append("")
    errors_of = ", ".join(f"`{name}`" for name in names if name.endswith("Error"))
    return "\n".join([*lines, "## Errors", "", f"{errors_of}: see [errors](errors.md).", ""])


def _cache() -> list[str]:
    """The class whose methods are the functions."""
    import cachekit

    signature = _signature("Cache", cachekit.Cache)
    return ["### `Cache`", "", "```python", signature, "```", "", *_markdown(inspect.getdoc(cachekit.Cache) or ""), ""]


def _callback() -> list[str]:
    """Read as text: importing it imports transformers."""
    import ast

    import cachekit

    tree = ast.parse(Path(cachekit.__file__).with_name("trainer_callback.py").read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "CacheCallback")
    return ["### `CacheCallback`", "", *_markdown(ast.get_docstring(found) or "")]


def _signature(name: str, value: Any) -> str:
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))  # annotations are texts
    if len(text) < 70:
        return f"{name}{text}"
    inner, _, returns = text[1:].rpartition(")")
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(inner):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(inner[start:position].strip())
            start = position + 1
    parts.append(inner[start:].strip())
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _first(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _items(text: str, section: str) -> Iterator[tuple[str, str]]:
    """`name: words` of a docstring's section."""
    found = re.search(rf"^{section}:\n((?:[ ]+.*\n?|\n(?=[ ]))*)", text, re.MULTILINE)
    if found is None:
        return
    body = inspect.cleandoc(found[1])
    for item in re.split(r"\n(?=\S)", body):
        name, colon, words = item.partition(":")
        if colon:
            yield name.strip(), " ".join(words.split())
        else:
            yield "", " ".join(item.split())


def _markdown(text: str) -> list[str]:
    """A docstring in Google's style as Markdown."""
    lines: list[str] = []
    for block in re.split(rf"^(?=(?:{'|'.join(SECTIONS)}):\n)", text, flags=re.MULTILINE):
        title, _, _ = block.partition(":\n")
        if title in SECTIONS:
            words = {"Args": "Arguments"}.get(title, title)
            items = [f"- `{name}`: {said}" if name else f"- {said}" for name, said in _items(block, title)]
            lines += [f"**{words}**", "", *items, ""]
        else:
            lines += [*block.rstrip().split("\n"), ""]
    return lines
