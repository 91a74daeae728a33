"""Shell scripts around example command lines: switches, loops, quoted words, and any text."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from importing_cases import made, whats

from cachekit.recipe import load_text
from cachekit.recipe.convert import command, examples
from cachekit.recipe.convert.example_arguments import SCRIPTS
from cachekit.recipe.convert.shell import commands

SWITCHES = """\
    #!/bin/bash
    CORES=32
    ARGS="--nproc_per_node $CORES"
    if [ ! -z "$SLURM_NTASKS" ]; then
        HOSTS=(`scontrol show hostnames $SLURM_JOB_NODELIST`)
        ARGS="--nproc_per_node $CORES --nnodes $SLURM_NTASKS --master_addr $HOSTS"
        export NEURON_RT_ROOT_COMM_ID=$HOSTS:46820
    fi
    export PRECISION=$1
    if [[ "BF16" == $PRECISION ]]; then
        export XLA_USE_BF16=1
        export NEURON_CC_FLAGS="--retry_failed_compilation --model-type transformer"
    else
        export NEURON_CC_FLAGS="--other"
    fi
    NEURON_CC_FLAGS+=" --cache_dir=$HOME/cache/`hostname`"
    MAX_STEPS=100000
    if [[ "$NEURON_EXTRACT_GRAPHS_ONLY" == "1" ]]; then
        MAX_STEPS=10
    fi
    for LR in 1e-4 2e-4; do
    screen -dm bash -c 'torchrun $ARGS run_clm_no_trainer.py --model_name_or_path gpt2 --dataset_name wikitext \\
        --dataset_config_name '$2' --max_train_steps '$MAX_STEPS' --use_zero1 --learning_rate '$LR' \\
        > log 2>&1'
    done
"""


def test_conditions_loops_and_a_shell_in_the_shell(tmp_path):
    found = made(tmp_path, SWITCHES)
    recipe = found.recipe
    assert (recipe.training.max_steps, recipe.training.learning_rate, recipe.training.bf16) == (100_000, 1e-4, True)
    assert (recipe.parallel.zero_1, recipe.data.config) == (True, None)
    assert recipe.compiler.flags == ("--retry_failed_compilation", "--model-type", "transformer")
    left = whats(found)
    for what in ("--dataset_config_name $2", "--cache_dir=$HOME/cache/", "NEURON_RT_ROOT_COMM_ID"):
        assert what in left
    assert "46820" not in found.text.partition("name:")[2]


# Shell words

_WORD = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029$`"),
    min_size=1,
    max_size=20,
)


@given(st.lists(_WORD, max_size=8))
def test_quoted_words_come_out_as_they_went_in(words):
    (found,) = commands(shlex.join(["python", "run_glue.py", *words]))
    assert found.words == ["python", "run_glue.py", *words]


def test_words_that_only_look_like_shell_are_words():
    line = """python run_summarization.py --source_prefix "a; (b) | c's $X > d" --x 'y && z' --n "$(nproc)" # so"""
    (found,) = commands(f"X='1 2'\n{line}")
    assert found.words[2:] == ["--source_prefix", "a; (b) | c's 1 2 > d", "--x", "y && z", "--n", "$(nproc)"]
    first, second, _ = commands("A=1 python a.py x >out.txt 2>&1 && python b.py y |& tee log")
    assert (first.words, first.variables, second.words) == (
        ["python", "a.py", "x"],
        {"A": "1"},
        ["python", "b.py", "y"],
    )


@given(st.lists(_WORD, max_size=6), st.integers(0, 3))
def test_so_they_do_over_several_lines_and_through_a_variable(words, indent):
    lines = " \\\n".join(" " * indent + shlex.quote(word) for word in ["python", "run_qa.py", *words])
    (found,) = commands(lines)
    assert found.words[2:] == words
    (found,) = commands(f"ARGS=({shlex.join(words)})\n" + 'python run_qa.py "${ARGS[@]}"')
    assert found.words[2:] == words


@settings(max_examples=200)
@given(st.text(max_size=200) | st.lists(st.sampled_from(
    ["python", "run_clm.py", "--seed", "1", "\\\n", "\n", '"', "'", "$X", "${X}", "X=1", "X=$X$X", "(", ")", "&&", "#",
     "=", "export", "--model_name_or_path", "gpt2", "--max_steps", "-1", "$(", "`", "--learning_rate=1e999", "--token",
     "["]
), max_size=30).map(" ".join))  # fmt: skip
def test_any_text_is_read_and_what_calls_a_script_becomes_a_recipe_that_loads(text):
    list(commands(text))
    calls = command.calls(text)
    if any(call.script in SCRIPTS for call in calls):
        load_text(examples.convert(text, "x", Path("nowhere")).text("x"))


def test_what_an_argument_of_the_script_is_by_default(tmp_path):
    text = "MODEL=${1:-roberta-base}\npython run_glue.py --model_name_or_path $MODEL --task_name rte --seed ${2}\n"
    found = made(tmp_path, text)
    assert found.recipe.model.id == "roberta-base"
    assert "--seed ${2}" in whats(found)
