"""The documents: every command in them could be typed, every link leads somewhere, and the reference is complete."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import cache
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

import cachekit
from cachekit import config, host
from cachekit.compilers import registry
from cachekit.compilers.neuron import doctor as neuron_doctor
from cachekit.compilers.neuron import facts
from cachekit.errors import every_error
from cachekit.recipe import tasks, zoo
from cachekit.verbs import doctor
from tests.support import command_words

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import generate  # noqa: E402
import generate_facts  # noqa: E402

WRITTEN = sorted(path for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
COMMANDS = [
    (path.relative_to(ROOT).as_posix(), command)
    for path in WRITTEN
    if path.name != "features.md" and path.parent.name != "decisions"
    for command in command_words.commands_in(path.read_text(encoding="utf-8"))
]
NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@cache
def generated() -> dict[str, str]:
    return {**generate.pages(), generate_facts.PAGE: generate_facts.neuron_facts()}


# Commands


def test_there_are_commands_to_look_at():
    """If the reader of documents finds none, the test below proves nothing."""
    assert len(COMMANDS) > 100
    assert {path for path, _ in COMMANDS} >= {"README.md", "docs/tutorial.md", "docs/howto/ci.md", "docs/sharing.md"}


def test_a_command_could_be_typed():
    for path, command in COMMANDS:
        assert command_words.problem(command) == "", path


def test_a_wrong_command_is_found():
    for line, told in [
        ("cachekit nonsense bert", "nonsense is no verb"),
        ("cachekit plan bert --nonsense", "plan has no --nonsense"),
        ("cachekit zoo nonsense", "zoo has no nonsense"),
        ("cachekit plan bert --home", "plan --home lacks its value"),
        ("cachekit run --lr 3 -- python train.py", "run has no --lr"),
        ("cachekit run -- python train.py --lr 3", ""),
        ("cachekit plan bert -f json -v --set a=b", ""),
    ]:
        assert command_words.problem(line) == told


def test_recipes_in_commands_are_there():
    """`bert` in `cachekit warm bert` is a recipe of the zoo; files are the reader's own."""
    known = {*zoo.recipes(), "my.yaml"}
    verbs = {"warm", "train", "plan", "pull"}
    for path, command in COMMANDS:
        words = command.split()
        if len(words) > 2 and words[1] in verbs and re.fullmatch(r"[a-z][\w.-]*", words[2]) and "/" not in words[2]:
            assert words[2] in known or words[2].endswith((".yaml", ".yml")), (path, command)


# Links, pages


def test_links_lead_somewhere():
    for path in WRITTEN:
        made = set(generated())
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8").replace("\n", " ")):
            if "://" not in target:
                place = (path.parent / target.strip()).resolve()
                assert place.exists() or place.relative_to(DOCS).as_posix() in made, (path, target)


def test_tests_that_are_named_exist():
    """The README names a test beside each promise."""
    for path in WRITTEN:
        if path.name != "add-a-task.md" and path.parent.name != "decisions":
            named = re.findall(r"`(tests/[\w./*-]+)", path.read_text(encoding="utf-8"))
            assert [name for name in named if not list(ROOT.glob(name))] == [], path


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"- ([\w/.-]+\.md)$", NAV, re.MULTILINE))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | {
        name for name in generated() if name.endswith(".md")
    }


def test_code_parses():
    """Python, YAML and TOML in fences; what Python imports of cachekit is there."""
    for path in WRITTEN:
        text = path.read_text(encoding="utf-8")
        for kind, code in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if kind == "yaml":
                yaml.safe_load(code)
            if kind == "python":
                for node in ast.walk(ast.parse(code)):
                    _names_exist(node)


def test_the_script_of_a_page_is_the_one_that_is_run():
    """`tests/compilers/neuron/test_optimum_neuron.py` runs it, with the options of the page's command."""
    page = (DOCS / "howto" / "optimum-neuron.md").read_text(encoding="utf-8")
    script = (ROOT / "tests" / "support" / "neuron_sdk" / "scripts" / "train.py").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in script.splitlines()]
    assert [line for line in code.splitlines() if line.strip() not in lines] == []
    (command,) = re.findall(r"scripts/train\.py (--.+)", page)
    assert [word for word in command.split() if word.startswith("--") and f'"{word}"' not in script] == []


