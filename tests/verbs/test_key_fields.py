"""What of a recipe beside `training` reaches a graph of Inductor: each field of the schema, as docs/inductor.md has it.

`test_key_graphs.py` has the fields of `training`. A field is tried here as there: by strict runs, on real compiles.
"""

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import architecture, zoo
from cachekit.recipe.schema import Recipe
from tests.support.inductor_lab import Lab, in_small

DOC = Path(__file__).resolve().parents[2] / "docs" / "inductor.md"
slow = pytest.mark.slow

BERT = {
    "attention_probs_dropout_prob": 0.2,
    "classifier_dropout": 0.3,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "is_decoder": "true",
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 2,
    "pad_token_id": 1,
    "type_vocab_size": 3,
    "vocab_size": 600,
}
SWAG = ["data.path=ROWS", "data.context_column=context", "data.question_column=question"]
# Fields that change a graph: a recipe, and overrides after which it says something else. ROWS is a folder of rows.
CHANGE = {
    "task": ("bert", ["task=multi-label-classification"]),
    "model.id": ("bert", ["model.id=FacebookAI/roberta-base"]),
    **{f"model.config.{name}": ("bert", [f"model.config.{name}={value}"]) for name, value in BERT.items()},
    "data.labels": ("bert", ["data.labels=[sad, calm, loud, other]"]),
    "data.num_labels": ("bert", ["data.path=ROWS", "data.labels=null", "data.num_labels=4"]),
    "data.choices_columns": ("bert-swag", [*SWAG, "data.choices_columns=[ending0, ending1]"]),
    "data.num_choices": ("bert-swag", [*SWAG, "data.choices_columns=[endings]", "data.num_choices=2"]),
    "training.lora.r": ("tinyllama-lora", ["training.lora.r=4"]),
    "training.lora.lora_alpha": ("tinyllama-lora", ["training.lora.lora_alpha=4"]),
    "training.lora.lora_dropout": ("tinyllama-lora", ["training.lora.lora_dropout=0.2"]),
    "training.lora.target_modules": ("tinyllama-lora", ["training.lora.target_modules=[q_proj]"]),
    "compiler.options": ("bert", ["compiler.options.epilogue_fusion=false"]),
    "compiler.options.threads": ("bert", ["compiler.options.threads=1"]),
    "compiler.flags": ("bert", ["compiler.flags=[--max-autotune]"]),
    "environment.OMP_NUM_THREADS": ("bert", ["environment.OMP_NUM_THREADS=1"]),
    "environment.TORCHINDUCTOR_MAX_AUTOTUNE": ("bert", ["environment.TORCHINDUCTOR_MAX_AUTOTUNE=1"]),
}
# What is in the key and changes no graph: the page says why it is there.
CAUTIOUS = {
    "model.config.bos_token_id": ("bert", ["model.config.bos_token_id=1"]),
    "model.config.eos_token_id": ("bert", ["model.config.eos_token_id=2"]),
    "model.config.position_embedding_type": ("bert", ["model.config.position_embedding_type=relative_key"]),
    "model.config.tie_word_embeddings": ("bert", ["model.config.tie_word_embeddings=false"]),
    "environment": ("bert", ["environment.MY_OWN=1"]),
    "parallel.nodes": ("bert", ["parallel.nodes=2"]),
    "training.lora.bias": ("tinyllama-lora", ["training.lora.bias=all"]),
}
# What changes nothing: recipes that say something else in all of these fields, and have the same key.
KEEP = {
    "bert, files": ("bert", [
        "name=another", "description=words", "expect=[{instance: trn1.2xlarge, source: me}]",
        "model.path=FOLDER", "model.from_config=false", "model.tokenizer=FOLDER",
        "model.config.initializer_range=0.5",
        "data.train_file=ROWS/train.csv", "data.validation_file=ROWS/validation.csv", "data.test_file=ROWS/test.csv",
        "data.delimiter=;", "data.encoding=latin-1", "data.text_column=tweet", "data.text_pair_column=reply",
        "data.label_column=mood",
        "data.labels=[loud, calm, sad]", "data.max_train_samples=64", "data.max_eval_samples=9",
        "compiler.name=inductor", "compiler.options.verbose=true", "compiler.options.fullgraph=true",
        "environment.WANDB_NAME=mine", "environment.NCCL_DEBUG=INFO", "environment.HF_HUB_ENABLE_HF_TRANSFER=1",
    ]),
    "bert, folder": ("bert", [
        "model.package=a_package_of_ours/model", "model.id=null", "model.from_config=false", "data.path=ROWS",
        "data.labels=null", "data.validation_split=null", "data.test_split=null", "data.validation_fraction=0.3",
    ]),
    "names": ("distilbert-ner", ["data.path=ROWS", "data.labels=null", "data.tokens_column=words",
                                      "data.label_column=tags"]),
    "squad": ("bert-large-squad", ["data.path=ROWS", "data.question_column=q", "data.context_column=c",
                                   "data.answers_column=a"]),
    "swag": ("bert-swag", ["data.path=ROWS", "data.context_column=scene", "data.question_column=start",
                           "data.choices_columns=[endings]", "data.num_choices=4", "data.label_column=right"]),
    "summaries": ("t5-summarization", ["data.path=ROWS", "data.source_column=long", "data.target_column=short",
                                       "data.source_prefix=cut it"]),
    "translation": ("t5-translation", ["data.path=ROWS", "data.translation_column=pair", "data.source_lang=de",
                                       "data.target_lang=nl"]),
    "instructions": ("tinyllama-lora", ["data.path=ROWS", "data.prompt_column=ask", "data.response_column=answer"]),
    "chats": ("tinyllama-lora", ["data.path=ROWS", "data.messages_column=chat", "data.prompt_column=null",
                                 "data.response_column=null"]),
    "images": ("vit", ["data.path=ROWS", "data.labels=[bars, cross, disc, square]", "data.image_column=picture",
                       "data.label_column=kind"]),
}  # fmt: skip
# Fields that Inductor, which trains with one worker on each machine, refuses.
REFUSED = {
    "parallel.data_parallel_size": 2,
    "parallel.tensor_parallel_size": 2,
    "parallel.pipeline_parallel_size": 2,
    "parallel.zero_1": "true",
}
# Which rows and weights of the Hub are meant; there is no Hub here, and they are read as those of a folder are.
OF_THE_HUB = {
    "model.revision",
    *(f"data.{name}" for name in ("id", "config", "revision", "train_split", "validation_split", "test_split")),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """Overrides with the places of rows and of a model's files, made as each test needs them."""

    def fill(title, base, words):
        rows, package = tmp_path / "rows", tmp_path / "a_package_of_ours"
        if any("ROWS" in word for word in words):
            ROWS[title](in_small(base).task, rows)
        if any("FOLDER" in word or "package" in word for word in words):
            save_model(in_small(base), package / "model")
            (package / "__init__.py").touch()
            monkeypatch.syspath_prepend(str(tmp_path))
        return [word.replace("ROWS", str(rows)).replace("FOLDER", str(package / "model")) for word in words]

    return fill


def save_model(recipe, folder):
    """Weights at random and the tokenizer, as somebody's fine-tune leaves them."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = dict(architecture.resolve(recipe).config)
    known = AutoConfig.for_model(config.pop("model_type"), num_labels=len(NUMBER), **config)
    made = AutoModelForSequenceClassification.from_config(known)
    made.save_pretrained(folder)
    for file in Path(recipe.model.tokenizer).iterdir():
        shutil.copy(file, folder)


def splits(task):
    for split in ("train", "validation"):
        lines = (zoo.tiny() / task / f"{split}.jsonl").read_text().splitlines()
        yield split, [json.loads(line) for line in lines]


def written(change):
    """A function that writes a task's rows, each of them changed."""

    def write(task, folder):
        folder.mkdir()
        for split, rows in splits(task):
            text = "".join(json.dumps(change(row)) + "\n" for row in rows)
            (folder / f"{split}.jsonl").write_text(text)

    return write


def tables(task, folder):
    folder.mkdir()
    found = dict(splits(task))
    for split, rows in {**found, "test": found["validation"]}.items():
        lines = ["tweet;reply;mood", *(f"{row['text']} ä;{row['pair']};{row['label']}" for row in rows)]
        (folder / f"{split}.csv").write_text("\n".join(lines), encoding="latin-1")


def one_split(task, folder):
    written(lambda row: row)(task, folder)
    (folder / "validation.jsonl").unlink()


def pictures(task, folder):
    import pyarrow.parquet

    folder.mkdir()
    for split in ("train", "validation"):
        table = pyarrow.parquet.read_table(zoo.tiny() / task / f"{split}.parquet")
        renamed = table.rename_columns([{"image": "picture", "label": "kind"}[name] for name in table.column_names])
        pyarrow.parquet.write_table(renamed, folder / f"{split}.parquet")


def two_endings(row):
    right = row[f"ending{row['label']}"]
    return {**row, "ending0": right, "ending1": "nothing", "endings": [right, "nothing"], "label": 0}


def scene(row):
    endings = [row[f"ending{number}"] for number in range(4)]
    return {"scene": row["context"], "start": row["question"], "right": row["label"], "endings": endings}


def chat(row):
    said = {"user": row["prompt"], "assistant": row["response"]}
    return {"chat": [{"role": role, "content": words} for role, words in said.items()]}


NUMBER = {"sad": 0, "calm": 1, "loud": 2}
ROWS = {
    "data.num_labels": written(lambda row: {**row, "label": NUMBER[row["label"]]}),
    "data.choices_columns": written(two_endings),
    "data.num_choices": written(two_endings),
    "bert, files": tables,
    "bert, folder": one_split,
    "names": written(lambda row: {"words": row["tokens"], "tags": row["ner_tags"]}),
    "squad": written(lambda row: {"q": row["question"], "c": row["context"], "a": row["answers"]}),
    "swag": written(scene),
    "summaries": written(lambda row: {"long": row["document"], "short": row["summary"]}),
    "translation": written(lambda row: {"pair": {"de": row["translation"]["en"], "nl": row["translation"]["fr"]}}),
    "instructions": written(lambda row: {"ask": row["prompt"], "answer": row["response"]}),
    "chats": written(chat),
    "images": pictures,
}


def said(words):
    """The fields that overrides set to something: `environment.WANDB_NAME` is one of `environment`'s."""
    names = [word.partition("=")[0] for word in words if not word.endswith("=null")]
    return {name for name in names if not name.startswith(("environment.", "compiler.options."))}


def leaves(kind, prefix=""):
    """Every field of the schema, `data.text_column`; a mapping is one."""
    for one in msgspec.inspect.type_info(kind).fields:
        parts = one.type.types if isinstance(one.type, msgspec.inspect.UnionType) else [one.type]
        inner = [part.cls for part in parts if isinstance(part, msgspec.inspect.StructType)]
        name = f"{prefix}{one.name}"
        yield from leaves(inner[0], f"{name}.") if inner else [name]


def table():
    """The page's: field to what it says, `changes a graph` and `in the key`."""
    rows = re.findall(
        r"^\| ((?:`[a-z_][.\w]*`(?:, )?)+) \| (yes|no|refused|not run) \| (yes|no|-) \|", DOC.read_text(), re.MULTILINE
    )
    return {name: (changes, key) for names, changes, key in rows for name in re.findall(r"`([\w.]+)`", names)}


def test_the_page_has_every_field_of_the_schema_and_says_of_each_what_the_tests_below_show():
    kept = set().union(*(said(words) for _, words in KEEP.values()))
    shown = {
        **dict.fromkeys(kept - CHANGE.keys(), ("no", "no")),
        **dict.fromkeys(CHANGE, ("yes", "yes")),
        **dict.fromkeys(CAUTIOUS, ("no", "yes")),
        **dict.fromkeys(REFUSED, ("refused", "-")),
        **dict.fromkeys(OF_THE_HUB, ("not run", "no")),
    }
    assert table() == shown
    every = {name for name in leaves(Recipe) if not re.fullmatch(r"training\.\w+", name)}
    assert every - {"model.config"} <= shown.keys()
    assert {f"model.config.{name}" for name in zoo.architecture_defaults("bert")} - shown.keys() == {
        "model.config.add_cross_attention"  # means something beside is_decoder alone
    }


@slow
@pytest.mark.feature("K2", "K7")
@pytest.mark.parametrize("field", CHANGE)
def test_a_field_that_changes_a_graph_is_in_the_key(lab, filled, field):
    name, words = CHANGE[field]
    changed = in_small(name, *filled(field, name, words))
    assert lab.prepare(changed).key != lab.prepare(in_small(name)).key
    # PyTorch reads some variables while it is imported.
    assert lab.compiles(name, changed, forked=not field.startswith("environment."))


@slow
@pytest.mark.feature("K2", "P1", "K7")
@pytest.mark.parametrize("title", KEEP)
def test_recipes_that_share_a_key_share_every_graph(lab, filled, title):
    name, words = KEEP[title]
    changed = in_small(name, *filled(title, name, words))
    assert lab.prepare(changed).key == lab.prepare(in_small(name)).key
    assert not lab.compiles(name, changed)


@slow
@pytest.mark.feature("P1")
@pytest.mark.parametrize("name", ["bert", "tinyllama-lora"])
def test_what_is_in_the_key_for_caution_finds_every_graph_all_the_same(lab, name):
    """All in one: a recipe in which two of them change a graph together would be seen as well."""
    words = [word for base, one in CAUTIOUS.values() for word in one if base == name]
    key = lab.prepare(in_small(name)).key
    assert all(lab.prepare(in_small(name, word)).key != key for word in words)
    assert not lab.compiles(name, in_small(name, *words))


@pytest.mark.parametrize("field", REFUSED)
def test_what_one_worker_cannot_do_is_refused(lab, field):
    with pytest.raises(RecipeError, match=re.escape(field)):
        lab.prepare(in_small("bert", f"{field}={REFUSED[field]}"))
