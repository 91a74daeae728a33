"""The names of a recipe's fields: where each was said, other tools' names, and what to say of one that does not fit.

Synonyms are those of the recipes that exist in the field (optimum-neuron's scripts, neuronx-distributed-training,
Metaflow, SageMaker samples): whoever brings one over should find that it reads. Every synonym maps to one name; using
both is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from cachekit.decode import from_builtins
from cachekit.errors import RecipeError
from cachekit.recipe.schema import Recipe
from cachekit.recipe.yaml_text import Path, dotted
from cachekit.text import first_of

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`")


class Places(Struct, frozen=True):
    """The places that the fields of one recipe were said in.

    Attributes:
        source: The file, or what it is called in errors.
        lines: The line of each field that the file has, by the field's path.
        overridden: The paths that `--set` gave.
    """

    source: str
    lines: dict[Path, int]
    overridden: set[tuple[str, ...]]

    def where(self, path: Path) -> str:
        """The place of a field, of an item of it, or else of the nearest that is around it; for a message's begin."""
        for end in range(len(path), 0, -1):
            around = path[:end]
            if around not in self.overridden and around in self.lines:
                return f"{self.source}, line {self.lines[around]}"
            for given in self.overridden:
                if given[:end] == around:
                    return f"--set {dotted(given)}"
        return self.source


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}

_TEXT = re.compile(r"Expected `([a-z]+ \| )*str\b")  # a text would do


def _in_words(types: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types[1].split(" | "))


def explained(message: str, document: dict[str, Any], places: Places) -> RecipeError:
    """Turn msgspec's sentence into file, line, field, what was expected, and the nearest valid name."""
    what, _, at = message.partition(" - at `")
    path = _path_of(at)
    if match := _UNKNOWN.match(what):
        return _unknown(path, match[1], places)
    if match := _MISSING.match(what):
        missing = dotted((*path, match[1]))
        return RecipeError(f"{places.where(path)}: {missing} is missing", hint=f"add {missing}")
    value: Any = document
    for part in path:
        value = value[part]
    if at.endswith("[...]`") and isinstance(value, dict):
        # msgspec does not say which item of a mapping is wrong.
        for name, item in value.items():
            try:
                from_builtins({name: item}, _type_at(path))
            except msgspec.ValidationError:
                path, value = (*path, name), item
                break
    choices = _choices(_type_at(path))
    near = get_close_matches(str(value), choices, n=1)
    hint = f"correct {dotted(path)}"
    if path in {("model",), ("data",)} and isinstance(value, str):
        hint = f"write {path[0]}: {{id: {value}}}"
    elif str(value) in choices:  # one, where several are asked for
        hint = f"write [{value}]"
    elif choices:
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(choices)}"
    elif _TEXT.match(what) and isinstance(value, int | float):
        said = str(value).lower() if isinstance(value, bool) else value
        hint = f'quote it: "{said}"'
        hint = f"quote it, for the shell, too: '\"{said}\"'" if places.where(path).startswith("--set ") else hint
    expected = re.sub(r", got `.*?`$", "", what[:1].lower() + what[1:])
    expected = re.sub(r"`([a-z |]+)`", _in_words, expected)
    # Only a recipe's name has a pattern.
    expected = re.sub(" matching regex '.*'", " of small letters, digits, `.`, `_` and `-`", expected)
    expected = re.sub(r"of length <= (\d+)", r"of \1 characters at most", expected)
    return RecipeError(f"{places.where(path)}: {dotted(path)} is {value!r}", cause=expected, hint=hint)


def _unknown(parent: Path, name: str, places: Places) -> RecipeError:
    struct = _struct_of(_type_at(parent))
    valid = list(struct.__struct_fields__) if struct else []
    synonyms = {**SYNONYMS.get(dotted(parent), {}), **MEANT.get(dotted(parent), {})}
    near = get_close_matches(name, [*valid, *synonyms], n=1, cutoff=0.5)
    known = get_close_matches(name, valid, n=len(valid) or 1, cutoff=0.0)
    return RecipeError(
        f"{places.where((*parent, name))}: unknown field {dotted((*parent, name))}",
        cause=f"fields of {dotted(parent) or 'a recipe'} are {first_of(known, 5)}",
        hint=f"did you mean {dotted((*parent, synonyms.get(near[0], near[0])))}?"
        if near
        else "`cachekit zoo schema` lists all fields",
    )


def _path_of(at: str) -> Path:
    """`$.training.x[0]` as `("training", "x", 0)`; msgspec writes `[...]` for a mapping's or list's unnamed item."""
    parts = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", at)
    return tuple(int(index) if index else name for name, index in parts)