def _names_exist(node: ast.AST) -> None:
    """What Python imports of cachekit, reads of it, or hands to it is there."""
    if isinstance(node, ast.ImportFrom) and node.module == "cachekit":
        assert {alias.name for alias in node.names} <= set(cachekit.__all__)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cachekit":
        assert node.attr in cachekit.__all__
    if isinstance(node, ast.Call):
        _keywords_exist(node)


def _keywords_exist(call: ast.Call) -> None:
    """A function of ours is called with arguments that it has."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in cachekit.__all__:
        # The callback takes what `attach` takes, and the options of a cache.
        names = ("attach", "Cache") if name == "CacheCallback" else (name,)
        known = {word for one in names for word in inspect.signature(getattr(cachekit, one)).parameters}
        assert {word.arg for word in call.keywords} <= known, ast.unparse(call)


def test_the_checks_of_doctor_are_the_rows_of_its_page_and_counted_right(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")  # a host that has something of Neuron, and of each declared cache
    monkeypatch.setattr(host, "optional_version", lambda _: "1")
    checks = ["settings", *(check.name for check in doctor.checks())]
    rows = re.findall(r"^\| `([^`]+)` (?:\(.*\) )?\|", (DOCS / "doctor.md").read_text(encoding="utf-8"), re.MULTILINE)
    declared = {one.name for one in registry.ADAPTERS if not one.for_recipes}  # these share a row
    assert sorted({*rows, *declared}) == sorted(checks)
    elsewhere = {*declared, *(check.name for check in neuron_doctor.CHECKS)}
    readme, neuron = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/neuron.md"))
    assert f"[{len(rows)} things](docs/doctor.md) ({len(set(rows) - elsewhere)} where" in readme
    assert f"checks {len(rows)} things, {len(neuron_doctor.CHECKS)} of them of Neuron" in neuron


# The reference


def test_the_reference_has_every_verb_and_option():
    text = generated()["reference/verbs.md"]
    for path, parser in command_words.walk():
        assert f"## `cachekit {' '.join(path)}`" in text
        for option in command_words.options_of(parser):
            assert option in text


def test_the_reference_has_every_setting():
    text = generated()["reference/settings.md"]
    for setting in config.load({}, environ={}, cwd=Path("/")).settings:
        assert f"| `{setting.name}` | {setting.help}" in text


def test_the_reference_has_every_error():
    text = generated()["reference/errors.md"]
    for cls in every_error():
        assert f"`{cls.__name__}` (`{cls.code}`, {cls.exit_code}" in text


def test_the_reference_has_every_field_of_a_recipe():
    text = generated()["reference/recipe.md"]
    schema = cachekit.recipe.json_schema()
    for name, part in schema["$defs"].items():
        if "properties" in part:
            body = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
            for field in part["properties"]:
                assert f"| `{field}` |" in body, (name, field)


def test_the_page_of_recipes_has_a_row_for_each_task():
    table = (DOCS / "recipes.md").read_text(encoding="utf-8").partition("## Tasks\n")[2].partition("\n\nImages")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == [*tasks.TASKS]


def test_the_reference_has_every_name_of_the_library():
    text = generated()["reference/python.md"]
    for name in cachekit.__all__:
        assert f"`{name}`" in text or name.startswith("_")


def test_the_reference_has_every_fact_of_neuron():
    """Every constant, and what is said about it: a fact without evidence would stand out."""
    text = generated()[generate_facts.PAGE]
    source = Path(facts.__file__).read_text(encoding="utf-8")
    for name in re.findall(r"^([A-Z][A-Z0-9_]*)(?:: [^=]+)? = ", source, re.MULTILINE):
        assert f"| `{name}` |" in text, name
    assert text.count("SDK") > 50, "sources are told"


def test_comments_above_and_beside_a_value_are_its_evidence():
    source = (
        "# --- a title ----\n\n# Above [SDK].\nONE = 1  # beside [LOG]\nTWO = 2\n\nTHREE = (\n    1,  # within\n)\n"
    )
    [(title, entries)] = generate_facts.sections(source)
    assert title == "a title"
    assert entries == [("ONE", "Above [SDK]. beside [LOG]"), ("TWO", "Above [SDK]."), ("THREE", "within")]


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"])))
def test_nothing_in_a_value_is_markup(text):
    """What a browser shows of it is what it was."""
    import html

    inert = generate_facts._inert(text)
    assert html.unescape(inert) == text
    assert not re.search(r"[<>*_`|\[\]\\]", inert)
