"""Command lines: how their words are read; and files that no recipe is made of, since only running them would tell."""

from __future__ import annotations

import contextlib
import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.errors import RecipeError
from cachekit.recipe import load_text
from cachekit.recipe.convert import convert_command
from cachekit.recipe.load import has_placeholder
from cachekit.verbs.zoo_check import new_recipe
from tests.recipe.importing_cases import called, made, whats

CALL = "python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc"


def test_a_command_line_that_was_typed():
    words = shlex.split(f"env NEURON_CC_FLAGS=--model-type=transformer torchrun --nproc_per_node=2 {CALL[7:]} --seed 7")
    recipe = new_recipe(words).recipe
    assert (recipe.name, recipe.data.config, recipe.training.seed) == ("glue", "mrpc", 7)
    assert (recipe.parallel.data_parallel_size, recipe.compiler.flags) == (2, ("--model-type=transformer",))
    with pytest.raises(RecipeError, match="no recipe can be made"):
        new_recipe(["python", "train.py", "--lr", "1"])


def test_a_call_that_only_compiles_is_refused():
    with pytest.raises(RecipeError, match=r"the call of run_glue\.py") as caught:
        called(f"neuron_parallel_compile {CALL} --max_steps 10")
    assert "neuron_parallel_compile" in caught.value.cause
    assert "paste the command line" in caught.value.hint


def test_a_script_without_a_task_is_refused():
    with pytest.raises(RecipeError, match="recipes have no task"):
        called("python run_speech_recognition_ctc.py --model_name_or_path x")


def test_a_placeholder_is_named_and_refused():
    for option, named in [
        ("--seed $SEED", "--seed is $SEED"),
        ("--seed ${SEED:-42}", "--seed is ${SEED:-42}"),
        ('--output_dir "runs/$TASK"', "--output_dir is runs/$TASK"),
        ("--seed '`cat seed.txt`'", "--seed is `cat seed.txt`"),
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
        ("--tokenizer_name '???'", "--tokenizer_name is ???"),
        ("--tokenizer_name %s", "--tokenizer_name is %s"),
        ("--tokenizer_name CHANGEME", "--tokenizer_name is CHANGEME"),
        ("--tokenizer_name REPLACE_ME", "--tokenizer_name is REPLACE_ME"),
        ("--tokenizer_name MODEL_NAME", "--tokenizer_name is MODEL_NAME"),
    ]:
        with pytest.raises(RecipeError, match="has placeholders") as caught:
            called(f"{CALL} {option}")
        assert caught.value.cause == named
        assert "paste the command line, with its values" in caught.value.hint


def test_a_file_in_the_place_of_a_command_is_told_how_to_be_named():
    with pytest.raises(RecipeError, match="no recipe can be made") as caught:
        new_recipe(["nxdt.yaml"])
    assert caught.value.hint == "cachekit zoo new --from nxdt.yaml"


def test_a_placeholder_of_the_launcher_or_of_a_file_of_arguments_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="placeholders") as caught:
        called(f"torchrun $DISTRIBUTED {CALL[7:]}")
    assert "$DISTRIBUTED" in caught.value.cause
    (tmp_path / "args.json").write_text(json.dumps({"model_name_or_path": "{model_name}", "seed": 1}))
    with pytest.raises(RecipeError, match=r"args\.json has placeholders"):
        called(f"python run_glue.py {tmp_path}/args.json")


def test_what_only_looks_like_a_placeholder_is_a_value():
    left = whats(called(f"""{CALL} --source_prefix '<s> a $ ' --lr_scheduler_kwargs '{{"min_lr": 1}}'"""))
    assert "--source_prefix <s> a $" in left
    for value in (
        "[MASK]",
        "__en__",
        "100%_of_50%",
        "me@here.org",
        "models/footpath/tokens",
        "runs/%Y-%m",
        "yours",
        "why?",
        "TODOS",
        "BERT",
    ):
        assert not has_placeholder(value)
    assert '--lr_scheduler_kwargs {"min_lr": 1}' in left


