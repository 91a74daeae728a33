"""The example scripts of Transformers: `python run_glue.py --model_name_or_path … --task_name mrpc`."""

from __future__ import annotations

import math
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

from cachekit.disk import named
from cachekit.errors import RecipeError
from cachekit.recipe import placeholder, tasks
from cachekit.recipe.convert.command import PASTE, Command, options_in, options_of, repeated
from cachekit.recipe.convert.draft import UNKNOWN, RecipeDraft
from cachekit.recipe.convert.rows import read_rows
from cachekit.recipe.convert.tables import tables
from cachekit.recipe.convert.tree import Tree, is_true, plain
from cachekit.recipe.schema import Training
from cachekit.recipe.synonyms import SYNONYMS

NO_FP16 = "bf16 where the device has it: no device here trains in fp16"
_TRAINING = frozenset(Training.__struct_fields__) - {"lora", "bf16", "output_dir"}
_LENGTHS = ("max_seq_length", "max_length")
_WEIGHTS = ("model_name_or_path", "model_name", "model_id")


def convert(commands: list[Command], name: str, folder: Path) -> RecipeDraft:
    """Make a draft of the first training among calls of scripts.

    Raises:
        RecipeError: Recipes have no task for any of them, the first cannot be read as it stands, or a file of arguments
            cannot be read.
    """
    known = tables().examples.scripts
    useful = [command for command in commands if command.script in known]
    if not useful:
        raise RecipeError(
            f"recipes have no task for {commands[0].script}.py",
            cause=f"tasks are {', '.join(tasks.TASKS)}",
            hint=f"known scripts: {', '.join(f'{script}.py' for script in known)}",
        )
    # Before a training often comes the same with a few steps, only to compile; that is what `warm` is for.
    chosen = next((command for command in useful if not command.only_compiles), useful[0])
    chosen.check()
    given, loose = options_of(chosen.words)
    if chosen.file:
        given, loose = options_in(folder / named(chosen.file)), []
    draft = RecipeDraft(name, f"a call of {chosen.script}.py", known[chosen.script].task)
    for command in commands:
        if command.only_compiles:
            draft.drop(f"line {command.line}, neuron_parallel_compile", "`cachekit warm` compiles beforehand")
        elif command is not chosen:
            draft.drop(f"line {command.line}, {command.script}.py", "another call; a recipe is one fine-tune")
    for option in sorted(repeated(chosen.words)):
        draft.drop(f"--{option}", "given twice; the last one counts, as it does for the script")
    for word in loose:
        draft.drop(word, "this word is not an option, and what the script does with such words is not known")
    options = Tree(given)
    _model(draft, chosen, options)
    read_rows(draft, chosen.script, options)
    _training(draft, chosen, options)
    _launch(draft, chosen, options)
    _environment(draft, chosen)
    _leave(draft, options)
    return draft


def _leave(draft: RecipeDraft, options: Tree) -> None:
    """Note the options that nothing took."""
    known = tables().examples
    tested = draft.get("data.test_split") or draft.get("data.test_file")
    for name, value in options.left():
        if name not in known.needless and not (name == "do_predict" and tested):
            draft.drop(f"--{name}", known.reasons.get(name, UNKNOWN), None if value is True else value)


def _model(draft: RecipeDraft, command: Command, options: Tree) -> None:
    name, config, kind = options.take(*_WEIGHTS), options.take("config_name"), options.take("model_type")
    if name is None and (config or kind):
        draft.set("model.from_config", value=True)
    model = name or config or kind or tables().examples.scripts[command.script].model
    if not isinstance(model, str) or not model:
        draft.must("model.id", "the command names no model; put its Hub id in place of this one")
        model = "bert-base-uncased"
    elif config and name and config != name:
        draft.drop("--config_name", "the weights are another model's", config)
    if model.endswith(".json"):  # a config.json
        model = str(PurePosixPath(model).parent)
    if model.startswith(("/", ".", "~")):
        draft.set("model.path", model)
        draft.relative("--model_name_or_path", model)
    else:
        draft.set("model.id", model)
    revision = options.take("model_revision")
    draft.set("model.revision", None if revision in {None, "main", True} else str(revision))
    tokenizer = options.take("tokenizer_name")
    if tokenizer and tokenizer != model:
        draft.set("model.tokenizer", tokenizer)
    if overrides := options.take("config_overrides"):
        pairs = dict(pair.partition("=")[::2] for pair in str(overrides).split(","))
        draft.set("model.config", {key: plain(value) for key, value in pairs.items()})


def _training(draft: RecipeDraft, command: Command, options: Tree) -> None:
    known = tables().examples
    script = known.scripts[command.script]
    for name, value in script.training.items():
        draft.set(f"training.{name}", value)
        draft.assumed.add(f"training.{name}")
    if script.dynamic and options.look(*_LENGTHS) is None:
        draft.drop(
            "--max_seq_length",
            "not given: the script pads each batch to its longest text, a recipe every batch to one length",
        )
    names = {**SYNONYMS["training"], **known.training}
    if options.flag("adafactor"):  # TrainingArguments has it win over --optim
        options.take("optim")
        draft.set("training.optim", "adafactor")
    for given, value in options.left():
        meant = names.get(given, given)
        if meant in _TRAINING and not (meant == "max_seq_length" and draft.task == "image-classification"):
            options.take(given)
            _argument(draft, meant, plain(value))
    if options.has("bf16"):
        draft.set("training.bf16", options.flag("bf16"))
    if options.flag("fp16"):
        draft.default("training.bf16", "auto")
        draft.drop("--fp16", NO_FP16)
    if (folder := options.take("output_dir")) is not None:
        draft.drop("--output_dir", "say it when training: cachekit train --output-dir; runs/NAME by default", folder)
    _schedule(draft, options)
    lora = {field: plain(options.take(given)) for given, field in known.lora.items() if options.has(given)}
    if lora or options.flag("use_lora") or options.flag("use_peft"):
        draft.set("training.lora", lora)


