"""The schema of a recipe: what may be said, of what type, within which limits.

Training arguments carry the names of `transformers.TrainingArguments` where it has one. Meanings that are not plain
from the name stand beside the field. `recipes/` holds examples; `cachekit zoo schema` prints this as JSON schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.json import schema as _json_schema

from cachekit.values import by_value

MOST = 2**31 - 1  # no tensor of ours has more of anything
Positive = Annotated[int, Meta(ge=1, le=MOST)]
NotNegative = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Decay = Annotated[float, Meta(ge=0, lt=1)]
OpenFraction = Annotated[float, Meta(gt=0, lt=1)]
Text = Annotated[str, Meta(min_length=1)]
Scalar = str | int | float | bool


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a recipe: frozen, and no field that it does not know."""


class Model(_Strict, frozen=True):
    """Which model. Its architecture is in the key; its name, weights and place are not.

    Attributes:
        id: Hub id or registry name, never a folder of this machine; also names the architecture when `path` or
            `package` gives the weights.
        revision: Branch, tag or commit on the Hub.
        path: Local folder in Hugging Face format; relative paths start at the recipe.
        package: The same inside an installed Python package, as `package/folder`.
        from_config: Train from random weights.
        config: Fields of the architecture's config to change; implies `from_config` where weights no longer fit.
        tokenizer: Hub id or folder of the tokenizer, where it is not the model's own.
    """

    id: Text | None = None
    revision: Text | None = None
    path: Text | None = None
    package: Text | None = None
    from_config: bool = False
    config: dict[str, Any] = {}
    tokenizer: Text | None = None


class Data(_Strict, frozen=True):
    """Which rows. They are not in the key; the number of labels is, through the model's head.

    Attributes:
        id: Data set on the Hub; a folder of this machine with that name is not read.
        config: Its configuration's name.
        revision: Its revision.
        train_split: Split names on the Hub; validation and test are optional.
        path: Local folder that holds `train.*`, and may hold `validation.*` (`val`, `dev`) and `test.*`; or what
            `datasets` wrote with `save_to_disk`.
        train_file: Local files, instead of `path`; csv, tsv, txt, json, jsonl or parquet. To language models a .txt
            file without a `delimiter` is plain text, each line a row.
        delimiter: Of csv, tsv and txt files; found from the header by default.
        encoding: Of text files.
        text_column: The text; `text_pair_column` a second one. Which columns a task reads, and their usual
            names, stands in `recipe.tasks`.
        label_column: The class, as a name or a number; of token-classification one for each word; of
            multi-label-classification a list, or text such as `3,6`; of text-regression a number.
        tokens_column: The words of a text, a list.
        question_column: A question; `context_column` the text that answers it.
        answers_column: `{"text": [...], "answer_start": [...]}`, both empty where there is no answer.
        choices_columns: Several columns, or one that holds a list: the endings to choose from.
        num_choices: How many endings each row has, where one column holds them; else read from a local file.
        source_column: What is summarized or translated; `target_column` what should come out.
        translation_column: `{"en": ..., "fr": ...}`, instead of the two; with `source_lang` and `target_lang`.
        prompt_column: An instruction; `response_column` what the model should answer.
        messages_column: A chat, `[{"role": ..., "content": ...}, ...]`, instead of the two.
        image_column: An image: its bytes, or the path of its file, which starts where the rows' file is. A folder of
            images a class (`path/train/<class>/*.png`) needs no columns.
        source_prefix: Put before each source, `translate English to French: `.
        labels: The classes' names in the order of their numbers; else `num_labels`; else read from a local file.
        validation_fraction: Taken from the end of the shuffled training rows where no validation rows are given; of
            plain text, whose lines go on in one another, its end. A tenth by default.
        max_train_samples: Use that many rows at the most.
    """

    id: Text | None = None
    config: Text | None = None
    revision: Text | None = None
    train_split: Text = "train"
    validation_split: Text | None = None
    test_split: Text | None = None
    path: Text | None = None
    train_file: Text | None = None
    validation_file: Text | None = None
    test_file: Text | None = None
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] | None = None
    encoding: Text = "utf-8"
    text_column: Text | None = None
    text_pair_column: Text | None = None
    label_column: Text | None = None
    tokens_column: Text | None = None
    question_column: Text | None = None
    context_column: Text | None = None
    answers_column: Text | None = None
    choices_columns: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    num_choices: Annotated[int, Meta(ge=2, le=1_000)] | None = None
    source_column: Text | None = None
    target_column: Text | None = None
    translation_column: Text | None = None
    source_lang: Text | None = None
    target_lang: Text | None = None
    prompt_column: Text | None = None
    response_column: Text | None = None
    messages_column: Text | None = None
    image_column: Text | None = None
    source_prefix: Text | None = None
    labels: Annotated[tuple[Text, ...], Meta(min_length=2)] | None = None
    num_labels: Annotated[int, Meta(ge=2, le=1_000_000)] | None = None
    validation_fraction: OpenFraction | None = None
    max_train_samples: Positive | None = None
    max_eval_samples: Positive | None = None


class Lora(_Strict, frozen=True):
    """Low-rank adaptation, by the names of `peft.LoraConfig`.

    Attributes:
        target_modules: Names of the layers that get one, or `all-linear`; by default PEFT's own choice for the
            architecture.
    """

    r: Positive = 8
    lora_alpha: Annotated[float, Meta(gt=0)] = 16
    lora_dropout: Decay = 0.0
    target_modules: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    bias: Literal["none", "all", "lora_only"] = "none"


