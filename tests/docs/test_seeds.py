"""The page about the five articles: what it names is there, and its commands and figures are ours."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from cachekit.compilers.neuron.devices import parse_neuron_ls
from cachekit.recipe import load, zoo

pytest_plugins = ["tests.support.cli_session"]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")

# Each article, the least rows that it has, and its figures, as they stand in it.
ARTICLES: dict[str, tuple[int, str]] = {
    "Setting up AWS Trainium for Hugging Face Transformers": (
        20,
        "10-15 min|0.925|0.2057|0.3032|2:42|295.663|9.239|7.41|269.779|16.861|16000|2000|10 000|1.34$/h|7ct|50%|32 GB",
    ),
    "Fine-tune BERT for Text Classification on AWS Trainium": (
        20,
        "0.914|0:08:30|96.337|0:00:08|~3x|16000|2000|20ct|1.34$/h|$24.78|~10B|over 500GB|9 minutes",
    ),
    "Maximize performance and reduce your deep learning training cost with AWS Trainium and Amazon SageMaker": (
        18,
        "24.725|37.69|6.64|5.44|0.984|6033|6553|41.47|68.6|22%|50%|3.4 petaflops|12.5|800|1600|2 NeuronCore-v2",
    ),
    "Distributed fine-tuning of a BERT Large model for a Question-Answering Task using Hugging Face Transformers on"
    " Amazon SageMaker": (
        20,
        "384|128|max_steps: 100|4 hours|$15|24 minutes|$28|factor of 10|90%|max_wait=3600|max_run=1000|partitions 4",
    ),
    "How to Use AWS Trainium Instances for Model Training": (
        20,
        "12.5|800|1600|$21.50|$24.78|$32.77|$0.66|$0.70|30-50%|50%|~10%|128 NeuronCores|16 devices",
    ),
}
STATES = {"yes", "partly", "not done", "outside"}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of an article's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


# The page


@pytest.mark.parametrize("title", ARTICLES)
def test_each_article_is_covered_row_by_row(title):
    least, figures = ARTICLES[title]
    table = rows(title)
    assert len(table) >= least
    assert {len(row) for row in table} == {4}
    quoted = "\n".join(row[0] for row in table) + "\n".join(row[2] for row in table if "disagrees" in row[2])
    assert [figure for figure in figures.split("|") if figure not in quoted] == []


@pytest.mark.parametrize("title", ARTICLES)
def test_a_row_names_a_test_or_says_why_not(title):
    for said, state, here, proof in rows(title):
        assert state in STATES, said
        assert here, said
        tests = re.findall(r"`(tests/[^`]+)`", proof)
        reason = re.sub(r"`tests/[^`]+`", "", proof).strip(" ,;")
        assert tests or state in {"not done", "outside"}, said
        assert reason or state == "yes", said


def test_tests_recipes_and_tables_that_are_named_exist():
    named = re.findall(r"`(tests/[\w./]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) == PAGE.count("`tests/") > 100
    assert [(path, name) for path, name in named if name and name not in functions_in(path)] == []
    files = re.findall(r"`((?:recipes|registry)/[\w./-]+)`", PAGE) + [path for path, _ in named]
    assert [path for path in files if not (ROOT / path).is_file()] == []


def test_a_name_that_is_no_test_is_found():
    """The test above would pass on anything if names were not looked up."""
    assert "test_a_name_that_is_no_test_is_found" in functions_in("tests/docs/test_seeds.py")
    assert "test_nonsense" not in functions_in("tests/docs/test_seeds.py")


# What the articles have their readers type

COMMANDS = {
    ("bert", "trn1.2xlarge"): (
        "torchrun --nproc_per_node=2 huggingface-neuron-samples/text-classification/run_glue.py"
        " --model_name_or_path bert-base-uncased --dataset_name philschmid/emotion --do_train --do_eval --bf16 True"
        " --per_device_train_batch_size 16 --learning_rate 5e-5 --num_train_epochs 3 --output_dir ./bert-emotion"
    ),
    ("bert-large-squad", "trn1.32xlarge"): (
        "python run_qa.py --model_name_or_path bert-large-uncased-whole-word-masking --dataset_name squad"
        " --do_train True --do_eval True --fp16 True --per_device_train_batch_size 4 --per_device_eval_batch_size 4"
        " --num_train_epochs 2 --max_seq_length 384 --max_steps 100 --pad_to_max_length True --doc_stride 128"
        " --output_dir /opt/ml/model"
    ),
    ("bert-mnli", "trn1.32xlarge"): (
        "python run_glue.py --model_name_or_path bert-base-uncased --task_name mnli --per_device_train_batch_size 16"
        " --per_device_eval_batch_size 16 --do_train True --do_eval True --do_predict True --num_train_epochs 2"
        " --max_steps 500"
    ),
}


@pytest.mark.parametrize(("recipe", "instance"), COMMANDS)
def test_a_command_of_the_articles_has_the_key_of_the_zoos_recipe(command, recipe, instance):
    """What somebody warmed from the zoo is a hit for whoever brings the article's own command."""
    line = COMMANDS[recipe, instance]
    made = command("zoo", "new", "--output", "made.yaml", "--", *shlex.split(line))
    assert ("num_train_epochs" in made.err) == ("--max_steps" in line)
    place = ("--toolchain", "neuron-2.31", "--instance", instance, "--set", "training.bf16=true", "-f", "json")
    assert command("plan", "made.yaml", *place).json["key"] == command("plan", recipe, *place).json["key"]


