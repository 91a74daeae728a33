"""How long a compile will take: what the same job took, else what the nearest ones took, scaled by their shapes.

Nothing is guessed from afar: beyond both another family and another chip, or where the shapes differ by too much, no
record answers. Neither numpy nor torch is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from cachekit.key.canonical import difference
from cachekit.key.nearest import INTERRUPTED

FARTHEST = 8.0  # a scale beyond this factor, or below its inverse, is a guess
ASKED = 32  # records, the nearest ones, among which those are sought that are not too far away
TAKEN = 3  # of these, as far as they differ in the same kinds of things: compiles scatter, their mean does less

# By how much an estimate is off, four times out of five, as a factor; what differs widens the range.
SAME = 1.3  # the same compile twice: machines are busy
_WIDER = {"version": 1.3, "shape": 1.2, "family": 1.4, "chip": 1.3}
# Of a published figure, for another family: with the factors above it makes six. Figures of different kinds of jobs
# differ by two to nine once they are scaled to each other, the two of BERT by 1.2.
_AFAR = 3.0

_CHIP = ("target.chip", "target.machine")
_WIDTH = ("hidden_size", "d_model", "n_embd", "dim", "hidden_dim")
_DEPTH = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
_PATCH = 16  # pixels a side, where a config does not say: a convolution's last stage sees as much


class Growth(Struct, frozen=True):
    """How a compiler's seconds grow with what shapes a job.

    Attributes:
        layers: What a compile takes beside its layers, in layers: seconds grow as `layers + this`.
        tokens: The power with which seconds grow with the tokens of a batch.
        width: Likewise with the width of a layer.
        source: Where these numbers come from.
    """

    layers: float
    tokens: float
    width: float
    source: str


class Timed(Struct, frozen=True):
    """A job that was compiled; see `store.record.Record` for the fields.

    Attributes:
        seconds: What compiling all of it took.
        spread: By what factor that may be off.
    """

    key: str
    recipe: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]
    seconds: float
    spread: float = SAME


class Expected(Struct, frozen=True):
    """How long compiling will take.

    Attributes:
        seconds: The most likely.
        low: Nine of ten compiles take longer.
        high: And nine of ten less.
        method: `measured` by the same job, `scaled` from the nearest one, or `published` by somebody else.
        source: The nearest one's recipe and compiler version; or who published it, when, and of which machine.
        key: Of its record; empty where it was published.
        differs: In what the job differs from the one that a published figure was scaled from, in words.
    """

    seconds: float
    low: float
    high: float
    method: Literal["measured", "scaled", "published"]
    source: str
    key: str = ""
    differs: tuple[str, ...] = ()


def expected(
    directory: str,
    model_type: str,
    hard: Mapping[str, Any],
    known: Iterable[Timed],
    growth: Growth,
    *,
    usable: Callable[[Timed], bool] = lambda _: True,
) -> Expected | None:
    """Tell how long a job compiles; None where nothing near enough is known.

    Args:
        directory: Of the compiler that would compile it.
        model_type: Its family.
        hard: Its ingredients.
        known: Jobs of the same compiler: those that differ in nothing but the toolchain, then the nearest first.
        growth: Of the compiler.
        usable: Whether one may be used, asked of those alone by which it is told.
    """
    found: list[tuple[float, Timed]] = []
    widest = 0.0
    for one in known:
        same = all(change.name.startswith("toolchain.") for change in difference(one.hard, hard))
        family = one.model_type != model_type
        chip = any(one.hard.get(name) != hard.get(name) for name in _CHIP)
        scale = 1.0 if same else _scale(one.hard, hard, growth)
        part = INTERRUPTED in one.hard
        if one.seconds <= 0 or part or (family and chip) or not 1 / FARTHEST <= scale <= FARTHEST:
            continue
        differs = {"version": one.directory != directory, "shape": not same, "family": family, "chip": chip}
        spread = one.spread * math.prod(_WIDER[name] for name, it_does in differs.items() if it_does)
        if (found and not same and spread != widest) or not usable(one):
            continue
        if same:
            return _told(one.seconds, spread, "measured", f"{one.recipe}, {one.directory}", one.key)
        found.append((one.seconds * scale, one))
        widest = spread
        if len(found) == TAKEN:
            break
    if not found:
        return None
    middle = math.exp(sum(math.log(seconds) for seconds, _ in found) / len(found))
    nearest = found[0][1]
    return _told(middle, widest, "scaled", f"{nearest.recipe}, {nearest.directory}", nearest.key)


def published(model_type: str, hard: Mapping[str, Any], known: Iterable[Timed], growth: Growth) -> Expected | None:
    """Tell how long a job compiles by what others published, which is little: the nearest, however far away it is.

    Args:
        model_type: Its family.
        hard: Its ingredients.
        known: What others compiled; in `recipe` who says so. Their ingredients need only have sizes and chip. What else
            they name is what the source says of the job: a version may be the beginning of one.
        growth: Of the compiler.

    Returns:
        The figure itself for the job that it was published for, which differs in nothing that the source says; else
        scaled, with a range that grows with what differs, from the nearest figure of a job of the same kind: its family
        before its chip, and that before its size. Where nobody published any of that kind, the range over all of them.
        None where nobody published anything.
    """
    alike: list[tuple[bool, bool, float, Expected]] = []
    every: list[Expected] = []
    for one in known:
        factors = [*_factors(one.hard, hard, growth)]
        family = one.model_type != model_type
        chip = any(one.hard.get(name) != hard.get(name) for name in _CHIP if name in one.hard)
        differs = _differs(model_type, hard, one)
        if not differs:
            return _told(one.seconds, one.spread, "published", one.recipe)
        spread = SAME * _WIDER["version"] * _WIDER["shape"] * (_WIDER["chip"] if chip else 1.0)
        seconds = one.seconds * math.prod(factors)
        every.append(_told(seconds, max(one.spread, spread), "scaled", one.recipe))
        if kind(one.hard) == kind(hard):
            told = _told(seconds, max(one.spread, spread * (_AFAR if family else 1.0)), "scaled", one.recipe)
            far = sum(abs(math.log(factor)) for factor in factors)
            alike.append((family, chip, far, structs.replace(told, differs=differs)))
    if alike:
        return min(alike, key=lambda nearest: nearest[:3])[3]
    return _over(every) if every else None


def _differs(model_type: str, hard: Mapping[str, Any], one: Timed) -> tuple[str, ...]:
    """In what a job differs from one that somebody published a figure of, in words; what is not known does not."""
    said: dict[str, None] = {}
    if one.model_type != model_type:
        said[f"{model_type} instead of {one.model_type}"] = None
    for name, theirs in one.hard.items():
        ours = hard.get(name, theirs)
        if ours == theirs or (name.startswith("toolchain.") and f"{ours}.".startswith(f"{theirs}.")):
            continue
        if not name.startswith("model.config."):
            said[f"{name.removeprefix('toolchain.')} {ours} instead of {theirs}"] = None
        elif one.model_type == model_type:
            said["the model's sizes"] = None
    return tuple(said)


def _over(figures: list[Expected]) -> Expected:
    """All of them in one range."""
    least = min(figures, key=lambda one: one.low)
    most = max(figures, key=lambda one: one.high)
    sources = " and ".join(dict.fromkeys((least.source, most.source)))
    said = f"{sources}, as nobody has published one of such a job"
    return Expected(round(math.sqrt(least.low * most.high), 3), least.low, most.high, "scaled", said)


def kind(hard: Mapping[str, Any]) -> str:
    """What a job trains, of which graphs are alike: by the fields of `training` that only some tasks have."""
    if "training.image_size" in hard:
        return "images"
    if "training.max_target_length" in hard:
        return "encoder and decoder"
    if any(name.startswith("training.lora.") for name in hard):
        return "LoRA of a decoder"
    return "decoder" if "training.lora" in hard else "encoder"


def _told(
    seconds: float, spread: float, method: Literal["measured", "scaled", "published"], source: str, key: str = ""
) -> Expected:
    return Expected(round(seconds, 3), round(seconds / spread, 3), round(seconds * spread, 3), method, source, key)


def _scale(old: Mapping[str, Any], new: Mapping[str, Any], growth: Growth) -> float:
    """By what the seconds of one job are multiplied for another."""
    return math.prod(_factors(old, new, growth))


def _factors(old: Mapping[str, Any], new: Mapping[str, Any], growth: Growth) -> Iterator[float]:
    """That of depth, tokens and width; a measure that one of the jobs lacks says nothing."""
    if (before := layers(old)) and (after := layers(new)):
        yield (after + growth.layers) / (before + growth.layers)
    if (before := tokens(old)) and (after := tokens(new)):
        yield (after / before) ** growth.tokens
    if (before := _width(old)) and (after := _width(new)):
        yield (after / before) ** growth.width


def layers(hard: Mapping[str, Any]) -> float | None:
    """The depth of a model, by whatever name its family has for it; None where the ingredients do not tell."""
    config = "model.config."
    encoder, decoder = (_number(hard.get(f"{config}{half}_layers")) for half in ("encoder", "decoder"))
    if encoder and decoder:
        return encoder + decoder
    plain = _first(hard, _DEPTH)
    if f"{config}num_decoder_layers" in hard and plain:
        return plain + (_number(hard[f"{config}num_decoder_layers"]) or plain)
    if hard.get("model.type") == "t5" and plain:  # without a number of its own the decoder is as deep
        return 2 * plain
    return plain or _sum(hard.get(f"{config}depths")) or _sum(hard.get(f"{config}num_block_repeats"))


def tokens(hard: Mapping[str, Any]) -> float | None:
    """The tokens of a batch, an image counted in patches; None where the ingredients do not tell."""
    batch = _number(hard.get("training.per_device_train_batch_size"))
    if side := _number(hard.get("training.image_size")):
        patch = _number(hard.get("model.config.patch_size")) or _PATCH
        length = max(1.0, (side / patch) ** 2)
    else:
        read = (_number(hard.get(f"training.{name}")) for name in ("max_seq_length", "max_target_length"))
        length = sum(number for number in read if number)
    return batch * length if batch and length else None


def _width(hard: Mapping[str, Any]) -> float | None:
    stages = hard.get("model.config.hidden_sizes")
    return _first(hard, _WIDTH) or (_number(stages[-1]) if isinstance(stages, list) and stages else None)


def _first(hard: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((number for name in names if (number := _number(hard.get(f"model.config.{name}")))), None)


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if known else None


def _sum(value: Any) -> float | None:
    numbers = [_number(item) for item in value] if isinstance(value, list) else []
    return sum(number for number in numbers if number) or None
