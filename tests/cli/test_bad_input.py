"""Bad input on the command line: three lines, a hint, the right exit code.

Of each kind one: what all is wrong with a recipe or with rows is tested where these are read.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.cli_session import the_error

pytest_plugins = ["tests.support.cli_session"]
# What the user typed, exit code, error code, in the message, in the cause, in the hint.
BAD_INPUT = {
    "no such recipe file": ("plan missing.yaml", 2, "bad-recipe", "missing.yaml does not exist", "", "zoo"),
    "no such recipe": ("plan bret", 2, "unknown-name", "'bret'", "", "did you mean bert?"),
    "a patch release": ("zoo show neuron-2.29.1", 2, "unknown-name", "", "", "did you mean neuron-2.29?"),
    "empty name": ("plan ''", 2, "unknown-name", "''", "", "cachekit zoo"),
    "nobody's home": ("plan ~nobody-here/x.yaml", 2, "usage", "~nobody-here", "home", "./~nobody-here/x.yaml"),
    "nobody's home, of an output": (
        "train tiny.yaml --dry-run --output-dir ~nobody-here/o", 2, "usage", "~nobody-here", "home", "./",
    ),
    "nobody's home, of a remote": ("plan tiny.yaml --cache local:rw,~nobody-here/r:r", 2, "usage", "", "home", "./"),
    "nobody's home, of a record": ("why ~nobody-here/r.json tiny.yaml", 2, "usage", "~nobody-here", "home", "./"),
    "nobody's home, of a log": ("why --log ~nobody-here/run.log", 2, "usage", "~nobody-here", "home", "./"),
    "a folder": ("plan data", 2, "bad-recipe", "data is a folder", "", "YAML file"),
    "a folder's name like a recipe's": ("plan folder.yaml", 2, "bad-recipe", "folder.yaml is a folder", "", "YAML"),
    "bad YAML": ("plan broken.yaml", 2, "bad-recipe", "broken.yaml, line 3: not valid YAML", "expected", ""),
    "unknown field": (
        "plan unknown.yaml", 2, "bad-recipe", "unknown.yaml, line 4: unknown field training.epochz",
        "fields of training are", "did you mean training.num_train_epochs?",
    ),
    "impossible value by --set": (
        "plan tiny.yaml --set training.optim=adam", 2, "bad-recipe", "--set training.optim", "", "adamw_torch",
    ),
    "--set without a value": ("plan tiny.yaml --set training", 2, "usage", "--set training", "", "--set"),
    "unknown model": (
        "plan tiny.yaml --set model.id=nobody/no-such-model", 2, "unknown-name", "nobody/no-such-model",
        "offline", "model.id",
    ),
    "misspelt model": (
        "plan tiny.yaml --set model.id=bert-base-uncasd", 2, "unknown-name", "bert-base-uncasd",
        "", "did you mean bert-base-uncased?",
    ),
    "no such model folder": (
        "plan tiny.yaml --set model.path=nowhere", 2, "bad-recipe", "work/nowhere is not a folder", "", "config.json",
    ),
    "a model folder without a model": ("plan tiny.yaml --set model.path=data", 2, "bad-recipe", "config.json", "", ""),
    "no model at all": ("plan tiny.yaml --set model.id=null", 2, "bad-recipe", "model names nothing", "", "model.id"),
    "misspelt config": (
        "plan tiny.yaml --set model.config.num_hiden_layers=1", 2, "bad-recipe", "num_hiden_layers",
        "", "did you mean model.config.num_hidden_layers?",
    ),
    "a model without a layer": (
        "plan tiny.yaml --set model.config.num_hidden_layers=0", 2, "bad-recipe", "model.config.num_hidden_layers is 0",
        "1 or more", "correct model.config.num_hidden_layers or leave it out",
    ),
    "a setting among the worker's variables": (
        "plan tiny.yaml --set environment.CACHEKIT_HOME=/x", 2, "bad-recipe", "environment.CACHEKIT_HOME is a setting",
        "", "remove environment.CACHEKIT_HOME",
    ),
    "modules by name, of a compiler that names none": (
        "pull --all-of inductor-2.13.0 --cache local:rw,./data:r", 2, "usage",
        "modules of inductor-2.13.0 are in records", "", "with a recipe or a key, fetches a record",
    ),
    "no such label column": (
        "plan tiny.yaml --set data.labels=null --set data.label_column=lable", 2, "bad-data",
        "train.csv: no column 'lable'", "columns are text, label", "'label' perhaps",
    ),
    "no such text column": (
        "warm tiny.yaml --set data.text_column=txt", 2, "bad-data", "no column 'txt'", "text, label", "'text' perhaps",
    ),
    "no rows, labels known": (
        "warm tiny.yaml --set data.path=null --set data.train_file=header.csv", 2,
        "bad-data", "header.csv has no rows", "", "data.train_file",
    ),
    "no such validation file": (
        "warm tiny.yaml --set data.path=null --set data.train_file=data/train.csv --set data.validation_file=no.csv", 2,
        "bad-data", "no.csv does not exist", "", "check data.validation_file",
    ),
    "a test file without rows": (
        "warm tiny.yaml --set data.path=null --set data.train_file=data/train.csv --set data.test_file=header.csv", 2,
        "bad-data", "header.csv has no rows", "", "check data.test_file",
    ),
    "a model of images for texts": (
        'plan tiny.yaml --set model={"id":"google/vit-base-patch16-224"}', 2,
        "bad-recipe", "is not for the task text-classification", "a vit model reads images", "cachekit zoo ls models",
    ),
    "no data": ("warm tiny.yaml --set data.path=null", 2, "bad-data", "names no data", "", "data.train_file"),
    "unknown compiler": ("plan tiny.yaml --compiler nvcc", 2, "unknown-name", "'nvcc'", "", "inductor"),
    "neuron": ("plan tiny.yaml --compiler neuron", 1, "compiler-unavailable", "Neuron", "", "--compiler inductor"),
    "neuron by the recipe": (
        "warm tiny.yaml --set compiler.name=neuron", 1, "compiler-unavailable", "Neuron", "", "--compiler inductor",
    ),
    "a wait that is not a time": ("warm tiny.yaml --wait soon", 2, "usage", "--wait soon", "a time like", "--wait 10m"),
    "a wait without end": ("train tiny.yaml --wait nan", 2, "usage", "--wait", "0 or more", ""),
    "warm and not warm": (
        "warm tiny.yaml --require-warm --recache", 2, "usage", "--require-warm and --recache", "forbids", "leave one",
    ),
    "train warm and not warm": (
        "train tiny.yaml --require-warm --recache", 2, "usage", "--require-warm and --recache", "forbids", "leave one",
    ),
    "no variable's name": (
        "plan tiny.yaml --set environment={'A=B':1}", 2, "bad-recipe", "'A=B' cannot name a variable", "", "letters",
    ),
    "no variable's value": (
        'plan tiny.yaml --set environment.FOO="a\\u0000b"', 2, "bad-recipe",
        "environment.FOO has characters that no process can be given", "'a\\x00b'", "remove them",
    ),
    "a home that is too long": (
        f"plan tiny.yaml --home {'x' * 5000}", 1, "store", "cannot hold a store", "File name too long", "--home",
    ),
    "an option without its value": ("warm bert --on", 2, "usage", "--on", "", "cachekit warm --help"),
    "a value that a verb of a verb lacks": ("store rm --set", 2, "usage", "--set", "", "cachekit store rm --help"),
    "a port that is none": (
        "train tiny.yaml --nnodes 2 --master-addr a --master-port 99999", 2, "usage", "--master-port 99999: ", "",
        "65535",
    ),
    "a fleet, where there was none": (
        "fleet wait", 2, "unknown-name", "no fleet was submitted from this store", "", "--on ENGINE",
    ),
    "no such key": (
        "store show 0123456789", 2, "unknown-name", "no record begins with '0123456789'", "", "cachekit store ls"
    ),
    "a short key": ("store show abc", 2, "unknown-name", "'abc' is too short", "", "4 digits"),
    "a short key, where recipes have names": (
        "store rm abc", 2, "unknown-name", "there is no recipe named 'abc'", "", "4 digits"
    ),
    "nothing warmed here": ("train", 2, "usage", "no recipe was named", "", "cachekit warm RECIPE"),
    "output in a file's place": (
        "train tiny.yaml -o tiny.yaml", 2, "usage", "tiny.yaml cannot be written", "", "--output-dir",
    ),
    "output below a file": (
        "train tiny.yaml -o tiny.yaml/model", 2, "usage", "tiny.yaml/model cannot be written", "", "--output-dir",
    ),
    "no such topic": ("zoo ls penguins", 2, "usage", "penguins", "", "recipes, models, instances, toolchains"),
    "nothing of the zoo": ("zoo penguins", 2, "usage", "penguins", "", "cachekit zoo --help"),
    "no entry of that name": ("zoo show brt", 2, "unknown-name", "'brt'", "", "did you mean bert?"),
    "no such task": ("zoo ls --task question", 2, "usage", "'question'", "", "question-answering"),
    "a filter that does not fit": ("zoo ls models --max-price 3", 2, "usage", "--max-price", "", "recipes, instances"),
    "a price that is no number": ("zoo ls --max-price nan", 2, "usage", "--max-price nan: ", "", "--max-price 2"),
    "a highest price below nothing": ("zoo ls --max-price -1", 2, "usage", "--max-price -1: ", "", "--max-price 2"),
    "a price of any machine": ("zoo ls --price 0", 2, "usage", "--price 0: ", "instance types", "trn1.2xlarge=0.40"),
    "a file for what goes beside the answer": ("stats --html -", 2, "usage", "stdout has the answer", "", "--help"),
    "a report into a pipe": (
        "run --report pipe.csv -- false", 2, "usage", "pipe.csv cannot be written", "not a regular file", "another",
    ),
    "a report where stdout goes": ("run --report /dev/stdout -- false", 2, "usage", "/dev/stdout cannot", "", ""),
    "a report in no folder": ("run --report no/x -- false", 2, "usage", "no/x cannot be written", "No such file", ""),
    "a recipe in no folder": (
        "zoo new -o no/x -- python run_glue.py --task_name mrpc", 2, "usage", "no/x cannot be written", "No such", "",
    ),
    "a recipe into a pipe": (
        "zoo new --force -o pipe.csv -- python run_glue.py --task_name mrpc", 2, "usage", "pipe.csv cannot be written",
        "not a regular file", "",
    ),
    "a price that is none": ("zoo ls --price trn1.2xlarge=cheap", 2, "usage", "cheap", "", "trn1.2xlarge=0.40"),
    "no such kind of instance": (
        "zoo ls --instance trn9", 2, "unknown-name", "'trn9'", "", "`cachekit zoo ls instances` lists them",
    ),
    "a recipe's file that is not here": (
        "zoo show bert.yaml", 2, "unknown-name", "'bert.yaml'", "recipes, models", "did you mean bert?",
    ),
    "an ingredient twice": (
        "run --ingredient a=1 --ingredient a=2 -- true", 2, "usage", "--ingredient a is given twice",
        "as '1' and as '2'", "keep one",
    ),
    "an ingredient without a name": (
        "run --ingredient =1 -- true", 2, "usage", "--ingredient =1: not of the form", "", "layers=12",
    ),
    "a price of nothing": ("zoo ls --price trn9=1", 2, "unknown-name", "'trn9'", "", "instances"),
    "options before a command": ("zoo -f json ls", 2, "usage", "after the command", "", "cachekit zoo ls --format"),
    "no such verb of the store": ("store penguins", 2, "usage", "penguins", "", "cachekit store --help"),
    "no such verb": ("trian tiny.yaml", 2, "usage", "trian", "", "cachekit --help"),
    "a verb of the store": ("ls", 2, "usage", "'ls'", "", "cachekit store ls"),
    "a verb of the last edition": ("env", 2, "usage", "'env'", "", "cachekit doctor"),
    "neither a recipe nor a key": ("store rm zzz", 2, "unknown-name", "no recipe named 'zzz'", "of a key", "zoo"),
    "no program, predicted": ("run --dry-run -- nosuchcmd", 2, "usage", "nosuchcmd was not found", "PATH", "run --"),
    "a bundle from a pipe": (
        "store import pipe.csv --dry-run", 2, "usage", "pipe.csv cannot be read", "not a regular file", "standard",
    ),
    "nothing to import": ("store import nofile", 2, "usage", "nofile cannot be read", "No such file", "name a bundle"),
    "nobody to revoke": ("trust revoke nobody", 2, "usage", "'nobody'", "no signers", "name a key's fingerprint"),
    "a home without a name": ("config --home=", 2, "usage", "--home '' is not usable", "path of a folder", "~/"),
    "no run": ("why --run nope", 2, "unknown-name", "there is no run named 'nope'", "", "last"),
    "no log": ("why --log nowhere.log", 2, "usage", "nowhere.log cannot be read", "No such file", "tee run.log"),
    "a pipe as a log": ("why --log pipe.csv", 2, "usage", "pipe.csv cannot be read", "", "tee run.log"),
    "a log of something else": ("why --log header.csv", 2, "usage", "csv says nothing", "no line", "tee run.log"),
    "two of why": ("why --log header.csv --run last", 2, "usage", "--run and --log were both given", "", "leave one"),
    "no last run": ("why --run last", 2, "unknown-name", "no run of warm, train or run", "", "cachekit warm"),
    "no remote": ("hub ls", 2, "usage", "no remote is configured", "", "cachekit hub use"),
    "no such option": ("plan tiny.yaml --bogus", 2, "usage", "--bogus", "", "cachekit plan --help"),
    "too many recipes": ("warm tiny.yaml more.yaml", 2, "usage", "more.yaml", "", "cachekit warm --help"),
    "no recipe": ("plan", 2, "usage", "no recipe was named", "", "--all"),
    "named and chosen": ("plan tiny.yaml --task translation", 2, "usage", "choose from the zoo", "", "plan --all"),
    "no task to plan for": ("plan --task nothing", 2, "usage", "no task 'nothing'", "", "one of"),
    "a price of no number": ("plan tiny.yaml --price trn1.2xlarge=much", 2, "usage", "not a price", "", "--price 0.40"),
    "a price below nothing": ("plan tiny.yaml --price=-1", 2, "usage", "not a price", "", "--price 0.40"),
    "a price of nobody": ("plan tiny.yaml --price trn1.2xlrage", 2, "unknown-name", "trn1.2xlrage", "", "trn1.2xlarge"),
    "a price nobody knows": ("plan tiny.yaml --price inf2.xlarge", 2, "usage", "no price for inf2", "", "=DOLLARS"),
    "no such target": ("plan tiny.yaml --target trn9", 2, "usage", "'trn9'", "", "trn1"),
    "target and instance": ("plan tiny.yaml --target inf2 --instance trn1.2xlarge", 2, "usage", "trn1", "", "out"),
}  # fmt: skip


@pytest.fixture
def bad_files(work):
    (work / "folder.yaml").mkdir()
    os.mkfifo(work / "pipe.csv")
    (work / "broken.yaml").write_text("name: x\nmodel: [a\nb: c\n")
    (work / "unknown.yaml").write_text("name: x\nmodel: {id: b}\ntraining:\n  epochz: 3\n")
    (work / "header.csv").write_text("text,label\n")
    return work


@pytest.mark.feature("U2")
def test_bad_input_is_answered_in_three_lines(command, bad_files, machine, worker, home):
    for case, (typed, exit_code, code, message, cause, hint) in BAD_INPUT.items():
        answer = command(*(word.strip("'") for word in typed.split()), code=exit_code)
        found = the_error(answer)
        assert found[0] == code, case
        assert message in found[1]
        assert cause in found[2]
        assert hint in found[3]
        assert answer.out == "", case
        shutil.rmtree(home, ignore_errors=True)  # the next one, too, comes first


def test_an_option_unlike_all_others_suggests_none(command):
    assert "--verbose" not in command("plan", "bert", "--bogus", code=2).err
    assert "--verbose" in command("plan", "bert", "--verbos", code=2).err