def _type_at(path: Path) -> Any:
    """The type of a field, or of the part of a recipe that an item stands in; None for an unknown field."""
    found: Any = Recipe
    for part in path:
        if isinstance(part, str):
            struct = _struct_of(found)
            found = get_type_hints(struct).get(part) if struct else None
    return found


def _parts_of(kind: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield kind
    for inner in get_args(kind):
        yield from _parts_of(inner)


def _struct_of(kind: Any) -> type[Struct] | None:
    return next((part for part in _parts_of(kind) if hasattr(part, "__struct_fields__")), None)


def _choices(kind: Any) -> list[str]:
    """The words that a field takes; none where it takes any."""
    words = [part for part in _parts_of(kind) if isinstance(part, str)]
    return ["true", "false", *words] if words and bool in _parts_of(kind) else words


# Names of other tools whose values are other ones, so that they are not synonyms: an error points to the field.
MEANT: dict[str, dict[str, str]] = {
    "training": {"precision": "bf16", "mixed_precision": "bf16", "dtype": "bf16"},
}
SYNONYMS: dict[str, dict[str, str]] = {
    "": {
        "env": "environment",
        "trainer": "training",
        "dataset": "data",
        "expected": "expect",
        "parallelism": "parallel",
    },
    "model": {
        "model_id": "id",
        "model_name_or_path": "id",
        "name": "id",
        "config_overrides": "config",
        "tokenizer_name": "tokenizer",
    },
    "data": {
        "dataset_name": "id",
        "name": "id",
        "dataset_config_name": "config",
        "train": "train_file",
        "validation": "validation_file",
        "test": "test_file",
        "sentence_column": "text_column",
        "label_names": "labels",
        "max_train_rows": "max_train_samples",
        "max_eval_rows": "max_eval_samples",
        "summary_column": "target_column",
        "source_language": "source_lang",
        "target_language": "target_lang",
    },
    "training": {
        "batch_size": "per_device_train_batch_size",
        "train_batch_size": "per_device_train_batch_size",
        "micro_batch_size": "per_device_train_batch_size",
        "eval_batch_size": "per_device_eval_batch_size",
        "max_length": "max_seq_length",
        "sequence_length": "max_seq_length",
        "seq_length": "max_seq_length",
        "block_size": "max_seq_length",
        "train_max_length": "max_seq_length",
        "epochs": "num_train_epochs",
        "num_epochs": "num_train_epochs",
        "max_train_steps": "max_steps",
        "total_steps": "max_steps",
        "lr": "learning_rate",
        "accumulation_steps": "gradient_accumulation_steps",
        "evaluation_strategy": "eval_strategy",
        "lr_scheduler": "lr_scheduler_type",
        "optimizer": "optim",
        "label_smoothing": "label_smoothing_factor",
        "peft": "lora",
        "max_source_length": "max_seq_length",
        "source_sequence_length": "max_seq_length",
        "target_sequence_length": "max_target_length",
    },
    "parallel": {
        "num_cores": "data_parallel_size",
        "num_workers": "data_parallel_size",
        "nproc_per_node": "data_parallel_size",
        "devices": "data_parallel_size",
        "tensor_parallelism_degree": "tensor_parallel_size",
        "tensor_model_parallel_size": "tensor_parallel_size",
        "pipeline_model_parallel_size": "pipeline_parallel_size",
        "use_zero_1": "zero_1",
        "zero1": "zero_1",
        "num_nodes": "nodes",
        "nnodes": "nodes",
    },
    "compiler": {"compiler_flags": "flags", "backend": "name"},
}


def canonical(path: Path) -> Path:
    """A field's path by the names that we use."""
    if not path:
        return path
    top = SYNONYMS[""].get(str(path[0]), path[0])
    names = SYNONYMS.get(str(top), {})
    return (top, *(names.get(str(name), name) for name in path[1:2]), *path[2:])


def normalise(document: dict[str, Any], lines: Mapping[Path, int], source: str) -> dict[str, Any]:
    """Rename synonyms, at the top and one level down; other values are kept as they are.

    Raises:
        RecipeError: A field is given under two names.
    """
    renamed = _rename(document, (), lines, source)
    for section, value in renamed.items():
        if section in SYNONYMS and isinstance(value, dict):
            renamed[section] = _rename(value, (section,), lines, source)
    return renamed


def _rename(mapping: dict[str, Any], around: Path, lines: Mapping[Path, int], source: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for given, value in mapping.items():
        *_, name = canonical((*around, given))
        first = spelled.setdefault(str(name), given)
        if name in result:
            prefix = "".join(f"{section}." for section in around)
            line = lines.get((*around, given))
            raise RecipeError(
                f"{source}{f', line {line}' if line else ''}: {prefix}{first} and {prefix}{given} are the same field",
                hint=f"keep {prefix}{name}",
            )
        result[str(name)] = value
    return result
