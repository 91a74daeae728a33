"""The example scripts of Transformers, as command lines: `python run_glue.py --model_name_or_path … --task_name mrpc`.

Their arguments are those of `TrainingArguments` and of three small classes in each script
(github.com/huggingface/transformers, examples/pytorch). Optimum's copies of them have the same names.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.importing import example_arguments as known
from cachekit.recipe.importing import known_data
from cachekit.recipe.importing.draft import Draft, lora_fields, slug
from cachekit.recipe.importing.example_calls import Call, calls, options_of, plain_value
from cachekit.recipe.schema import Training

_TRAINING = frozenset(Training.__struct_fields__) - {"lora"}


def knows(text: str) -> bool:
    """Whether a text calls an example script."""
    return bool(calls(text))


def convert(text: str, name: str) -> Draft:
    """Make a draft of the first script's training.

    Args:
        text: A shell script, a README or a notebook.
        name: For the recipe, where nothing better is known.

    Raises:
        RecipeError: The only scripts in it are of tasks that there is none of.
    """
    found = calls(text)
    useful = [call for call in found if call.script in known.SCRIPTS]
    if not useful:
        first = found[0].script
        raise RecipeError(
            f"{first}.py is of a task that recipes have none of",
            cause=f"tasks are {', '.join(tasks.TASKS)}",
            hint=f"known are {', '.join(f'{script}.py' for script in known.SCRIPTS)}",
        )
    # Before a training often comes the same with a few steps, only to compile; that is what `warm` is for.
    same = [call for call in useful if call.script == useful[0].script]
    chosen = next((call for call in same if not call.extracts), same[0])
    task = known.SCRIPTS[chosen.script]
    draft = Draft(slug(name), f"a call of {chosen.script}.py", task)
    for call in found:
        if call is not chosen and not call.extracts:
            draft.drop(f"line {call.command.line}, {call.script}.py", "another call; a recipe is one fine-tune")
        elif call is not chosen:
            draft.drop(f"line {call.command.line}, neuron_parallel_compile", "`cachekit warm` compiles beforehand")
    _Reader(draft, chosen).read()
    return draft


class _Reader:
    """Fills a draft from one call."""

    def __init__(self, draft: Draft, call: Call) -> None:
        self._draft, self._call, self._left = draft, call, dict(call.arguments)

    def read(self) -> None:
        draft = self._draft
        for name in self._call.doubles:
            draft.drop(f"--{name}", "it stands twice; the last one counts, as it does for the script")
        for name in [name for name, value in self._left.items() if value is ...]:
            del self._left[name]
            draft.drop(name, "no option: what the script makes of it is not known here")
        for name, value in list(self._left.items()):
            if "$" in str(value):
                del self._left[name]
                draft.drop(f"--{name}", "the file does not say what the variable stands for", value)
        self._model()
        self._data()
        self._training()
        self._launch()
        self._environment()
        for name, value in self._left.items():
            said = None if value is True else value
            if name in known.NEEDLESS:
                continue
            draft.drop(f"--{name}", known.REASONS.get(name, known.UNKNOWN), said)

    def _take(self, *names: str) -> Any:
        """The value of the first of these arguments that is given; all of them are used up."""
        values = [self._left.pop(name) for name in names if name in self._left]
        return values[0] if values else None

    def _flag(self, name: str) -> bool:
        return _is_true(self._take(name))

    def _model(self) -> None:
        draft = self._draft
        name = self._take("model_name_or_path", "model_name", "model_id")
        config, kind = self._take("config_name"), self._take("model_type")
        if name is None and (config or kind):
            draft.set("model.from_config", value=True)
        model = name or config or kind
        if not isinstance(model, str):
            draft.must("model.id", "the command names no model; put its Hub id in place of this one")
            model = "bert-base-uncased"
        elif config and name and config != name:
            draft.drop("--config_name", "weights and config of two models", config)
        if model.endswith(".json"):  # a config.json
            model = str(PurePosixPath(model).parent)
        draft.set("model.path" if model.startswith(("/", ".", "~")) else "model.id", model)
        draft.set("model.revision", self._branch())
        tokenizer = self._take("tokenizer_name")
        if tokenizer and tokenizer != model:
            draft.set("model.tokenizer", tokenizer)
        if overrides := self._take("config_overrides"):
            pairs = dict(pair.partition("=")[::2] for pair in str(overrides).split(","))
            draft.set("model.config", {key: plain_value(value) for key, value in pairs.items()})

    def _branch(self) -> str | None:
        revision = self._take("model_revision")
        return None if revision in {None, "main", True} else str(revision)

    def _data(self) -> None:
        draft, script = self._draft, self._call.script
        name, config = self._take("dataset_name"), self._take("dataset_config_name", "dataset_config")
        task = self._take("task_name")
        if script == "run_glue" and isinstance(task, str) and name is None:
            draft.set("data.id", "nyu-mll/glue")
            draft.set("data.config", task.lower())
            self._of_glue(task)
        elif script == "run_xnli":
            draft.set("data.id", "facebook/xnli")
            draft.set("data.config", self._take("language", "train_language") or "en")
            self._known("xnli", None)
        elif isinstance(name, str):
            key = "path" if name.startswith(("/", ".", "~")) else "id"
            draft.set(f"data.{key}", name)
            draft.set("data.config", config)
            self._known(name, config)
        elif script == "run_swag" and "train_file" not in self._left:
            draft.set("data.id", "allenai/swag")
            draft.set("data.config", "regular")
            self._known("swag", None)
        elif script == "run_ner" and isinstance(task, str) and task not in {"ner", "pos", "chunk"}:
            draft.drop("--task_name", "no task of run_ner.py", task)
        self._files()
        for given, field_name in known.DATA.get(script, {}).items():
            if (value := self._take(given)) is not None:
                draft.set(f"data.{field_name}", value)
        for given in ("max_train_samples", "max_eval_samples"):
            if (value := self._take(given)) is not None:
                draft.set(f"data.{given}", plain_value(value))
        if (percent := self._take("validation_split_percentage")) is not None and not draft.get(
            "data.validation_split"
        ):
            draft.set("data.validation_fraction", _fraction(percent, 100))
        if (share := self._take("train_val_split")) is not None:
            draft.set("data.validation_fraction", _fraction(share, 1))
        if draft.task == "translation" and not draft.get("data.source_column"):
            draft.set("data.translation_column", "translation")  # as run_translation.py has it
        self._labels()

    def _of_glue(self, task: str) -> None:
        found = known_data.glue(task)
        if not found:
            why = "its rows have numbers for labels: a regression, which recipes have no task for"
            self._draft.must(f"--task_name {task}", why if task.lower() == "stsb" else "no task of GLUE that is known")
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
        return _is_true(self._call.arguments.get(name))

    def _files(self) -> None:
        draft, train = self._draft, self._take("train_file", "train_data_file")
        if draft.get("data.id") or draft.get("data.path"):
            if train is not None:
                draft.drop("--train_file", "the data set's own rows are used", train)
            return
        draft.set("data.train_file", train)
        for name, given in known.FILES.items():
            if (value := self._take(*given)) is not None:
                draft.set(f"data.{name}", value)
        if train is None:
            draft.must("data", "the command names none; say data.id, data.path or data.train_file")
        elif not str(train).startswith(("/", "~")):
            draft.drop("--train_file", "a relative path starts at the recipe's folder, not at the working one", train)

    def _labels(self) -> None:
        draft, task = self._draft, self._draft.task
        classes = tasks.TASKS[task].has_classes
        if classes and not (draft.get("data.labels") or draft.get("data.num_labels") or draft.get("data.train_file")):
            draft.must("data.labels", "the script counts them in the data; name them, or say data.num_labels")

    def _training(self) -> None:
        draft, script = self._draft, self._call.script
        for name, value in known.DEFAULTS.get(script, {}).items():
            draft.set(f"training.{name}", value)
        for name, value in list(self._left.items()):
            meant = known.lengths(script).get(name) or known.TRAINING.get(name, name)
            if meant in _TRAINING and meant not in {"bf16", "output_dir"}:
                del self._left[name]
                self._argument(name, meant, value)
        self._precision()
        if (folder := self._take("output_dir")) is not None:
            draft.drop(
                "--output_dir", "say it when training: cachekit train --output-dir; runs/NAME by default", folder
            )
        if (ratio := self._take("warmup_ratio")) is not None:
            draft.drop("--warmup_ratio", "a recipe has training.warmup_steps: that share of all steps", ratio)
        lora = {
            field_name: plain_value(self._take(given))
            for given, field_name in known.LORA.items()
            if given in self._left and field_name in lora_fields()
        }
        if lora:
            draft.set("training.lora", lora)
        for given in ("use_lora", "use_peft"):
            if self._flag(given):
                draft.default("training.lora", {})

    def _argument(self, given: str, name: str, value: Any) -> None:
        draft = self._draft
        plain = plain_value(value)
        if name in {"max_steps", "save_total_limit"} and isinstance(plain, int) and plain < 0:
            return  # the script's own way to say none
        if name == "warmup_steps" and isinstance(plain, float) and plain < 1:
            draft.drop(f"--{given}", "a recipe counts warm-up in steps, not as a share of them", value)
            return
        if name == "optim" and str(plain).startswith("adamw") and plain not in {"adamw_torch", "adamw_torch_fused"}:
            draft.drop(f"--{given}", "adamw_torch in its place: the same update in another implementation", value)
            plain = "adamw_torch"
        if name == "eval_strategy" and plain == "steps":
            steps = self._call.arguments.get("eval_steps") or self._call.arguments.get("logging_steps") or 500
            draft.default("training.eval_steps", plain_value(steps))
        if name in {"max_seq_length", "max_target_length"} and isinstance(plain, int) and plain < 0:
            return
        draft.set(f"training.{name}", plain)

    def _precision(self) -> None:
        draft, given = self._draft, self._left
        if "bf16" in given:
            draft.set("training.bf16", _is_true(self._take("bf16")))
        if self._flag("fp16"):
            draft.default("training.bf16", "auto")
            draft.drop("--fp16", "bf16 where the device has it: no device here trains in fp16")

    def _launch(self) -> None:
        """What stood before the script."""
        draft = self._draft
        arguments, _ = options_of([word for word in self._call.launch if word not in {"-m", "-u"}])
        options = {name: value for name, value in arguments.items() if value is not ...}
        groups = 1
        for name, field_name in known.PARALLEL.items():
            if (value := plain_value(self._take(name))) is not None:
                draft.set(f"parallel.{field_name}", value)
                groups *= value if isinstance(value, int) and field_name != "zero_1" else 1
        workers = plain_value(next((options[name] for name in known.WORKERS if name in options), None))
        if isinstance(workers, int) and workers % groups == 0 and workers > 1:
            draft.set("parallel.data_parallel_size", workers // groups)
        elif workers is not None and workers != 1:
            draft.drop(
                "--nproc_per_node", "all the cores of the machine, which is what a recipe does by itself", workers
            )
        nodes = plain_value(next((options[name] for name in ("nnodes", "num_machines") if name in options), None))
        if isinstance(nodes, int) and nodes > 1:
            draft.set("parallel.nodes", nodes)
        for name, value in options.items():
            if "$" in str(value):
                draft.drop(f"--{name}", "the file does not say what the variable stands for", value)
            elif name not in {*known.WORKERS, *known.MEETING, "nnodes", "num_machines"}:
                draft.drop(
                    f"--{name}", "the launcher's; cachekit starts workers itself", None if value is True else value
                )

    def _environment(self) -> None:
        draft = self._draft
        # `time A=1 torchrun …`
        more = dict(word.partition("=")[::2] for word in self._call.launch if re.match(r"^[A-Z_][A-Z0-9_]*=", word))
        for name, value in {**self._call.command.variables, **more}.items():
            if name == "NEURON_CC_FLAGS":
                _flags(draft, value)
            elif "$" in value:
                draft.drop(name, "the file does not say what the variable stands for", value)
            elif name in {"XLA_USE_BF16", "XLA_DOWNCAST_BF16"}:
                if value == "1":
                    draft.default("training.bf16", value=True)
                    draft.drop(name, "training.bf16 says so: by autocast, with weights in 32 bits", value)
            elif name in known.ENVIRONMENT_OURS:
                draft.drop(name, known.ENVIRONMENT_OURS[name], value)
            elif name.startswith(known.ENVIRONMENT):
                draft.environment[name] = value
            else:
                draft.drop(name, "a variable that is not known to reach the training; add it to environment", value)


def _flags(draft: Draft, text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept, rest = [], iter(words)
    for word in rest:
        if word.partition("=")[0] in {"--cache_dir", "--no_cache", "--dump"}:
            value = "" if "=" in word or word == "--no_cache" else next(rest, "")
            draft.drop(f"NEURON_CC_FLAGS {word}", "cachekit says where the cache lies", value or None)
        elif "$" in word:
            draft.drop(f"NEURON_CC_FLAGS {word}", "the file does not say what the variable stands for")
        else:
            kept.append(word)
    if kept:
        draft.set("compiler.name", "neuron")
        draft.set("compiler.flags", kept)


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() in {"true", "1", "yes", "y", "t"}


def _fraction(value: Any, whole: int) -> Any:
    number = plain_value(value)
    return number / whole if isinstance(number, int | float) and not isinstance(number, bool) else value
