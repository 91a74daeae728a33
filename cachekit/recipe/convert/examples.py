"""The example scripts of Transformers, as command lines: `python run_glue.py --model_name_or_path … --task_name mrpc`.

Their arguments are those of `TrainingArguments` and of three small classes in each script
(github.com/huggingface/transformers, examples/pytorch). Optimum's copies of them have the same names.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.convert import example_arguments as known
from cachekit.recipe.convert.draft import Draft, lora_fields, slug
from cachekit.recipe.convert.command import (
    Call,
    calls,
    is_true,
    options_in,
    options_of,
    plain_value,
    take,
)
from cachekit.recipe.convert.rows import read_rows
from cachekit.recipe.schema import Training

_TRAINING = frozenset(Training.__struct_fields__) - {"lora"}


def knows(text: str) -> bool:
    """Whether a text calls an example script."""
    return bool(calls(text))


def convert(text: str, name: str, folder: Path) -> Draft:
    """Make a draft of the first script's training.

    Args:
        text: A shell script, a README or a notebook.
        name: For the recipe, where nothing better is known.
        folder: Where it lies, and perhaps a file of arguments beside it.

    Raises:
        RecipeError: The only scripts in it are of tasks that there is none of, or a file of arguments cannot be read.
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
    useful = [call for call in useful if not call.file or os.path.isfile(_place(folder, call.file))] or useful  # noqa: PTH113 - no error for any name
    same = [call for call in useful if call.script == useful[0].script]
    chosen = next((call for call in same if not call.extracts), same[0])
    if chosen.file:
        chosen.arguments = options_in(_place(folder, chosen.file))
    task = known.SCRIPTS[chosen.script]
    draft = Draft(slug(name), f"a call of {chosen.script}.py", task)
    for variable, rounds in chosen.command.rounds.items():
        draft.drop(f"for {variable} in", f"a recipe is one fine-tune: its first round, {rounds[0]}", list(rounds))
    for call in found:
        if call is not chosen and not call.extracts:
            draft.drop(f"line {call.command.line}, {call.script}.py", "another call; a recipe is one fine-tune")
        elif call is not chosen:
            draft.drop(f"line {call.command.line}, neuron_parallel_compile", "`cachekit warm` compiles beforehand")
    _Reader(draft, chosen).read()
    return draft


