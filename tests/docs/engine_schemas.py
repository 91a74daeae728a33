"""What is published of the files that engines take, as JSON Schemas: SkyPilot's, Kubernetes' and GitHub's.

The packages of the first two are installed without what they depend on: only their schemas are used.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry, Resource

from tests.support.processes import run_python

# A field that takes certain words only, by what its description says; no schema of Kubernetes lists them.
WORDS = re.compile(
    r"\bone of\b|possible values|\bvalid (values|operators|options)\b|can be `|must be an empty string", re.IGNORECASE
)


def problems(schema: Any, document: Any, **more: Any) -> list[str]:
    """What is wrong with a document by a schema; the place, and the validator's words."""
    found = validator_for(schema, Draft202012Validator)(schema, **more).iter_errors(document)
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message[:300]}" for one in found]


def _package(name: str) -> Path:
    """Where a package's files are."""
    try:
        return Path(str(distribution(name).locate_file("")))
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed: `make .venv/.installed`")


# GitHub


def github(workflow: dict[str, Any]) -> list[str]:
    """What is wrong with a workflow, by the schema of schemastore.org that `check-jsonschema` ships."""
    file = _package("check-jsonschema") / "check_jsonschema/builtin_schemas/vendor/github-workflows.json"
    return problems(json.loads(file.read_text()), workflow)


# SkyPilot


def skypilot(task: dict[str, Any]) -> list[str]:
    """What is wrong with a task: the task itself, its resources and its mounts have a schema each."""
    schemas = _skypilot()
    wrong = problems(schemas["task"], task) + problems(schemas["resources"], task.get("resources", {}))
    for mount in task.get("file_mounts", {}).values():
        if isinstance(mount, dict):
            wrong += problems(schemas["storage"], mount)
    return wrong


@cache
def _skypilot() -> dict[str, Any]:
    """SkyPilot's schemas are Python (`sky/utils/schemas.py`): a process makes them, with stand-ins for the rest."""
    site = _package("skypilot")
    run = run_python(Path(__file__), site, folder=site, environment={"PYTHONPATH": ""}, code=0)
    schemas: dict[str, Any] = json.loads(run.stdout)
    return schemas


def _print_skypilot(site: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location
    from types import ModuleType
    from unittest.mock import MagicMock

    def put(name: str, module: Any) -> Any:
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
        return module

    def load(name: str) -> Any:
        spec = spec_from_file_location(name, site / f"{name.replace('.', '/')}.py")
        assert spec is not None
        assert spec.loader is not None
        module = put(name, module_from_spec(spec))
        spec.loader.exec_module(module)
        return module

    for name in ("sky", "sky.utils", "sky.skylet", "sky.server", "sky.data", "sky.setup_files"):
        put(name, ModuleType(name)).__path__ = []
    sys.modules["sky"].__version__ = "0"  # type: ignore[attr-defined]
    stood_in = ("sky.skylet.autostop_lib", "sky.server.plugins", "sky.server.daemons", "sky.data.storage")
    autostop, _, daemons, storage = [put(name, MagicMock()) for name in stood_in]
    autostop.AutostopWaitFor.supported_modes.return_value = ["jobs_and_ssh", "jobs", "none"]
    daemons.INTERNAL_REQUEST_DAEMONS = []
    for kind, values in _enums(site / "sky" / "data" / "storage.py").items():
        setattr(storage, kind, [SimpleNamespace(value=value) for value in values])
    load("sky.setup_files.dependencies")
    # As the server reads a task, which refuses fields that it does not know; the client lets them through.
    os.environ[load("sky.skylet.constants").ENV_VAR_IS_SKYPILOT_SERVER] = "1"
    load("sky.utils.kubernetes_enums")
    made = load("sky.utils.schemas")
    parts = {
        "task": made.get_task_schema(),
        "resources": made.get_resources_schema(),
        "storage": made.get_storage_schema(),
    }
    print(json.dumps({name: _either_case(schema) for name, schema in parts.items()}))  # noqa: T201 - to its parent


def _enums(source: Path) -> dict[str, list[str]]:
    """Enumerations of a module, which is not imported: the values of each."""
    classes = (node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef))
    return {
        one.name: [
            line.value.value
            for line in one.body
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
        ]
        for one in classes
        if any("Enum" in ast.unparse(base) for base in one.bases)
    }


def _either_case(schema: Any) -> Any:
    """SkyPilot's own word `case_insensitive_enum`, in words of JSON Schema."""
    if isinstance(schema, list):
        return [_either_case(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _either_case(one) for name, one in schema.items() if name != "case_insensitive_enum"}
    if words := schema.get("case_insensitive_enum"):
        found["pattern"] = f"(?i)^({'|'.join(map(re.escape, words))})$"
    return found


# Kubernetes


@cache
def _kubernetes(file: str, version: str) -> dict[str, Any]:
    folder = _package("kubernetes-validate") / "kubernetes_validate/kubernetes-json-schema"
    schema: dict[str, Any] = json.loads((folder / f"v{version}.0-local-strict" / file).read_text())
    return schema


def kubernetes(document: dict[str, Any], version: str) -> list[str]:
    """What is wrong with an object, strictly: unknown fields, types, and words that its field's description lacks."""
    group = document["apiVersion"].replace("/", "-")
    kind = _kubernetes(f"{document['kind'].lower()}-{group}.json", version)
    definitions = _kubernetes("_definitions.json", version)
    known = Registry().with_resources([("_definitions.json", Resource.from_contents(definitions))])
    return problems(kind, document, registry=known) + list(_words(document, kind, definitions["$defs"], ""))


def _words(value: Any, schema: dict[str, Any], definitions: dict[str, Any], place: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    if isinstance(value, dict):
        other = schema.get("additionalProperties")
        for name, inner in value.items():
            part = schema.get("properties", {}).get(name, other if isinstance(other, dict) else {})
            yield from _words(inner, part, definitions, f"{place}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _words(inner, schema.get("items", {}), definitions, f"{place}.{number}")
    elif isinstance(value, str) and value:
        description = schema.get("description", "")
        if WORDS.search(description) and not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", description):
            yield f"{place.lstrip('.')}: {value!r} is no word of its description"


if __name__ == "__main__":
    _print_skypilot(Path(sys.argv[1]))
