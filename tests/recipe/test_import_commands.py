"""Command lines: how their words are read, and what is refused since only running it would tell what it says."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.errors import RecipeError
from cachekit.recipe import load_text
from cachekit.recipe.convert import command, examples
from cachekit.recipe.convert.tables import tables
from cachekit.recipe.placeholder import has_placeholder
from cachekit.verbs.zoo_new import new_recipe
from tests.recipe.importing_cases import made, whats

CALL = "python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc"


def test_a_command_line_that_was_typed():
    words = shlex.split(f"env NEURON_CC_FLAGS=--model-type=transformer torchrun --nproc_per_node=2 {CALL[7:]} --seed 7")
    recipe = new_recipe(words).recipe
    assert (recipe.name, recipe.data.config, recipe.training.seed) == ("glue", "mrpc", 7)
    assert (recipe.parallel.data_parallel_size, recipe.compiler.flags) == (2, ("--model-type=transformer",))
    with pytest.raises(RecipeError, match="no recipe can be made"):
        new_recipe(["python", "train.py", "--lr", "1"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"for TASK in mrpc sst2; do\n  {CALL}\ndone\n", "'for' on line 1: only a shell can tell"),
        (f"if [ -z $X ]; then {CALL}; fi\n", "'if' on line 1"),
        (f"ls\nif [ -d out ]; then\n  rm -r out\nfi\n{CALL}\n", "'if' on line 2"),
        (f"while read task\ndo\n{CALL}\ndone\n", "'while' on line 1"),
        (f"case $1 in\n  bert)\n    {CALL} ;;\nesac\n", "'case' on line 1"),
        (f"train() {{\n  {CALL}\n}}\ntrain\n", "'(' on line 1"),
        (f"function train {{\n  {CALL}\n}}\n", "'function' on line 1"),
        (f"test -d a && {{\n{CALL}\n}}\n", "'{' on line 1"),
        (f"echo 'two\nlines'\n{CALL}\n", "quotes or brackets on line 1 do not end there"),
        (f"neuron_parallel_compile {CALL} --max_steps 10\n", "neuron_parallel_compile"),
        (f'[ -n "$X" ] && {CALL}\n', "what comes before it on its line"),
        (f"[ -n x ] &&\n\n  {CALL}\n", "what comes before it on its line"),
        (f"! cd x && {CALL}\n", "'!' on line 1"),
        (f"test -d a && cd a && {CALL}\n", "what comes before it on its line"),
        (f"test -d a && (cd a; {CALL})\n", "'(' on line 1"),
        (f"test -d out || {CALL}\n", "what comes before it on its line"),
        (f"exit 0\n{CALL}\n", "'exit' on line 1"),
        (f"cat <<EOF > later.sh\n{CALL}\nEOF\n", "'<<' on line 1"),
        (f"echo {CALL}\n", "'echo' prints the call"),
    ],
)
def test_a_call_that_only_running_the_file_would_tell_is_refused(tmp_path, text, why):
    with pytest.raises(RecipeError, match=r"the call of run_glue\.py on line") as caught:
        made(tmp_path, text)
    assert why in caught.value.cause
    assert "paste the command line" in caught.value.hint
    assert "cachekit zoo new --" in caught.value.hint


@pytest.mark.parametrize(
    "before",
    [
        "set -e\ncd x && export A=1 && ",
        "[ -d x ] && cd x\n",
        '[ -z "$1" ] && exit 1\ncd x || exit 1\n',
        "echo $((1 << 2))\n",
    ],
)
def test_a_call_that_runs_is_taken_whatever_stands_before_it(before):
    (found,) = command.find(before + CALL)
    assert (found.script, found.trouble) == ("run_glue", "")


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--seed $SEED", "--seed is $SEED"),
        ("--seed ${SEED:-42}", "--seed is ${SEED:-42}"),
        ('--output_dir "runs/$TASK"', "--output_dir is runs/$TASK"),
        ("--seed $((4 * 5)) --do_train", "--seed is $((4 * 5))"),
        ("--seed `cat seed.txt`", "--seed is `cat seed.txt`"),
        ("$MORE", "--task_name is mrpc $MORE"),
        ('--do_train "${ARGS[@]}"', "--do_train is ${ARGS[@]}"),
        ("--tokenizer_name {model_name}", "--tokenizer_name is {model_name}"),
        ("--tokenizer_name '{{ model }}'", "--tokenizer_name is {{ model }}"),
        ("--tokenizer_name '<your-model>'", "--tokenizer_name is <your-model>"),
        ("--tokenizer_name ...", "--tokenizer_name is ..."),
        ("--tokenizer_name %MODEL%", "--tokenizer_name is %MODEL%"),
        ("--tokenizer_name '%(model)s'", "--tokenizer_name is %(model)s"),
        ("--validation_file 'data/y*.csv'", "--validation_file is data/y*.csv"),
        ("--tokenizer_name @model@", "--tokenizer_name is @model@"),
        ("--tokenizer_name a/__MODEL__", "--tokenizer_name is a/__MODEL__"),
        ("--tokenizer_name [model]", "--tokenizer_name is [model]"),
        ("--tokenizer_name MODEL_PLACEHOLDER", "--tokenizer_name is MODEL_PLACEHOLDER"),
        ("--tokenizer_name YOUR_MODEL", "--tokenizer_name is YOUR_MODEL"),
        ("--tokenizer_name me/your-model-here", "--tokenizer_name is me/your-model-here"),
        ("--output_dir /path/to/out", "--output_dir is /path/to/out"),
        ("--output_dir path/to/out", "--output_dir is path/to/out"),
    ],
)
def test_a_placeholder_is_named_and_refused(tmp_path, option, named):
    for text in (f"{CALL} {option}\n", f"SEED=7\nTASK=mrpc\nMORE='--seed 7'\n{CALL} {option}\n"):
        with pytest.raises(RecipeError, match="has placeholders") as caught:
            made(tmp_path, text)
        assert caught.value.cause == named
        assert "paste the command line, with its values" in caught.value.hint
    with pytest.raises(RecipeError, match="has placeholders"):
        new_recipe([*shlex.split(CALL), "--seed", "$SEED"])


@pytest.mark.parametrize("name", ["plain.sh", "nb.ipynb", "nxdt.yaml"])
def test_a_file_in_the_place_of_a_command_is_told_how_to_be_named(name):
    with pytest.raises(RecipeError, match="no recipe can be made") as caught:
        new_recipe([name])
    assert caught.value.hint == f"cachekit zoo new --from {name}"


def test_a_placeholder_of_the_launcher_or_of_a_file_of_arguments_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="placeholders") as caught:
        made(tmp_path, f"torchrun $DISTRIBUTED {CALL[7:]}")
    assert "$DISTRIBUTED" in caught.value.cause
    (tmp_path / "args.json").write_text(json.dumps({"model_name_or_path": "{model_name}", "seed": 1}))
    with pytest.raises(RecipeError, match=r"args\.json has placeholders"):
        made(tmp_path, "python run_glue.py args.json")


def test_what_only_looks_like_a_placeholder_is_a_value(tmp_path):
    line = f"""{CALL} --source_prefix '<s> a $ ' --lr_scheduler_kwargs '{{"min_lr": 1}}' < /dev/null > log 2>&1"""
    left = whats(made(tmp_path, line))
    assert "--source_prefix <s> a $" in left
    for value in ("[MASK]", "__en__", "100%_of_50%", "me@here.org", "models/footpath/tokens", "runs/%Y-%m", "yours"):
        assert not has_placeholder(value)
    assert '--lr_scheduler_kwargs {"min_lr": 1}' in left


def test_variables_reach_the_compiler_or_are_told(tmp_path):
    text = f"XLA_FLAGS=--a\nexport XLA_FLAGS\nexport NEURON_RT_ROOT_COMM_ID=$HOST:1 DIR=$HOME/x\nOTHER=1\n{CALL}"
    found = made(tmp_path, text)
    assert found.recipe.environment == {"XLA_FLAGS": "--a"}
    assert "NEURON_RT_ROOT_COMM_ID $HOST:1: where nodes meet" in whats(found)
    assert "DIR $HOME/x: a variable that is not known" in whats(found)
    assert "OTHER" not in whats(found)
    with pytest.raises(RecipeError, match="placeholders") as caught:
        made(tmp_path, f'export NEURON_CC_FLAGS="--model-type $KIND"\n{CALL}')
    assert caught.value.cause == "NEURON_CC_FLAGS is --model-type $KIND"
    with pytest.raises(RecipeError, match=r"the environment of run_glue\.py has placeholders"):
        made(tmp_path, f'export NEURON_CC_FLAGS\nNEURON_CC_FLAGS+=" --a"\n{CALL}')


NOTEBOOK = {"cells": [{"cell_type": "code", "source": [f"!{CALL}\n"]}]}
POD = f"spec:\n  containers:\n    - command: [{', '.join(CALL.split())}]\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.ipynb", json.dumps(NOTEBOOK), ": it is a notebook"),
        ("notebook", json.dumps(NOTEBOOK), ": it is a notebook"),
        ("launch.py", f'import os\nos.system("{CALL}")\n', ": it is a Python program"),
        ("pod.yaml", POD, "no recipe can be made"),
        ("Dockerfile", f'CMD ["{CALL}", "run_glue.py"]\n', "no recipe can be made"),
        ("quoted.sh", f"screen -dm bash -c '{CALL} --seed 1'\n", "no recipe can be made"),
        ("open.sh", f"{CALL} --source_prefix 'two\nlines'\n", "no recipe can be made"),
    ],
)
def test_programs_and_other_programs_files_are_refused(tmp_path, name, text, words):
    with pytest.raises(RecipeError, match=words) as caught:
        made(tmp_path, text, name)
    assert "paste the command line" in caught.value.hint
    assert caught.value.exit_code == 2


# Shell words

_WORD = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\\"),
    min_size=1,
    max_size=20,
)


@settings(max_examples=50)
@given(st.lists(_WORD, max_size=8), st.integers(0, 3))
def test_quoted_words_come_out_as_they_went_in(words, indent):
    words = ["--x", *words]
    (found,) = command.find(shlex.join(["python", "run_glue.py", *words]))
    assert found.words == tuple(words)
    lines = " \\\n".join(" " * indent + shlex.quote(word) for word in ["python", "run_qa.py", *words])
    (found,) = command.find(f"cd x\n{lines}")
    assert (found.words, found.line) == (tuple(words), 2)


def test_words_that_only_look_like_shell_are_words():
    line = """python run_summarization.py --source_prefix "a; (b) | c's > d" --x 'y && z' --n '' a#b # so"""
    (found,) = command.find(line)
    assert found.words == ("--source_prefix", "a; (b) | c's > d", "--x", "y && z", "--n", "", "a#b")
    first, second = command.find("A=1 python run_qa.py --x >out.txt 2>&1 && python run_clm.py --y |& tee log --a")
    assert (first.words, first.variables, second.words) == (("--x",), {"A": "1"}, ("--y",))


@settings(max_examples=100)
@given(st.text(max_size=200) | st.lists(st.sampled_from(
    ["python", "run_clm.py", "--seed", "1", "\\\n", "\n", '"', "'", "$X", "${X}", "X=1", "(", ")", "&&", "#", "if",
     "fi", "=", "export", "--model_name_or_path", "gpt2", "--max_steps", "-1", "$(", "`", "--learning_rate=1e999",
     "--token", "[", "{", "}", "for", "done", "```"]
), max_size=30).map(" ".join))  # fmt: skip
def test_any_text_is_read_and_what_calls_a_script_becomes_a_recipe_that_loads_or_is_refused(text):
    calls = command.find(text)
    if any(call.script in tables().examples.scripts for call in calls):
        with contextlib.suppress(RecipeError):
            load_text(examples.convert(calls, "x", Path("nowhere")).text("x"), source="what was made")
