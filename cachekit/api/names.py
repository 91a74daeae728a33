"""What a word of the command line names, and what the JSON of an answer is like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cachekit.errors import CachekitError, ErrorDocument, UsageError

SCHEMA = 1  # version of what `--schema` prints; raised when a field goes or means something else


def environment_warnings() -> list[str]:
    """What is odd about this environment, whatever is asked for, in sentences.

    A variable that is called as a setting is and that nothing reads; another project of the same import name, of which
    one overwrites the other's files when it is installed.
    """
    from cachekit.config import unknown_variables
    from cachekit.host import OTHER, OWN, other_project

    told = unknown_variables()
    if other := other_project():
        version, place = other
        told.append(
            f"{place} has {OTHER} {version}, another project that is imported by the same name: one breaks the other; "
            f"keep {OWN}: python -m pip uninstall {OTHER}, then install {OWN} again"
        )
    return told


def is_record(name: str) -> bool:
    """Whether a name is the first digits of a key, or a file with a record: anything else is a recipe's."""
    from cachekit.verbs.why import file_of_one, is_record

    return is_record(name) or file_of_one(name) is not None


def is_bundle(target: str) -> bool:
    """Whether a target of an export is a bundle's file; otherwise it is the folder of a Neuron cache.

    Raises:
        UsageError: The target is called as another kind of archive is, or as no folder of this machine.
    """
    from cachekit.disk import local_folder
    from cachekit.verbs.export import is_bundle

    return is_bundle(local_folder(target), target)


def is_file(source: str) -> bool:
    """Whether a source of an import is a file, and so a bundle.

    Raises:
        UsageError: The source is called as a bundle is, and is not there; or it is nothing of this machine.
    """
    from cachekit.disk import local_folder

    path = local_folder(source)
    if path.suffix == ".tar" and not path.exists():
        raise UsageError(f"there is no file {path}", hint="name a bundle of `cachekit store export`")
    return path.exists() and not path.is_dir()


def schema(title: str, answers: Sequence[Any]) -> dict[str, Any]:
    """The JSON Schema of a verb's answer.

    Args:
        title: The command.
        answers: The types that the answer may be of.
    """
    made, parts = msgspec.json.schema_components(answers, schema_hook=_of, ref_template="#/$defs/{name}")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "version": SCHEMA}
    return {**head, **(made[0] if len(made) == 1 else {"anyOf": list(made)}), "$defs": parts}


def _of(kind: type) -> dict[str, Any]:
    if issubclass(kind, CachekitError):
        parts = msgspec.json.schema_components([ErrorDocument])[1]
        return dict(parts[ErrorDocument.__name__])
    return {"type": "string"}  # a path
