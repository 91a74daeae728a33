"""The example scripts of Transformers: `python run_glue.py --model_name_or_path … --task_name mrpc`.

Nothing is run, and nothing is filled in: a placeholder in the place of a value is refused.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from cachekit.decode import from_json
from cachekit.disk import named
from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.convert.draft import UNKNOWN, RecipeDraft, refuse_placeholders, slug
from cachekit.recipe.convert.rows import read_rows
from cachekit.recipe.convert.tables import Tree, is_true, plain, tables
from cachekit.recipe.field_names import SYNONYMS
from cachekit.recipe.load import read_text
from cachekit.recipe.schema import Training

PASTE = "paste the command line, with its values: cachekit zoo new -- torchrun ... run_glue.py ..."
LARGEST = 1 << 20  # bytes of a file of arguments
_SCRIPT = re.compile(r"^(run_[a-z0-9_]+?)(_no_trainer|_flax|_tf)?\.py$")
_OPTION = re.compile(r"--|-[a-z]")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Words that begin a command of a shell, and say whether or how often another one runs.
_DECIDES = frozenset(("if", "for", "while", "until", "select", "case", "function", "{", "!", "exit", "return", "eval"))
_OUTPUT = frozenset({"|", "|&", ">", ">>", "&>"})  # and what stands behind these is no argument
NO_FP16 = "bf16 where the device has it: no device here trains in fp16"
_TRAINING = frozenset(Training.__struct_fields__) - {"lora", "bf16", "output_dir"}
_LENGTHS = ("max_seq_length", "max_length")
_WEIGHTS = ("model_name_or_path", "model_name", "model_id")


class Command(Struct, frozen=True):
    """One call of an example script.

    Attributes:
        script: `run_glue`.
        launch: The words before the script.
        words: The words after it.
        variables: What is set for it, before its first word.
    """

    script: str
    launch: tuple[str, ...]
    words: tuple[str, ...]
    variables: dict[str, str]

    @property
    def file(self) -> str:
        """The file of JSON that stands in the place of arguments; else empty."""
        return self.words[0] if len(self.words) == 1 and self.words[0].endswith(".json") else ""


def read(words: Sequence[str]) -> Command | None:
    """The call in a command whose words a shell has split; None where it calls no example script."""
    for position, word in enumerate(words):
        script = _SCRIPT.match(PurePosixPath(word).name)
        after = tuple(words[position + 1 :])
        if script and after and "://" not in word:
            set_before = [one for one in words[:position] if _ASSIGNED.match(one) and not _OPTION.match(one)]
            launch = tuple(one for one in words[:position] if one not in set_before)
            variables = {match[1]: match[2] for match in map(_ASSIGNED.match, set_before) if match}
            return Command(script[1], launch, after, variables)
    return None


def in_script(text: str, file: str) -> list[str]:
    """The words of the one call that stands literally in a shell script, after what the script exports before it.

    Raises:
        RecipeError: Only a shell can tell what the script runs, or it calls no example script, or several.
    """
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))  # also between two arguments
    exported: list[str] = []
    calls: list[list[str]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        words = _words(line, file)
        signs = [word for word in words if set(word) <= set("();<>|&")]
        if decides := [word for word in (*words[:1], *signs) if word in _DECIDES or word in set(signs) - _OUTPUT]:
            raise _unread(file, f"{decides[0]!r} in it decides what runs")
        if words[:1] == ["export"]:
            exported += words[1:]
            continue
        command = list(takewhile(lambda word: word not in _OUTPUT, words))
        if read(command):
            calls.append([*exported, *command])
    if len(calls) != 1:
        has = f"{len(calls)} calls" if calls else "no call"
        raise _unread(file, f"it has {has} of an example script of Transformers (run_glue.py …), and one is needed")
    if any("`" in word for word in calls[0]):  # of which a shell makes other words
        raise _unread(file, "a value of the call is the output of another command")
    return calls[0]


def _unread(file: str, cause: str) -> RecipeError:
    return RecipeError(
        f"no recipe can be made from {file}", cause=f"cachekit runs no shell to read a script, and {cause}", hint=PASTE
    )


def _words(line: str, file: str) -> list[str]:
    """The words and operators of a line, without its comment."""
    lexer = shlex.shlex(line.replace("2>&1", ""), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(takewhile(lambda word: not word.startswith("#"), lexer))
    except ValueError as error:
        raise _unread(file, "the quotes of a line do not end there") from error


def convert(command: Command) -> RecipeDraft:
    """Make a draft of a call.

    Raises:
        RecipeError: Recipes have no task for the script, the call only compiles or has placeholders, or its file of
            arguments cannot be read.
    """
    known = tables().examples.scripts
    if command.script not in known:
        raise RecipeError(
            f"recipes have no task for {command.script}.py",
            cause=f"tasks are {', '.join(tasks.TASKS)}",
            hint=f"known scripts: {', '.join(f'{script}.py' for script in known)}",
        )
    given, loose = _checked(command)
    if command.file:
        given, loose = _options_in(Path.cwd() / named(command.file)), []
    draft = RecipeDraft(
        slug(command.script.removeprefix("run_")), f"a call of {command.script}.py", known[command.script].task
    )
    for option in sorted(_repeated(command.words)):
        draft.drop(f"--{option}", "given twice; the last one counts, as it does for the script")
    for word in loose:
        draft.drop(word, "this word is not an option, and what the script does with such words is not known")
    options = Tree(given)
    _model(draft, command, options)
    read_rows(draft, command.script, options)
    _training(draft, command, options)
    _launch(draft, command, options)
    _environment(draft, command)
    _leave(draft, options)
    return draft


def _checked(command: Command) -> tuple[dict[str, Any], list[str]]:
    """The options and loose words of a call, if it trains and has a value for each of them."""
    where = f"the call of {command.script}.py"
    if any(PurePosixPath(word).name == "neuron_parallel_compile" for word in command.launch):
        cause = "neuron_parallel_compile comes before the script: that call trains nothing"
        raise RecipeError(f"{where} cannot be turned into a recipe", cause=cause, hint=PASTE)
    given, loose = _options_of(command.words)
    launched, before = _options_of(command.launch)
    places = [(f"--{name}", value) for name, value in {**launched, **given}.items()]
    places += [("an argument", word) for word in (*before, *loose)]
    refuse_placeholders(places, where, PASTE)
    return given, loose


def _options_of(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Options and their values (True for one without), the last one of a name; and words of no option."""
    found: dict[str, Any] = {}
    loose: list[str] = []
    name = ""
    for word in words:
        if _OPTION.match(word):
            given, equals, value = word.lstrip("-").partition("=")
            name = given.replace("-", "_")
            found[name] = value if equals else True
            name = "" if equals else name
        elif not name:
            loose.append(word)
        elif found[name] is True:
            found[name] = word
        else:  # of a list
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), word]
    return found, loose


