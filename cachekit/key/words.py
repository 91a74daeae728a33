"""Differences between two keys as people are told of them: in words, and what only follows from another beside that.

Some fields of a recipe are two ingredients, or more: the evaluation batch is the training batch where nobody says
otherwise, another model has another config, LoRA brings its own settings. Then one change leads, and the others are
named with it. Nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from cachekit.key.canonical import ABSENT, SIDES, Change, is_hashed, same
from cachekit.key.nearest import INTERRUPTED

# Sentences of a compiler about an ingredient that differs, see `Adapter.explain`: its name, both values, both sides.
Explain = Callable[[str, Any, Any, tuple[str, str]], list[str]]

TRAIN_BATCH, EVAL_BATCH = "training.per_device_train_batch_size", "training.per_device_eval_batch_size"
LORA = "training.lora"


class Told(Change, frozen=True):
    """A change as people are told of it, and the changes that follow from it.

    Attributes:
        words: What it means, a sentence each; none where the values speak for themselves.
        follows: What changed because of it.
    """

    words: tuple[str, ...] = ()
    follows: tuple[Change, ...] = ()


def told(changes: Iterable[Change], explain: Explain, sides: tuple[str, str] = SIDES) -> tuple[Told, ...]:
    """Changes as people are told of them, in the order of their names.

    Args:
        changes: From the one set of ingredients to the other; see `key.difference`.
        explain: Says what the compiler knows of a change.
        sides: What to call the two.
    """
    left = {change.name: change for change in changes}
    found: list[Told] = []
    for name, follow in _LEADERS:
        lead = left.get(name)
        if lead is None:
            continue
        others = tuple(change for change in left.values() if change is not lead and follow(lead, change))
        if others or name != LORA:
            left = {key: change for key, change in left.items() if change is not lead and change not in others}
            found.append(Told(lead.name, lead.old, lead.new, words_of(lead, explain, sides), others))
    found += [Told(change.name, change.old, change.new, words_of(change, explain, sides)) for change in left.values()]
    return tuple(sorted(found, key=lambda one: one.name))


# What follows from what


def _of(*beginnings: str) -> Callable[[Change, Change], bool]:
    return lambda _lead, change: change.name.startswith(beginnings)


def _one_sided(change: Change) -> bool:
    return change.old is ABSENT or change.new is ABSENT


def _of_task(_lead: Change, change: Change) -> bool:
    """A task reads fields that others do not have."""
    return _one_sided(change) and change.name.startswith(("training.", "data.", "model.num_labels", "toolchain.peft"))


def _of_lora(_lead: Change, change: Change) -> bool:
    return change.name.startswith(f"{LORA}.") or (change.name == "toolchain.peft" and _one_sided(change))


def _of_device(_lead: Change, change: Change) -> bool:
    """Another device: what it has, and what drives only it."""
    return change.name.startswith("target.") or (change.name == "toolchain.triton" and _one_sided(change))


def _of_batch(lead: Change, change: Change) -> bool:
    """The evaluation batch of a recipe that says none is its training batch."""
    return change.name == EVAL_BATCH and same(lead.old, change.old) and same(lead.new, change.new)


def _of_image(lead: Change, change: Change) -> bool:
    return change.name == "training.image_size" and not _one_sided(change) and not _one_sided(lead)


def _of_layout(lead: Change, change: Change) -> bool:
    """`data_parallel_size: auto` is what the other sizes leave of a machine's workers."""
    if change.name != "parallel.data_parallel_size" or _one_sided(change) or _one_sided(lead):
        return False
    numbers = lead.old, lead.new, change.old, change.new
    return all(isinstance(number, int) for number in numbers) and lead.old * change.old == lead.new * change.new


_LEADERS: tuple[tuple[str, Callable[[Change, Change], bool]], ...] = (
    ("compiler.name", _of("compiler.", "toolchain.", "target.", "parallel.data_parallel_size")),
    ("task", _of_task),
    ("model.type", _of("model.config.")),
    (LORA, _of_lora),
    ("target.machine", _of_device),
    ("target.gpu", _of_device),
    ("target.chip", _of_device),
    (TRAIN_BATCH, _of_batch),
    ("model.config.image_size", _of_image),
    ("parallel.tensor_parallel_size", _of_layout),
    ("parallel.pipeline_parallel_size", _of_layout),
)


# What one change means

