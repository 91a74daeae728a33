"""What each task reads from a recipe: its columns, and the fields that mean something to it.

A field that a task does not read is refused there, rather than ignored. How a task is trained and judged stands in
`training/tasks/`, one module each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from msgspec import Struct, field

from cachekit.recipe.schema import Recipe, TaskName

CLASSES = frozenset({"labels", "num_labels"})


class TaskFields(Struct, frozen=True):
    """The part of a recipe that a task reads beside what all do.

    Attributes:
        columns: Field of `data` to the column's usual name; None where such a column is read only if it is named.
        data: Further fields of `data`.
        training: Fields of `training` that not every task has.
        nested: Those of `columns` whose values are lists or mappings; see the function `nested`.
        free: Those whose values the task looks at itself.
        plain_text: A .txt file is a text, not a table.
        numbers: The label of a row is a number, whatever its value: no class.
    """

    columns: Mapping[str, str | None]
    data: frozenset[str] = frozenset()
    training: frozenset[str] = field(default=frozenset({"max_seq_length", "label_smoothing_factor"}))
    nested: frozenset[str] = frozenset()
    plain_text: bool = False
    free: frozenset[str] = frozenset()
    numbers: bool = False

    @property
    def has_classes(self) -> bool:
        """Rows have classes, whose number is the size of the model's head."""
        return bool(self.data & CLASSES)

    @property
    def several_classes(self) -> bool:
        """A row may have several of them, as a list."""
        return self.has_classes and "label_column" in self.free

    @property
    def has_choices(self) -> bool:
        """Each row has as many choices, whose number shapes a batch."""
        return "num_choices" in self.data

    @property
    def sees_images(self) -> bool:
        """The model reads images, not texts."""
        return "image_column" in self.columns

    @property
    def rewrites_texts(self) -> bool:
        """A text becomes another one: the model has an encoder and a decoder."""
        return "target_column" in self.columns

    @property
    def judges_texts(self) -> bool:
        """Something is said of a whole text, or of two: the model has a head for sequences."""
        return "text_pair_column" in self.columns


_ONE_OR_TWO_TEXTS = {"text_column": "text", "text_pair_column": None}
_SEQ2SEQ = frozenset({"source_prefix"})
_LM = frozenset({"max_seq_length", "lora"})

TASKS: dict[str, TaskFields] = {
    "text-classification": TaskFields({**_ONE_OR_TWO_TEXTS, "label_column": "label"}, data=CLASSES),
    "multi-label-classification": TaskFields(
        {**_ONE_OR_TWO_TEXTS, "label_column": "labels"},
        data=CLASSES,
        training=frozenset({"max_seq_length"}),
        free=frozenset({"label_column"}),
    ),
    "text-regression": TaskFields(
        {**_ONE_OR_TWO_TEXTS, "label_column": "label"}, training=frozenset({"max_seq_length"}), numbers=True
    ),
    "token-classification": TaskFields(
        {"tokens_column": "tokens", "label_column": "ner_tags"},
        data=CLASSES,
        nested=frozenset({"tokens_column", "label_column"}),
    ),
    "question-answering": TaskFields(
        {"question_column": "question", "context_column": "context", "answers_column": "answers"},
        training=frozenset({"max_seq_length", "doc_stride"}),
        nested=frozenset({"answers_column"}),
    ),
    "multiple-choice": TaskFields(
        {"context_column": None, "question_column": "question", "label_column": "label"},
        data=frozenset({"choices_columns", "num_choices"}),
    ),
    "causal-lm": TaskFields({"text_column": "text"}, training=_LM, plain_text=True),
    "instruction-tuning": TaskFields(
        {"prompt_column": "prompt", "response_column": "response", "messages_column": None},
        training=_LM,
        nested=frozenset({"messages_column"}),
    ),
    "masked-lm": TaskFields(
        {"text_column": "text"}, training=frozenset({"max_seq_length", "mlm_probability"}), plain_text=True
    ),
    "summarization": TaskFields(
        {"source_column": "document", "target_column": "summary"},
        data=_SEQ2SEQ,
        training=frozenset({"max_seq_length", "max_target_length", "label_smoothing_factor"}),
    ),
    "translation": TaskFields(
        {"source_column": "source", "target_column": "target", "translation_column": None},
        data=_SEQ2SEQ | {"source_lang", "target_lang"},
        training=frozenset({"max_seq_length", "max_target_length", "label_smoothing_factor"}),
        nested=frozenset({"translation_column"}),
    ),
    "image-classification": TaskFields(
        {"image_column": "image", "label_column": "label"},
        data=CLASSES,
        training=frozenset({"label_smoothing_factor", "image_size"}),
        free=frozenset({"image_column"}),
    ),
}

if _apart := TASKS.keys() ^ set(get_args(TaskName)):
    raise TypeError(f"TASKS of recipe/tasks.py and TaskName of recipe/schema.py differ by {', '.join(sorted(_apart))}")

_ALL_DATA = frozenset().union(*(task.data | task.columns.keys() for task in TASKS.values()))
_ALL_TRAINING = frozenset().union(*(task.training for task in TASKS.values()))


def fields(recipe: Recipe) -> TaskFields:
    """What the recipe's task reads."""
    return TASKS[recipe.task]


def columns(recipe: Recipe) -> dict[str, str]:
    """The columns that the recipe's rows have: field of `data` to the column's name.

    Where a chat or a pair of languages stands in one column, the two that it replaces are not read.
    """
    given = {name: getattr(recipe.data, name) or usual for name, usual in fields(recipe).columns.items()}
    for one, two in INSTEAD.items():
        if given.get(one):
            given |= dict.fromkeys(two)
    return {name: column for name, column in given.items() if column}


def nested(recipe: Recipe) -> frozenset[str]:
    """The fields of `data` whose columns hold lists or mappings."""
    own = fields(recipe)
    one = "choices_columns" in own.data and len(recipe.data.choices_columns or ("choices",)) == 1
    return own.nested | {"choices_columns"} if one else own.nested


def read_columns(recipe: Recipe) -> dict[str, str]:
    """Each column that must be there, with the field of `data` that names it: for reading, and for errors."""
    found = {column: name for name, column in columns(recipe).items()}
    if "choices_columns" in fields(recipe).data:
        found |= dict.fromkeys(recipe.data.choices_columns or ("choices",), "choices_columns")
    return found


# A column that holds what two others would, in their place.
INSTEAD = {
    "messages_column": ("prompt_column", "response_column"),
    "translation_column": ("source_column", "target_column"),
}


def not_read(task: str) -> dict[str, frozenset[str]]:
    """Fields of each section that mean nothing to a task, though they do to another."""
    own = TASKS[task]
    return {
        "data": _ALL_DATA - own.data - own.columns.keys(),
        "training": _ALL_TRAINING - own.training,
    }


def readers(section: str, name: str) -> list[str]:
    """The tasks that read a field."""
    return [task for task in TASKS if name not in not_read(task)[section]]
