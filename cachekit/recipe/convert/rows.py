"""Which rows a call of an example script trains on: a data set by name, files, or folders of images."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from cachekit.recipe import tasks
from cachekit.recipe.convert.draft import RecipeDraft
from cachekit.recipe.convert.tables import Tree, data_fields, is_true, plain, tables

# What a folder of images is called where `data.path` is the one around it.
_FOLDERS = {"train": ("train", "training"), "validation": ("validation", "val", "valid", "dev", "eval")}


def read_rows(draft: RecipeDraft, script: str, options: Tree) -> None:
    """Fill the draft's `data` from a call's options, and take those."""
    if options.flag("do_regression"):
        draft.task = "text-regression"
    _data_set(draft, script, options)
    _images(draft, options)
    _files(draft, script, options)
    for given, field in tables().examples.scripts[script].data.items():
        if (value := options.take(given)) is not None:
            draft.set(f"data.{field}", value)
    if script == "run_classification":
        _joined(draft)
    for given in ("max_train_samples", "max_eval_samples"):
        draft.set(f"data.{given}", plain(options.take(given)))
    for given, whole in (("validation_split_percentage", 100), ("train_val_split", 1)):
        share = plain(options.take(given))
        if share is not None and (draft.get("data.validation_split") or draft.get("data.validation_file")):
            draft.drop(f"--{given}", "there are rows for validation", share)
        elif share is not None:
            is_number = isinstance(share, int | float) and not isinstance(share, bool)
            draft.set("data.validation_fraction", share / whole if is_number else share)
    if draft.task == "translation" and not draft.get("data.source_column"):
        draft.set("data.translation_column", "translation")  # as run_translation.py has it
    _labels(draft)


def _data_set(draft: RecipeDraft, script: str, options: Tree) -> None:
    name, config = options.take("dataset_name"), options.take("dataset_config_name", "dataset_config")
    task = options.take("task_name")
    if script == "run_glue" and isinstance(task, str) and name is None:
        draft.set("data.id", "nyu-mll/glue")
        draft.set("data.config", task.lower())
        draft.task = "text-regression" if task.lower() == "stsb" else draft.task  # as run_glue.py has it
        if not _known(draft, options, "glue", task):
            draft.must(f"--task_name {task}", "GLUE has no task of that name")
    elif script == "run_xnli":
        spoken, trained = options.take("language"), options.take("train_language")
        draft.set("data.id", "facebook/xnli")
        draft.set("data.config", trained or spoken or "en")
        if trained and spoken and spoken != trained:
            why = "a recipe has one data set, so evaluation rows are in the language of the training rows"
            draft.drop("--language", f"{why}, data.config", spoken)
        _known(draft, options, "xnli")
    elif isinstance(name, str) and name.startswith(("/", ".", "~")):
        draft.set("data.path", name)
        draft.relative("--dataset_name", name)
    elif isinstance(name, str):
        draft.set("data.id", name)
        draft.set("data.config", config)
        _known(draft, options, name, config)
    elif script == "run_swag":
        _known(draft, options, "swag")
        if options.has("train_file"):  # the script reads the same columns of any file
            draft.set("data.validation_split", None)
        else:
            draft.set("data.id", "allenai/swag")
            draft.set("data.config", "regular")
    if script == "run_ner" and isinstance(task, str):
        draft.default("data.label_column", f"{task}_tags")  # where the data has such a column
        if task != "ner":
            draft.set("data.labels", None)  # those of names


def _known(draft: RecipeDraft, options: Tree, name: str, config: Any = None) -> bool:
    """Fill in what is known of a data set; whether anything is."""
    found = data_fields(name, config)
    for field, value in found.items():
        if field not in tasks.not_read(draft.task)["data"]:
            draft.default(f"data.{field}", value)
    for flag, split in (("do_eval", "validation"), ("do_predict", "test")):
        if not found and is_true(options.look(flag)):
            draft.default(f"data.{split}_split", split)
    return bool(found)


def _joined(draft: RecipeDraft) -> None:
    """Ask for the columns whose texts the script puts together, `title,body`."""
    given = draft.get("data.text_column")
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else []
    if len(names) > 1:
        draft.set("data.text_column", names[0])
        why = "the script joins these columns; make one of them, or name the second with data.text_pair_column"
        draft.must(f"--text_column_names {given}", why)


def _images(draft: RecipeDraft, options: Tree) -> None:
    """Find the folder around `train/` and its like: that is `data.path`."""
    train, validation = options.look("train_dir"), options.look("validation_dir")
    if not isinstance(train, str) or draft.get("data.id") or draft.get("data.path"):
        return
    path, other = PurePosixPath(train), PurePosixPath(str(validation or train))
    fits = path.name.lower() in _FOLDERS["train"] and path.parent == other.parent
    if fits and (validation is None or other.name.lower() in _FOLDERS["validation"]):
        options.take("train_dir", "validation_dir")
        parent = str(path.parent)
        draft.set("data.path", parent if parent.startswith(("/", "~")) else f"./{parent}")
        draft.relative("--train_dir", train)


def _files(draft: RecipeDraft, script: str, options: Tree) -> None:
    train, known = options.take("train_file", "train_data_file"), tables().examples
    if draft.get("data.id") or draft.get("data.path"):
        if train is not None:
            draft.drop("--train_file", "the data set's own rows are used", train)
        return
    for field, given in known.files.items():
        draft.set(f"data.{field}", options.take(*given))
    if train is None:
        draft.must("data", "the command names no data; set data.id, data.path or data.train_file")
        return
    draft.set("data.train_file", train)
    draft.relative("--train_file", str(train))
    if (finds := known.scripts[script].finds) and not any(map(options.has, known.scripts[script].data)):
        draft.drop("the columns", finds)


def _labels(draft: RecipeDraft) -> None:
    said = ("data.labels", "data.num_labels", "data.train_file", "data.path")
    if tasks.TASKS[draft.task].has_classes and not any(map(draft.get, said)):
        draft.must("data.labels", "the script counts them in the data; name them, or set data.num_labels")
