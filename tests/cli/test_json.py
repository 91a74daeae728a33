"""JSON is a contract: what every data verb really prints fits the schema that it prints, and says what it is."""

from __future__ import annotations

import json
import re
import sys

import jsonschema
import msgspec
import pytest

from cachekit.api import answers
from tests.cli.team_session import hub, join, repo, shared_hub  # noqa: F401 - fixtures
from tests.cli.test_whole import DATA
from tests.compilers.neuron.neuron_files import make_neff
from tests.executors.fleet_session import Fleet
from tests.support.cli_session import publish, publish_record, small_record
from tests.trust.trust_cases import line

pytest_plugins = ["tests.support.cli_session"]

LOGGED = "2023-08-25 21:52:23.000453: INFO ||NCC_WRAPPER||: Using a cached neff at /var/tmp/neuron-compile-cache"
LONGER = ("--set", "training.max_seq_length=16")
KEY = small_record().key


def first_day(work):
    """Command lines of one user in their order, each with its exit code: every data verb, but for those of others."""
    make_neff(work / "whole.neff")
    market = ("--cache", f"local:rw,{work / 'market'}:rw")
    return [
        (("zoo",), 0),
        *((("zoo", "ls", kind), 0) for kind in ("recipes", "models", "instances", "toolchains")),
        *((("zoo", "show", name), 0) for name in ("bert", "roberta-base", "trn1.2xlarge", "neuron-2.31")),
        (("zoo", "check", "tiny.yaml"), 0),
        (("zoo", "check", "absent.yaml"), 2),
        (("zoo", "new", "--", "run_glue.py", "--model_name_or_path", "bert-base-uncased", "--task_name", "rte"), 0),
        (("config",), 0),
        (("doctor",), None),
        (("plan", "tiny.yaml"), 0),
        (("plan", "tiny.yaml", *LONGER), 0),
        (("plan", "tiny.yaml", "bert"), 0),
        (("plan", "tiny.yaml", *LONGER, "--require-warm"), 3),
        (("warm", "tiny.yaml", *LONGER, "--dry-run"), 0),
        (("warm", "tiny.yaml", *LONGER), 0),
        (("warm", "--matrix", "list.yaml"), 0),
        (("train", "tiny.yaml", *LONGER, "--dry-run"), 0),
        (("train", "tiny.yaml", *LONGER, "-o", "model"), 0),
        (("run", "--dry-run", "--", sys.executable, "train.py"), 0),
        (("why", "tiny.yaml", "--set", "training.max_seq_length=24"), 0),
        (("why", "tiny.yaml", KEY), 0),
        (("why", "--run", "last"), 0),
        (("why", "--log", "neuron.log"), 0),
        (("coverage", "tiny.yaml", "bert"), 0),
        (("stats",), 0),
        (("stats", "--check"), 0),
        (("store", "ls"), 0),
        (("store", "show", KEY), 0),
        (("store", "pin", KEY), 0),
        (("store", "pin", "--list"), 0),
        (("store", "unpin", KEY), 0),
        (("store", "verify"), 0),
        (("store", "gc", "--max-size", "10GB", "--dry-run"), 0),
        (("store", "lock", "tiny.yaml"), 0),
        (("store", "lock", "--check"), 0),
        (("store", "export", "tiny.tar", KEY), 0),
        (("store", "import", "tiny.tar", "--trust-all"), 0),
        (("store", "neff", "whole.neff"), 0),
        (("push", "tiny.yaml", *market), 0),
        (("hub", "ls", *market), 0),
        (("trust", "init"), 0),
        (("trust", "add", "ann", line(1)), 0),
        (("trust", "ls"), 0),
        (("trust", "sign", KEY), 0),
        (("trust", "check", *market), None),
        (("trust", "revoke", "ann"), 0),
        (("store", "rm", KEY), 0),
        (("pull", "tiny.yaml", "--trust-all", *market), 0),
    ]


def checked(path, document, schemas, command):
    """A document, or each of a list's, that fits its verb's schema; its name."""
    if path not in schemas:
        schemas[path] = jsonschema.Draft202012Validator(command(*path, "--schema").json)
    schemas[path].validate(document)
    for one in document if isinstance(document, list) else [document]:
        assert re.fullmatch(r"cachekit/[a-z-]+/[1-9]", one["schema"]), "it says what it is"


def check(schemas):
    """See that schemas are schemas: each definition once, which most of them share."""
    parts = [part for one in schemas for part in ({**one, "$defs": {}}, *one.get("$defs", {}).values())]
    jsonschema.Draft202012Validator.check_schema({"$defs": {json.dumps(part): part for part in parts}})


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    """The user's own settings, as no other test has them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.feature("U2")
@pytest.mark.usefixtures("machine", "worker")
def test_what_every_verb_prints_fits_its_schema(command, work, home, join, repo):
    (work / "market").mkdir(mode=0o700)
    (work / "train.py").write_text("import torch\n")
    (work / "list.yaml").write_text("- tiny.yaml\n")
    (work / "neuron.log").write_text(f"{LOGGED}/neuronxcc-2.8.0.25+a3ad0f342/MODULE_7+d41d8cd9/model.neff. Exiting.\n")
    publish_record(home, small_record())
    publish(home)
    schemas, seen = {}, set()
    for words, code in first_day(work):
        path = words[:2] if words[:2] in DATA else words[:1]
        options = ("--format", "json", "--quiet")
        place = words.index("--") if "--" in words else len(words)
        answer = command(*words[:place], *options, *words[place:], code=code)
        if path != ("zoo",):
            checked(path, answer.json, schemas, command)
        seen.add(path)
    ann = join("ann")
    for words in (("hub", "create", f"{repo.name}-own", "--dry-run"), ("hub", "use", repo.name)):
        checked(words[:2], ann(*words, "--format", "json").json, schemas, command)
        seen.add(words[:2])
    (work.parent / "fleet").mkdir()
    fleet = Fleet(work.parent / "fleet", {})
    fleet_document = fleet.warm(fleet.matrix([1]), "--on", "local")
    checked(("warm",), fleet_document, schemas, command)
    for words in (("ls",), ("show",), ("wait",), ("logs", fleet_document["id"], "0"), ("cancel",)):
        path = ("fleet", words[0])
        checked(path, fleet("fleet", *words, "--format", "json")[0], schemas, command)
        seen.add(path)
    assert set(DATA) - seen == set(), "every data verb"
    check([one.schema for one in schemas.values()])


def test_each_document_has_a_name_of_its_own():
    kinds = [getattr(answers, name) for name in answers.__all__]
    names = [kind.__struct_config__.tag for kind in kinds if kind.__struct_config__.tag is not None]
    assert len(set(names)) == len(names) > 40
    assert [name for name in names if not re.fullmatch(r"cachekit/[a-z-]+/[1-9]", str(name))] == []


def test_an_answer_of_the_library_is_the_same_document(command, home, machine):
    from cachekit import plan

    publish(home)
    printed = command("plan", "tiny.yaml", "--format", "json").json
    made = plan("tiny.yaml").as_dict()
    assert next(iter(printed)) == next(iter(made)) == "schema"
    assert (printed["schema"], printed["key"]) == (made["schema"], made["key"]) == ("cachekit/plan/1", printed["key"])
    assert msgspec.json.decode(json.dumps(made))["schema"] == "cachekit/plan/1"
