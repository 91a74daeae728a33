"""Which rows a call of an example script trains on: a data set by name, files, or folders of images."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from cachekit.recipe import tasks
from cachekit.recipe.convert import example_arguments as known
from cachekit.recipe.convert import known_data
from cachekit.recipe.convert.draft import Draft
from cachekit.recipe.convert.command import Call, is_true, plain_value, take

_REGRESSION = "its rows have numbers for labels: a regression, which recipes have no task for"
# What a folder of images is called where `data.path` is the one around it.
_FOLDERS = {"train": ("train", "training"), "validation": ("validation", "val", "valid", "dev", "eval")}


def read_rows(draft: Draft, call: Call, left: dict[str, Any]) -> None:
    """Fill the draft's `data` from a call.

    Args:
        draft: Its model is known.
        call: Of a script.
        left: The call's arguments that nothing has read so far; those that are read are taken out.
    """
    _Rows(draft, call, left).read()


class _Rows:
    def __init__(self, draft: Draft, call: Call, left: dict[str, Any]) -> None:
        self._draft, self._call, self._left = draft, call, left

    def read(self) -> None:
        draft, script = self._draft, self._call.script
        self._place()
        self._images()
        self._files()
        for given, field_name in known.DATA.get(script, {}).items():
            if (value := take(self._left, given)) is not None:
                draft.set(f"data.{field_name}", value)
        self._joined()
        for given in ("max_train_samples", "max_eval_samples"):
            if (value := take(self._left, given)) is not None:
                draft.set(f"data.{given}", plain_value(value))
        for name, whole in (("validation_split_percentage", 100), ("train_val_split", 1)):
            if (share := take(self._left, name)) is None:
                continue
            if draft.get("data.validation_split") or draft.get("data.validation_file"):
                draft.drop(f"--{name}", "there are rows for validation", share)
            else:
                draft.set("data.validation_fraction", _fraction(share, whole))
        if draft.task == "translation" and not draft.get("data.source_column"):
            draft.set("data.translation_column", "translation")  # as run_translation.py has it
        self._labels()

    def _place(self) -> None:
        draft, script, left = self._draft, self._call.script, self._left
        name, config = take(left, "dataset_name"), take(left, "dataset_config_name", "dataset_config")
        task = take(left, "task_name")
        if script == "run_glue" and isinstance(task, str) and name is None:
            draft.set("data.id", "nyu-mll/glue")
            draft.set("data.config", task.lower())
            self._of_glue(task)
        elif script == "run_xnli":
            draft.set("data.id", "facebook/xnli")
            spoken, trained = take(left, "language"), take(left, "train_language")
            draft.set("data.config", trained or spoken or "en")
            if trained and spoken and spoken != trained:
                why = "a recipe's splits are of one data set: rows to judge by are of the language that it trains on"
                draft.drop("--language", f"{why}, data.config", spoken)
            self._known("xnli", None)
        elif isinstance(name, str) and name.startswith(("/", ".", "~")):
            draft.set("data.path", name)
            draft.relative("--dataset_name", name)
        elif isinstance(name, str):
            draft.set("data.id", name)
            draft.set("data.config", config)
            self._known(name, config)
        elif script == "run_swag" and "train_file" not in left:
            draft.set("data.id", "allenai/swag")
            draft.set("data.config", "regular")
            self._known("swag", None)
        elif script == "run_swag":
            self._known("swag", None)  # the script reads these columns of any file
            draft.fields["data"].pop("validation_split")
        if script == "run_ner" and isinstance(task, str):
            draft.default("data.label_column", f"{task}_tags")  # where the data has such a column
            if task != "ner":
                draft.fields["data"].pop("labels", None)  # those of names

    def _joined(self) -> None:
        """Columns whose texts run_classification.py puts together, `title,body`."""
        given = self._draft.get("data.text_column")
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else []
        if self._call.script == "run_classification" and len(names) > 1:
            self._draft.set("data.text_column", names[0])
            why = "the script joins them into one text; make such a column, or say the second as data.text_pair_column"
            self._draft.must(f"--text_column_names {given}", why)

    def _of_glue(self, task: str) -> None:
        found = known_data.glue(task)
        if not found:
            why = _REGRESSION if task.lower() == "stsb" else "no task of GLUE that is known"
            self._draft.must(f"--task_name {task}", why)
        for name, value in found.items():
            self._draft.set(f"data.{name}", value)

    def _known(self, name: str, config: Any) -> None:
        found = known_data.known(name, config if isinstance(config, str) else None)
        for key, value in found.items():
            if key not in tasks.not_read(self._draft.task)["data"]:
                self._draft.default(f"data.{key}", value)
        if not found and self._flag_given("do_eval"):
            self._draft.default("data.validation_split", "validation")
        if not found and self._flag_given("do_predict"):
            self._draft.default("data.test_split", "test")

    def _flag_given(self, name: str) -> bool:
        return is_true(self._call.arguments.get(name))

    def _images(self) -> None:
        """Folders of images: the one around `train/` and its like is `data.path`."""
        draft, train, validation = self._draft, self._left.get("train_dir"), self._left.get("validation_dir")
        if not isinstance(train, str) or draft.get("data.id") or draft.get("data.path"):
            return
        path, other = PurePosixPath(train), PurePosixPath(str(validation or train))
        fits = path.name.lower() in _FOLDERS["train"] and path.parent == other.parent
        if fits and (validation is None or other.name.lower() in _FOLDERS["validation"]):
            take(self._left, "train_dir", "validation_dir")
            parent = str(path.parent)
            draft.set("data.path", parent if parent.startswith(("/", "~")) else f"./{parent}")
            draft.relative("--train_dir", train)

    def _files(self) -> None:
        draft, train = self._draft, take(self._left, "train_file", "train_data_file")
        if draft.get("data.id") or draft.get("data.path"):
            if train is not None:
                draft.drop("--train_file", "the data set's own rows are used", train)
            return
        draft.set("data.train_file", train)
        for name, given in known.FILES.items():
            if (value := take(self._left, *given)) is not None:
                draft.set(f"data.{name}", value)
        if train is None:
            draft.must("data", "the command names none; say data.id, data.path or data.train_file")
            return
        draft.relative("--train_file", str(train))
        guessed, fields = known.FIRST_COLUMNS.get(self._call.script, ("", ""))
        if guessed and not set(known.DATA.get(self._call.script, ())) & self._left.keys():
            draft.drop("the columns", f"the script takes {guessed}; name them with {fields}")

    def _labels(self) -> None:
        draft, task = self._draft, self._draft.task
        if is_true(take(self._left, "do_regression")):
            draft.must("--do_regression", _REGRESSION)
            return
        classes, local = tasks.TASKS[task].has_classes, draft.get("data.train_file") or draft.get("data.path")
        if classes and not (draft.get("data.labels") or draft.get("data.num_labels") or local):
            draft.must("data.labels", "the script counts them in the data; name them, or say data.num_labels")


def _fraction(value: Any, whole: int) -> Any:
    number = plain_value(value)
    return number / whole if isinstance(number, int | float) and not isinstance(number, bool) else value