def _argument(draft: RecipeDraft, name: str, value: Any) -> None:
    """Set a field of `training` from the argument of the same meaning."""
    less_than_none = isinstance(value, int) and value < 0
    if name in {"max_steps", "save_total_limit", "max_seq_length", "max_target_length"} and less_than_none:
        return  # the script's own way to say none
    if name == "save_steps" and isinstance(value, int) and value <= 0:
        draft.set("training.save_strategy", "no")  # as DefaultFlowCallback has it
        return
    draft.set(f"training.{name}", value)
    draft.assumed.discard(f"training.{name}")


def _schedule(draft: RecipeDraft, options: Tree) -> None:
    """What goes by steps, as TrainingArguments has it."""
    steps, share = draft.get("training.max_steps"), plain(options.look("warmup_ratio"))
    if isinstance(steps, int) and isinstance(share, int | float) and 0 <= share <= 1:
        options.take("warmup_ratio")
        draft.default("training.warmup_steps", math.ceil(steps * share))  # TrainingArguments.get_warmup_steps
    if draft.get("training.eval_strategy") == "steps":
        draft.default("training.eval_steps", plain(options.look("logging_steps")) or 500)
    if draft.get("training.save_steps") is not None:
        draft.default("training.save_strategy", "steps")
    for name in ("eval_steps", "save_steps", "logging_steps"):
        share = draft.get(f"training.{name}")
        if isinstance(steps, int) and isinstance(share, float) and 0 < share < 1:
            draft.set(f"training.{name}", math.ceil(steps * share))  # TrainerState.compute_steps


def _launch(draft: RecipeDraft, command: Command, options: Tree) -> None:
    """Fill in what stood before the script, and the layout."""
    known = tables().examples
    launcher = Tree(options_of([word for word in command.launch if word not in {"-m", "-u"}])[0])
    kind = launcher.take("mixed_precision")
    if kind in {"bf16", "no"}:  # of `accelerate launch`
        draft.default("training.bf16", kind == "bf16")
    elif kind is not None:
        draft.default("training.bf16", "auto")
        draft.drop("--mixed_precision", NO_FP16, kind)
    groups = 1
    for given, field in known.parallel.items():
        if (value := plain(options.take(given))) is not None:
            draft.set(f"parallel.{field}", value)
            groups *= value if isinstance(value, int) and value > 0 and field != "zero_1" else 1
    counts_all = launcher.has("num_processes")  # of `accelerate launch`: the workers of all machines
    workers, nodes = plain(launcher.take(*known.workers)), plain(launcher.take("nnodes", "num_machines"))
    if nodes not in {None, 1}:
        draft.set("parallel.nodes", nodes)
    if counts_all and isinstance(nodes, int) and nodes > 0 and isinstance(workers, int) and workers % nodes == 0:
        workers //= nodes
    if isinstance(workers, int) and workers > 1 and workers % groups == 0:
        draft.set("parallel.data_parallel_size", workers // groups)
    elif workers is not None and workers != 1:
        draft.drop("--nproc_per_node", "a recipe uses all cores of the machine by default", workers)
    for name, value in launcher.left():
        if name not in known.meeting:
            why = "the launcher's; cachekit starts workers itself"
            draft.drop(f"--{name}", why, None if value is True else value)


def _environment(draft: RecipeDraft, command: Command) -> None:
    known = tables().examples
    for name, value in command.variables.items():
        if name in known.environment_ours:
            draft.drop(name, known.environment_ours[name], value)
        elif not name.startswith(known.environment):
            draft.drop(name, "a variable that is not known to reach the training; add it to environment", value)
        else:
            placeholder.refuse([(name, value)], f"the environment of {command.script}.py", PASTE)
            if name == "NEURON_CC_FLAGS":
                _flags(draft, value)
            elif name not in {"XLA_USE_BF16", "XLA_DOWNCAST_BF16"}:
                draft.environment[name] = value
            elif is_true(value):
                draft.default("training.bf16", value=True)
                draft.drop(name, "training.bf16 says so: by autocast, with weights in 32 bits", value)


def _flags(draft: RecipeDraft, text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept, rest = [], iter(words)
    for word in rest:
        if word.partition("=")[0] in {"--cache_dir", "--no_cache", "--dump"}:
            value = "" if "=" in word or word == "--no_cache" else next(rest, "")
            draft.drop(f"NEURON_CC_FLAGS {word}", "cachekit says where the cache is", value or None)
        else:
            kept.append(word)
    if kept:
        draft.set("compiler.name", "neuron")
        draft.set("compiler.flags", kept)