def _place(folder: Path, name: str) -> Path:
    return folder / os.path.expanduser(name)  # noqa: PTH111 - leaves a user that nobody knows as it is


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
        for name in known.EXTRACTING if self._call.extracts else ():
            if (value := self._take(name)) is not None:
                draft.drop(
                    f"--{name}", "neuron_parallel_compile takes as few to compile; no training is in the file", value
                )
        self._model()
        read_rows(draft, self._call, self._left)
        self._training()
        self._launch()
        self._environment()
        tested = draft.get("data.test_split") or draft.get("data.test_file")
        for name, value in self._left.items():
            said = None if value is True else value
            if name in known.NEEDLESS or (name == "do_predict" and tested):
                continue
            draft.drop(f"--{name}", known.REASONS.get(name, known.UNKNOWN), said)

    def _take(self, *names: str) -> Any:
        return take(self._left, *names)

    def _flag(self, name: str) -> bool:
        return is_true(self._take(name))

    def _model(self) -> None:
        draft = self._draft
        name = self._take("model_name_or_path", "model_name", "model_id")
        config, kind = self._take("config_name"), self._take("model_type")
        if name is None and (config or kind):
            draft.set("model.from_config", value=True)
        model = name or config or kind or known.MODELS.get(self._call.script)
        if not isinstance(model, str):
            draft.must("model.id", "the command names no model; put its Hub id in place of this one")
            model = "bert-base-uncased"
        elif config and name and config != name:
            draft.drop("--config_name", "weights and config of two models", config)
        if model.endswith(".json"):  # a config.json
            model = str(PurePosixPath(model).parent)
        if model.startswith(("/", ".", "~")):
            draft.set("model.path", model)
            draft.relative("--model_name_or_path", model)
        else:
            draft.set("model.id", model)
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

    def _training(self) -> None:
        draft, script = self._draft, self._call.script
        for name, value in known.DEFAULTS.get(script, {}).items():
            draft.set(f"training.{name}", value)
            draft.assumed.add(f"training.{name}")
        if self._flag("adafactor"):  # TrainingArguments has it win over --optim
            self._left["optim"] = "adafactor"
        if script in known.DYNAMIC and not {"max_seq_length", "max_length"} & self._left.keys():
            draft.drop("--max_seq_length", "it is not said: the script fills each batch up to its longest text")
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
        self._schedule()
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

    def _schedule(self) -> None:
        """What goes by steps, in words that a recipe does not have."""
        draft, steps = self._draft, self._draft.get("training.max_steps")
        if (ratio := self._take("warmup_ratio")) is not None:
            share = plain_value(ratio)
            if isinstance(steps, int) and isinstance(share, int | float) and 0 <= share <= 1:
                draft.default("training.warmup_steps", math.ceil(steps * share))  # TrainingArguments.get_warmup_steps
            else:
                draft.drop("--warmup_ratio", "a recipe has training.warmup_steps: that share of all steps", ratio)
        for name in ("eval_steps", "save_steps", "logging_steps"):
            share = draft.get(f"training.{name}")
            if not isinstance(share, float) or not 0 < share < 1:
                continue
            if isinstance(steps, int):
                draft.set(f"training.{name}", math.ceil(steps * share))  # TrainerState.compute_steps
                continue
            del draft.fields["training"][name]
            draft.drop(f"--{name}", "a recipe counts steps; this is a share of all, of which the call says none", share)
            if draft.get(f"training.{name.replace('_steps', '_strategy')}") == "steps":
                draft.set(f"training.{name.replace('_steps', '_strategy')}", "epoch")
        if draft.get("training.save_steps") is not None:
            draft.default("training.save_strategy", "steps")  # as TrainingArguments has it

    def _argument(self, given: str, name: str, value: Any) -> None:
        draft = self._draft
        plain = plain_value(value)
        if name in {"max_steps", "save_total_limit"} and isinstance(plain, int) and plain < 0:
            return  # the script's own way to say none
        if name == "warmup_steps" and isinstance(plain, float) and plain < 1:
            draft.drop(f"--{given}", "a recipe counts warm-up in steps, not as a share of them", value)
            return
        if name == "optim" and str(plain).startswith("adamw") and plain not in {"adamw_torch", "adamw_torch_fused"}:
            how = "which keeps its state in 32 bits" if "8bit" in plain else "the same update in another implementation"
            draft.drop(f"--{given}", f"adamw_torch in its place: {how}", value)
            plain = "adamw_torch"
        if name == "eval_strategy" and plain == "steps":
            steps = self._call.arguments.get("eval_steps") or self._call.arguments.get("logging_steps") or 500
            draft.default("training.eval_steps", plain_value(steps))
        if name in {"max_seq_length", "max_target_length"} and isinstance(plain, int) and plain < 0:
            return
        if name == "save_steps" and isinstance(plain, int) and plain <= 0:
            draft.set("training.save_strategy", "no")  # as DefaultFlowCallback has it
            return
        draft.set(f"training.{name}", plain)
        draft.assumed.discard(f"training.{name}")

    def _precision(self) -> None:
        draft, given = self._draft, self._left
        if "bf16" in given:
            draft.set("training.bf16", is_true(self._take("bf16")))
        if self._flag("fp16"):
            draft.default("training.bf16", "auto")
            draft.drop("--fp16", "bf16 where the device has it: no device here trains in fp16")

    def _launch(self) -> None:
        """What stood before the script."""
        draft = self._draft
        arguments, _ = options_of([word for word in self._call.launch if word not in {"-m", "-u"}])
        options = {name: value for name, value in arguments.items() if value is not ...}
        if (kind := options.pop("mixed_precision", None)) in {"bf16", "no"}:  # of `accelerate launch`
            draft.default("training.bf16", kind == "bf16")
        elif kind is not None:
            draft.default("training.bf16", "auto")
            draft.drop("--mixed_precision", "bf16 where the device has it: no device here trains in fp16", kind)
        groups = 1
        for name, field_name in known.PARALLEL.items():
            if (value := plain_value(self._take(name))) is not None:
                draft.set(f"parallel.{field_name}", value)
                groups *= value if isinstance(value, int) and field_name != "zero_1" else 1
        workers = plain_value(next((options[name] for name in known.WORKERS if name in options), None))
        nodes = plain_value(next((options[name] for name in ("nnodes", "num_machines") if name in options), None))
        if isinstance(nodes, int) and nodes > 1:
            draft.set("parallel.nodes", nodes)
            if "num_processes" in options and isinstance(workers, int) and workers % nodes == 0:
                workers //= nodes  # `accelerate launch` counts those of all machines
        elif isinstance(nodes, str) and "$" not in nodes:  # `2:4`
            draft.drop("--nnodes", "a recipe has one number of nodes, parallel.nodes", nodes)
        if isinstance(workers, int) and workers % groups == 0 and workers > 1:
            draft.set("parallel.data_parallel_size", workers // groups)
        elif workers is not None and workers != 1:
            draft.drop(
                "--nproc_per_node", "all the cores of the machine, which is what a recipe does by itself", workers
            )
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
