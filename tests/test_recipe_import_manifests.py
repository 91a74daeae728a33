"""Example command lines in YAML that is another program's: containers, services, steps of a CI."""

from __future__ import annotations

import textwrap

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from importing_cases import made, whats

from cachekit.errors import RecipeError
from cachekit.recipe.convert.manifests import shell_text

JOB = """\
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: first}
    ---
    apiVersion: batch/v1
    kind: Job
    spec:
      template:
        spec:
          containers:
            - name: trainer
              env:
                - {name: NEURON_CC_FLAGS, value: "--model-type transformer"}
                - {name: LENGTH, value: "96"}
                - name: HF_TOKEN
                  valueFrom: {secretKeyRef: {name: hf, key: token}}
              command: [torchrun, --nproc_per_node=2]
              args:
                - run_glue.py
                - --model_name_or_path
                - bert-base-cased
                - --task_name
                - mrpc
                - --max_seq_length
                - $(LENGTH)
                - --per_device_train_batch_size
                - "8"
    """
FOLDED = """\
    jobs:
      train:
        steps:
          - uses: actions/checkout@v4
          - run: >
              export NEURON_CC_FLAGS="--model-type transformer";
              torchrun --nproc_per_node=2 run_glue.py
              --model_name_or_path bert-base-cased --task_name mrpc
              --max_seq_length 96
              --per_device_train_batch_size 8
    """
BASH = """\
    services:
      train:
        environment: {NEURON_CC_FLAGS: --model-type transformer, LENGTH: 96}
        command:
          - bash
          - -lc
          - |
            cd /app
            torchrun --nproc_per_node=2 run_glue.py --model_name_or_path bert-base-cased \\
              --task_name mrpc --max_seq_length $LENGTH --per_device_train_batch_size 8
    """


@pytest.mark.parametrize("text", [JOB, FOLDED, BASH], ids=["a container", "a folded step", "a service's script"])
def test_a_command_in_another_programs_yaml_is_read_whole(tmp_path, text):
    found = made(tmp_path, text, "job.yaml")
    recipe = found.recipe
    assert (recipe.model.id, recipe.data.config, recipe.parallel.data_parallel_size) == ("bert-base-cased", "mrpc", 2)
    assert (recipe.training.max_seq_length, recipe.training.per_device_train_batch_size) == (96, 8)
    assert recipe.compiler.flags == ("--model-type", "transformer")
    assert not whats(found)


def test_another_call_is_named_by_its_line(tmp_path):
    more = (
        textwrap.dedent(FOLDED)
        + "      - run: |\n          pip install x\n          python run_clm.py --model_name_or_path gpt2\n"
    )
    found = made(tmp_path, more, "job.yaml")
    (line,) = [number for number, text in enumerate(more.splitlines(), 1) if "run_clm" in text]
    assert f"line {line}, run_clm.py" in whats(found)


def test_a_file_that_is_no_yaml_yet_is_read_as_a_text(tmp_path):
    chart = "command: {{ .Values.command }}\n{{- if .x }}\npython run_clm.py --model_name_or_path gpt2\n{{- end }}\n"
    assert made(tmp_path, chart, "job.yaml").recipe.model.id == "gpt2"
    with pytest.raises(RecipeError, match="is of no kind"):
        made(tmp_path, "command: [python, train.py]\nargs: [--lr, 1e-5]\n", "other.yaml")


def test_an_alias_is_read_once(tmp_path):
    bomb = "a: &a [x, y]\n" + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}, z]\n" for n in range(200))
    assert len(shell_text(bomb)) < 10_000


_PLAIN = st.none() | st.integers() | st.text(max_size=20) | st.sampled_from(["run_clm.py", "bash", "-c", "$(X)", "$("])


@settings(max_examples=200)
@given(st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
    st.sampled_from(["command", "args", "env", "name", "value", "environment", "run"]) | st.text(max_size=5), inner,
    max_size=4)) | st.text(max_size=60))  # fmt: skip
def test_any_yaml_is_read(document):
    assert isinstance(shell_text(document if isinstance(document, str) else yaml.safe_dump(document)), str)