class Training(_Strict, frozen=True):
    """How to train. The first block reaches the compiled graphs and is in the key; the second is not.

    Attributes:
        per_device_eval_batch_size: As the training batch by default.
        max_seq_length: Tokens a row; every row is padded or cut to it, because each new shape is a new graph.
        max_target_length: Tokens of what a summary or a translation may have.
        image_size: Pixels a side of an image, where the model's config does not say: 224 by default.
        lora: Train small matrices beside the model's own (PEFT), and leave those as they are.
        doc_stride: Tokens that two windows over one text share; a third of `max_seq_length` by default, 128 of 384.
        mlm_probability: Share of the tokens that are masked.
        bf16: `auto` means yes where the device has it.
        max_grad_norm: 0 turns clipping off.
        max_steps: Optimizer steps; wins over `num_train_epochs`.
        output_dir: Relative paths start at the working directory; `runs/<recipe>` by default.
        report_to: Trackers that get the figures of a training, and those of its cache; each needs its own package.
    """

    per_device_train_batch_size: Positive = 8
    per_device_eval_batch_size: Positive | None = None
    max_seq_length: Annotated[int, Meta(ge=2, le=MOST)] = 128
    max_target_length: Annotated[int, Meta(ge=2, le=MOST)] = 128
    image_size: Positive | None = None
    gradient_accumulation_steps: Positive = 1
    bf16: bool | Literal["auto"] = "auto"
    optim: Literal["adamw_torch", "adamw_torch_fused", "sgd", "adafactor"] = "adamw_torch"
    weight_decay: Rate = 0.0
    adam_beta1: Decay = 0.9
    adam_beta2: Decay = 0.999
    adam_epsilon: Rate = 1e-8
    max_grad_norm: Rate = 1.0
    label_smoothing_factor: Fraction = 0.0
    gradient_checkpointing: bool = False
    lora: Lora | None = None

    doc_stride: NotNegative | None = None
    mlm_probability: OpenFraction = 0.15
    learning_rate: Rate = 5e-5
    lr_scheduler_type: Literal[
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup"
    ] = "linear"
    warmup_steps: NotNegative = 0
    num_train_epochs: Annotated[float, Meta(gt=0)] = 3
    max_steps: Positive | None = None
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 42  # numpy's limit
    logging_steps: Positive = 50
    eval_strategy: Literal["no", "steps", "epoch"] = "epoch"
    eval_steps: Positive | None = None
    save_strategy: Literal["no", "steps", "epoch"] = "epoch"
    save_steps: Positive = 500
    save_total_limit: Positive | None = 1
    dataloader_num_workers: NotNegative = 0
    output_dir: Text | None = None
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...] = ()


class Parallel(_Strict, frozen=True):
    """The layout over devices and nodes; it shapes the graphs, so all of it is in the key.

    Attributes:
        data_parallel_size: Workers on a node; `auto` is all the cores the compiler drives, 1 on a CPU.
        zero_1: Shard the optimizer's state.
    """

    data_parallel_size: Positive | Literal["auto"] = "auto"
    tensor_parallel_size: Positive = 1
    pipeline_parallel_size: Positive = 1
    zero_1: bool = False
    nodes: Positive = 1


class Compiler(_Strict, frozen=True):
    """Which compiler, and how it is called.

    Attributes:
        name: `auto` picks Neuron where it is really there, else Inductor. `neuron` is torch-neuronx on XLA,
            `neuron-native` TorchNeuron.
        flags: Kept in order: to some compilers order and spelling are part of the key.
        options: The compiler's named options.
    """

    name: Literal["auto", "inductor", "neuron", "neuron-native"] = "auto"
    flags: tuple[str, ...] = ()
    options: dict[str, Scalar] = {}


class Expectation(_Strict, frozen=True):
    """What a run of this recipe is known to reach, and who says so and when.

    Attributes:
        train_seconds: How long the training took, on all machines together.
        steps_per_second: Optimizer steps.
        machines: How many of the instance trained together.
        dollars: What the source says that it paid.
    """

    instance: Text
    source: Text
    metrics: dict[str, float] = {}
    train_seconds: Rate | None = None
    steps_per_second: Rate | None = None
    machines: Positive = 1
    dollars: Rate | None = None
    note: str = ""


TaskName = Literal[
    "text-classification",
    "multi-label-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "causal-lm",
    "instruction-tuning",
    "masked-lm",
    "summarization",
    "translation",
    "image-classification",
]


class Recipe(_Strict, frozen=True, kw_only=True):
    """A fine-tune: everything that `warm` and `train` need to know.

    Attributes:
        environment: Variables for the worker; in the key, but for those known not to reach a graph.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)", max_length=100)]
    description: str = ""
    task: TaskName = "text-classification"
    model: Model
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    parallel: Parallel = field(default_factory=Parallel)
    compiler: Compiler = field(default_factory=Compiler)
    environment: dict[str, str | int | float] = {}
    expect: tuple[Expectation, ...] = ()

    __hash__ = by_value


def json_schema() -> dict[str, Any]:
    """The JSON schema of a recipe, for editors (`# yaml-language-server: $schema=…`)."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_json_schema(Recipe)}
