"""What a changed ingredient means, in words."""

from __future__ import annotations

import re
from typing import Any

from cachekit.compilers.explain import SIDES, explain
from cachekit.key.canonical import Change

# By name; what stands here needs no more than to be named in the words of people.
_MEANING = {
    "compiler.constant_rate": "training.learning_rate: XLA writes a rate of exactly 0 or 1 into the graph",
    "compiler.first_rate_zero": "training.warmup_steps: its first step has rate 0, which is another graph",
    "compiler.name": "no artifact is shared by two compilers",
    "compiler.threads": "threads of the code: compiler.options.threads, OMP_NUM_THREADS, or the host's CPUs",
    "data.num_choices": "choices a row has",
    "data.text_pair": "whether a row has a second text",
    "model.num_labels": "classes of the model's head: data.labels",
    "model.type": "another architecture; what differs in its config comes with it",
    "parallel.data_parallel_size": "workers on a node",
    "parallel.nodes": "machines that train together",
    "target.compute_capability": "the GPU's generation",
    "target.gpu": "another GPU",
    "target.chip": "another accelerator",
    "target.lnc": "physical cores to a logical one",
    "target.isa": "instruction sets that the code may use",
    "target.libc": "the C library that the code is linked to",
    "target.machine": "another kind of processor",
    "task": "another task: other inputs, and another head",
    "toolchain.cxx": "the C++ compiler that builds the kernels",
    "training.gradient_accumulation_steps": "batches to an optimizer step",
    "training.gradient_checkpointing": "whether activations are computed again in the backward pass",
    "training.image_size": "pixels a side",
    "training.lora": "LoRA, on or off",
    "training.max_grad_norm": "where gradients are clipped; 0 is never",
    "training.max_seq_length": "tokens a row: each length is a graph of its own",
    "training.max_target_length": "tokens of what comes out: each length is a graph of its own",
    "training.optim": "the optimizer: its step is a graph",
    "training.per_device_eval_batch_size": "rows to an evaluation step, on each device",
    "training.per_device_train_batch_size": "rows to a training step, on each device",
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


def words_of(change: Change, compiler: str = "", sides: tuple[str, str] = SIDES) -> tuple[str, ...]:
    """Sentences about one change; none where its values speak for themselves.

    Args:
        change: The change.
        compiler: Whose flags they are.
        sides: What to call the old and the new.
    """
    said = explain(compiler, change.name, change.old, change.new, sides)
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