# By name; what stands here needs no more than to be named in the words of people.
_MEANING = {
    "compiler.constant_rate": "training.learning_rate: XLA writes a rate of exactly 0 or 1 into the graph",
    "compiler.first_rate_zero": "training.warmup_steps: its first step has rate 0, which is another graph",
    "compiler.name": "no artifact is shared by two compilers",
    "compiler.threads": "threads of the code: compiler.options.threads, OMP_NUM_THREADS, or the host's CPUs",
    "compiler.without_device": "graphs were compiled and not run: the host had no device",
    "data.num_choices": "choices per row",
    "model.num_labels": "classes of the model's head: data.labels",
    "model.type": "another architecture; what differs in its config comes with it",
    "parallel.data_parallel_size": "workers on a node",
    "parallel.nodes": "machines that train together",
    "target.compute_capability": "the GPU's generation",
    INTERRUPTED: "this record is of a run that was stopped before everything had compiled",
    "target.gpu": "another GPU",
    "target.chip": "another accelerator",
    "target.lnc": "physical cores to a logical one",
    "target.isa": "instruction sets that the code may use",
    "target.libc": "the C library that the code is linked to",
    "target.machine": "another kind of processor",
    "task": "another task: other inputs, and another head",
    "toolchain.cxx": "the C++ compiler that builds the kernels",
    "training.gradient_accumulation_steps": "batches per optimizer step",
    "training.gradient_checkpointing": "whether activations are computed again in the backward pass",
    "training.image_size": "pixels per side",
    "training.lora": "LoRA, on or off",
    "training.max_grad_norm": "where gradients are clipped; 0 means never",
    "training.max_seq_length": "tokens per row: each length needs its own graph",
    "training.max_target_length": "tokens per output text: each length needs its own graph",
    "training.optim": "the optimizer: its step is a graph",
    "training.per_device_eval_batch_size": "rows per evaluation step, on each device",
    "training.per_device_train_batch_size": "rows per training step, on each device",
    "training.precision": "the type that numbers are computed in: training.bf16",
    "worker": "cachekit's own worker: a later cachekit makes other graphs",
}
# By how the name begins.
_KINDS = {
    "command.code.": "the content of a script",
    "command.settings.": "the content of a file that an argument names",
    "compiler.environment.": "a variable of this shell, which the compiler reads",
    "compiler.options.": "an option of the compiler",
    "environment.": "a variable of the recipe's environment",
    "model.config.": "a field of the model's config",
    "training.lora.": "a setting of LoRA",
}
_DTYPES = {"model.config.dtype", "model.config.torch_dtype"}


def words_of(change: Change, explain: Explain, sides: tuple[str, str] = SIDES) -> tuple[str, ...]:
    """Sentences about one change; none where its values speak for themselves.

    Args:
        change: The change.
        explain: Says what the compiler knows of it.
        sides: What to call the old and the new.
    """
    if is_hashed(change.old) or is_hashed(change.new):
        return (f"{change.name.rpartition('.')[2]} (value not shown) differs",)
    said = explain(change.name, change.old, change.new, sides)
    if said:
        return tuple(said)
    if change.name in _DTYPES:
        said.append("the type of the model's weights")
    elif change.name in _MEANING:
        said.append(_MEANING[change.name])
    else:
        said += [meaning for beginning, meaning in _KINDS.items() if change.name.startswith(beginning)]
    if change.name.startswith("toolchain.") and isinstance(change.old, str) and isinstance(change.new, str):
        said.append(_versions(change.old, change.new))
    if isinstance(change.old, list) and isinstance(change.new, list):
        said += _members(change.old, change.new, sides)
    return tuple(filter(None, said))


_NUMBERS = re.compile(r"(?:.*?\s)?v?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_STEPS = ("a major version", "a minor version", "a patch")


def _versions(old: str, new: str) -> str:
    """How far apart two versions are: `a minor version newer`."""
    if not old or not new:
        return ""
    one, two = _NUMBERS.fullmatch(old), _NUMBERS.fullmatch(new)
    if one is None or two is None:
        return ""
    before, after = ([int(number) for number in match[1].split(".")[:6]] for match in (one, two))
    size = max(len(before), len(after))
    before, after = (numbers + [0] * (size - len(numbers)) for numbers in (before, after))
    if before == after:
        return "the same version, another build"
    place = next(number for number, (x, y) in enumerate(zip(before, after, strict=True)) if x != y)
    step = _STEPS[min(place, len(_STEPS) - 1)]
    return f"{step} {'newer' if after > before else 'older'}"


def _members(old: list[Any], new: list[Any], sides: tuple[str, str]) -> list[str]:
    gone = [str(item) for item in old if item not in new]
    come = [str(item) for item in new if item not in old]
    if not gone and not come:
        return ["the order differs" if len(old) == len(new) else "repeats differ"]
    said = []
    if gone:
        said.append(f"only {sides[0]} has {', '.join(gone)}")
    if come:
        said.append(f"only {sides[1]} has {', '.join(come)}")
    return said
