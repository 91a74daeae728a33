"""Differences between two keys as people are told of them: in words, and what only follows from another beside that.

Some fields of a recipe are two ingredients, or more: the evaluation batch is the training batch where nobody says
otherwise, another model has another config, LoRA brings its own settings. Then one change leads, and the others are
named with it. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cachekit.compilers.explain import SIDES
from cachekit.key.canonical import ABSENT, Change, canonical_or_absent
from cachekit.verbs.change_words import words_of

TRAIN_BATCH, EVAL_BATCH = "training.per_device_train_batch_size", "training.per_device_eval_batch_size"
LORA = "training.lora"


@dataclass(frozen=True, slots=True)
class Told:
    """One change, and those that follow from it.

    Attributes:
        change: The one that leads.
        words: What it means, a sentence each; none where the values speak for themselves.
        follows: What changed because of it.
    """

    change: Change
    words: tuple[str, ...]
    follows: tuple[Change, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For programs; a side that lacks the ingredient is left out."""
        return {**_sides(self.change), "words": list(self.words), "follows": [_sides(other) for other in self.follows]}


def _sides(change: Change) -> dict[str, Any]:
    known = {"old": change.old, "new": change.new}
    return {"name": change.name, **{side: value for side, value in known.items() if value is not ABSENT}}


def told(changes: Iterable[Change], compiler: str = "", sides: tuple[str, str] = SIDES) -> tuple[Told, ...]:
    """Changes as people are told of them, in the order of their names.

    Args:
        changes: From the one set of ingredients to the other; see `key.difference`.
        compiler: Whose words are used for flags.
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
            found.append(Told(lead, words_of(lead, compiler, sides), others))
    found += [Told(change, words_of(change, compiler, sides)) for change in left.values()]
    return tuple(sorted(found, key=lambda one: one.change.name))


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


def _equal(one: Any, other: Any) -> bool:
    return canonical_or_absent(one) == canonical_or_absent(other)


def _of_batch(lead: Change, change: Change) -> bool:
    """The evaluation batch of a recipe that says none is its training batch."""
    return change.name == EVAL_BATCH and _equal(lead.old, change.old) and _equal(lead.new, change.new)


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
