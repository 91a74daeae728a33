"""A module in `verbs/` is a use case: something outside enters it. What only verbs need lies in a room below."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import cachekit

ROOT = Path(cachekit.__file__).parent
VERBS = ROOT / "verbs"


def imported(path):
    """The names that a file which imports verbs imports, wherever in it."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if "cachekit.verbs" in source else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_what_one_compiler_alone_knows_is_asked_of_it():
    """No verb has a compiler's name in a text that somebody reads, or asks for it by that."""
    documents, found = set(), []
    for path in VERBS.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documents |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documents)
        found += [(path.stem, one.value) for one in texts if re.search("(?i)inductor|neuron", str(one.value))]
    assert found == []


def test_each_verb_is_entered_from_outside():
    outside = {name for path in ROOT.rglob("*.py") if VERBS not in path.parents for name in imported(path)}
    verbs = {f"cachekit.verbs.{path.stem}" for path in VERBS.glob("*.py") if path.stem != "__init__"}
    assert verbs - outside == set()