def test_variables_reach_the_compiler_or_are_told():
    found = called(f"XLA_FLAGS=--a NEURON_RT_ROOT_COMM_ID=$HOST:1 DIR=$HOME/x {CALL}")
    assert found.recipe.environment == {"XLA_FLAGS": "--a"}
    assert "NEURON_RT_ROOT_COMM_ID $HOST:1: where nodes meet" in whats(found)
    assert "DIR $HOME/x: a variable that is not known" in whats(found)
    with pytest.raises(RecipeError, match=r"the environment of run_glue\.py has placeholders") as caught:
        called(f'NEURON_CC_FLAGS="--model-type $KIND" {CALL}')
    assert caught.value.cause == "NEURON_CC_FLAGS is --model-type $KIND"


NOTEBOOK = {"cells": [{"cell_type": "code", "source": [f"!{CALL}\n"]}]}
POD = f"spec:\n  containers:\n    - command: [{', '.join(CALL.split())}]\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("loop.sh", f"for TASK in mrpc sst2; do\n  {CALL}\ndone\n"),
        ("if.sh", f"if [ -z $X ]\nthen\n{CALL}\nfi\n"),
        ("and.sh", f"test -d out && {CALL}\n"),
        ("function.sh", f"train() {{\n  {CALL}\n}}\n"),
        ("exit.sh", f"exit 0\n{CALL}\n"),
        ("here.sh", f"cat <<EOF > later.sh\n{CALL}\nEOF\n"),
        ("two.sh", f"{CALL}\n{CALL} --seed 2\n"),
        ("none.sh", f"# {CALL}\n"),
        ("open.sh", f"{CALL} --source_prefix 'two\nlines'\n"),
        ("variable.sh", f"{CALL} --seed $SEED\n"),
        ("output.sh", "python run_glue.py --model_name_or_path `cat model` --task_name mrpc\n"),
        ("x.ipynb", json.dumps(NOTEBOOK)),
        ("launch.py", f'import os\nos.system("{CALL}")\n'),
        ("pod.yaml", POD),
        ("Dockerfile", f'CMD ["{CALL}", "run_glue.py"]\n'),
    ],
)
def test_programs_and_other_programs_files_are_refused(tmp_path, name, text):
    with pytest.raises(RecipeError, match=r"no recipe can be made|has placeholders") as caught:
        made(tmp_path, text, name)
    assert "paste the command line" in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_call_that_stands_literally_in_a_shell_script_is_read(tmp_path):
    text = f"""#!/bin/bash
set -ex
export XLA_FLAGS="--a" # for the compiler
cd out
torchrun --nproc_per_node=2 \\
  {CALL[7:]} \\
  # --fp16
  --source_prefix 'a; (b) | c > d' --max_seq_length 96 2>&1 | tee log
"""
    found = made(tmp_path, text, "train.sh")
    assert found.recipe.environment == {"XLA_FLAGS": "--a"}
    assert found.recipe.training.max_seq_length == 96
    assert found.recipe.parallel.data_parallel_size == 2
    assert "--source_prefix a; (b) | c > d" in whats(found)
    assert "tee" not in whats(found)
    assert "fp16" not in whats(found)


# Any words


@settings(max_examples=100)
@given(st.lists(st.text(max_size=20) | st.sampled_from(
    ["python", "run_clm.py", "--seed", "1", "$X", "X=1", "=", "--model_name_or_path", "gpt2", "--max_steps", "-1",
     "--learning_rate=1e999", "--token", "[", "{", "}", "args.json", "--train_file", "a.txt"]
), max_size=30))  # fmt: skip
def test_any_words_become_a_recipe_that_loads_or_are_refused(words):
    with contextlib.suppress(RecipeError):
        load_text(convert_command(["run_clm.py", *words]).text("x"), source="what was made")
