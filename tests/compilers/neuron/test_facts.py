"""A wrong fact about Neuron is one edit: what `facts` says is said nowhere else in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cachekit
from cachekit.compilers.neuron import facts, presence

PACKAGE = Path(cachekit.__file__).parent
FACTS = {Path(facts.__file__), Path(presence.__file__)}  # the second is asked for at every start
# Neuron's own words: variables, options of its tools, files of its cache, addresses.
WORDS = re.compile(r"NEURON_[A-Z]|--[a-z]|model\.|log-neuron|https?://|/opt/aws|/var/tmp|/sys/|neff|Neuron|neuron")
# Names of tools and packages may stand in sentences for people; alone they are a fact.
NAMES = re.compile(r"(?:optimum-)?neuron[a-z_-]*|libneuron[a-z]*|torch[_-]neuronx")
ALLOWED = {
    ("recipe/command.py", "neuron_parallel_compile"),  # what users write before their own commands
    ("recipe/command.py", "torch_neuronx"),
    ("cli/zoo.py", "neuronx-cc"),  # columns of the registry's toolchains, which have packages by name
    ("cli/zoo.py", "torch-neuronx"),
    ("cli/neff.py", "model.neff"),  # a help text
    ("cli/neff.py", "neuronx-cc"),  # said to people
    ("compilers/neuron/neff/read.py", "neff.json"),
    ("compilers/registry.py", "neuronxcc-"),  # asked at every start, as the next
    ("compilers/neuron/adapter.py", "neuronxcc-"),
    ("cli/options.py", "--verbose"),  # an option of cachekit's own
    ("executors/slurm.py", "--output"),  # an option of srun
}
OWN = {"--target", "--output"}  # options that cachekit's own verbs have as well


def values(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key in value:
            yield from values(key)
    elif isinstance(value, tuple | list | set | frozenset):
        for part in value:
            yield from values(part)


KNOWN = {word for name in dir(facts) if name.isupper() for word in values(getattr(facts, name)) if WORDS.search(word)}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a module's code: no comments, no docstrings."""
    source = path.read_text()
    if not any(word in source for word in (*KNOWN, "NEURON_")):
        return
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.lineno, node.value


@cache
def repeated(text: str) -> set[str]:
    """Facts that a text repeats."""
    near = (word for word in KNOWN if word in text)
    found = {word for word in near if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text)}
    found |= {word for word in re.findall(r"NEURON_[A-Z_]+", text) if not hasattr(facts, word)}
    return {word for word in found if " " not in text.strip() or not NAMES.fullmatch(word)}


def test_a_fact_in_a_text_is_found():
    for text, words in [
        ("--output", {"--output"}),
        ("--output-dir", set()),
        ("set NEURON_CC_FLAGS=x", {"NEURON_CC_FLAGS"}),
        ("neuronx-cc", {"neuronx-cc"}),
        ("options of neuronx-cc go there", set()),
        ("remove model.done", {"model.done"}),
    ]:
        assert repeated(text) == words


def test_no_other_module_repeats_a_fact():
    leaks = [
        f"{path.relative_to(PACKAGE)}:{line}: {word}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in FACTS and "convert" not in path.parts  # which reads what other people wrote, by their words
        for line, text in literals(path)
        for word in sorted(repeated(text))
        if (path.relative_to(PACKAGE).as_posix(), word) not in ALLOWED
        and not (word in OWN and path.parent.name in {"api", "cli", "compilers", "verbs"})
    ]
    assert leaks == []