def test_the_recipe_of_imdb_is_that_of_the_article():
    recipe = load(zoo.recipe_path("bert-imdb"))
    training = recipe.training
    assert (recipe.data.id, recipe.model.id) == ("stanfordnlp/imdb", "bert-base-uncased")
    assert (training.max_seq_length, training.per_device_train_batch_size, training.weight_decay) == (512, 16, 0.01)
    assert training.per_device_eval_batch_size in {None, 16}
    assert (training.learning_rate, training.num_train_epochs, training.bf16) == (5e-5, 3, "auto")


# What they print

SCREENS = [
    ("plan bert --toolchain neuron-2.31 --instance trn1.2xlarge", "10 to 15 min|$0.22 to $0.34|at $1.34 an hour|2023"),
    ("zoo show bert", "accuracy 0.925|loss 0.2057|2 min 42 s|$0.07|9.239 steps a second|f1 0.914|96.337 rows|$1.34"),
    ("zoo show demo", "compiling takes 2 to 8 min|$0.043 to $0.18|at $1.34 an hour"),
    ("zoo show distilbert-yelp-stars", "compiling takes|at $1.34 an hour"),
    ("zoo show bert-notebook", "f1 0.914|8 min 30 s|$0.20|2023-06-06"),
    (
        "zoo show bert-amazon-polarity",
        "accuracy 0.984|1 h 40 min|1 h 49 min|$41.47|$41.43|$68.60|$68.61|6.64 steps a second|5.44 steps a second",
    ),
    ("zoo show bert-large-squad", "4 h 0 min|$15.00|24 min 0 s|$28.00"),
    ("zoo show trn1.2xlarge -f json", '"price_per_hour":1.34|"chips":1|"cores":2|"vcpus":8|"network_gbps":12.5'),
    ("zoo show trn1.32xlarge -f json", '"price_per_hour":21.5|"chips":16|"vcpus":128|"network_gbps":800'),
    ("zoo show trn1n.32xlarge -f json", '"price_per_hour":24.78|"chips":16|"vcpus":128|"network_gbps":1600'),
    ("zoo show ml.trn1.32xlarge -f json", '"price_per_hour":24.725|"2023-03"'),
    ("zoo show ml.p4d.24xlarge -f json", '"price_per_hour":37.69|"2023-03"'),
    ("zoo show p4d.24xlarge -f json", '"price_per_hour":32.77|"2026-02-12"|on demand'),
    ("zoo ls instances", "trn1.2xlarge|32 GiB|trn1.32xlarge|512 GiB|p3.2xlarge|p3.16xlarge|p4d.24xlarge"),
]


@pytest.mark.parametrize(("screen", "words"), SCREENS)
def test_a_figure_of_the_articles_is_on_a_screen(command, screen, words):
    text = " ".join(command(*screen.split()).out.split())
    if screen.endswith("json"):
        text = text.replace(": ", ":")
    assert [word for word in words.split("|") if word not in text] == []


LISTING = """instance-type: trn1.2xlarge
instance-id: i-0570615e41700a481
+--------+--------+--------+---------+
| NEURON | NEURON | NEURON |   PCI   |
| DEVICE | CORES  | MEMORY |   BDF   |
+--------+--------+--------+---------+
| 0      | 2      | 32 GB  | 00:1e.0 |
+--------+--------+--------+---------+
"""


def test_the_listing_of_the_article_is_read():
    found = parse_neuron_ls(LISTING)
    assert (found.count, found.cores, found.instance_type) == (1, 2, "trn1.2xlarge")