def _repeated(words: Sequence[str]) -> set[str]:
    """The names of options that stand twice."""
    names = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in words if _OPTION.match(word)]
    return {name for name in names if names.count(name) > 1}


def _options_in(file: Path) -> dict[str, Any]:
    """The same from a file of JSON, as `HfArgumentParser.parse_json_file` takes it: names and values.

    Raises:
        RecipeError: The file cannot be read, holds something else, or has placeholders.
    """
    try:
        document = from_json(read_text(file, LARGEST, "file of arguments"), dict[str, Any])
    except (RecipeError, msgspec.DecodeError, RecursionError) as error:
        raise RecipeError(
            f"the script takes its arguments from {file}, which cannot be read",
            cause=str(error),
            hint="write names and values there, as JSON",
        ) from error
    refuse_placeholders(document.items(), str(file), "replace the placeholders with values")
    return {str(name).replace("-", "_"): _word(value) for name, value in document.items() if value is not None}


def _word(value: Any) -> Any:
    """A value as options have it: words, or True."""
    if value is True or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [str(_word(one)) for one in value]
    return msgspec.json.encode(value).decode()


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
        draft.drop("--output_dir", "pass it to `cachekit train` as --output-dir; runs/NAME by default", folder)
    _schedule(draft, options)
    lora = {field: plain(options.take(given)) for given, field in known.lora.items() if options.has(given)}
    if lora or options.flag("use_lora") or options.flag("use_peft"):
        draft.set("training.lora", lora)


def _argument(draft: RecipeDraft, name: str, value: Any) -> None:
    """Set a field of `training` from the argument of the same meaning."""
    less_than_none = isinstance(value, int) and value < 0
    if name in {"max_steps", "save_total_limit", "max_seq_length", "max_target_length"} and less_than_none:
        return  # the script's own way to say none
    if name == "report_to":  # one name or several; `none` is what a recipe has by itself
        value = [tracker for tracker in (value if isinstance(value, list) else [value]) if tracker != "none"]
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
    launcher = Tree(_options_of([word for word in command.launch if word not in {"-m", "-u"}])[0])
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
            draft.drop(name, "a variable that is not known to affect the training; add it to environment", value)
        else:
            refuse_placeholders([(name, value)], f"the environment of {command.script}.py", PASTE)
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
