"""A machine of a training on several, as it tells the others of itself, and whether they can train together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from cachekit.errors import CachekitError, UsageError
from cachekit.key.canonical import ABSENT, difference
from cachekit.text import cut, first_of

LONGEST = 200  # characters of a name or a value that is shown


class Participant(Struct, frozen=True):
    """A machine, as it tells of itself; whoever says more than the limits is none.

    Attributes:
        rank: Its number.
        host: Its name.
        nodes: How many train together.
        mode: What it is about to run: `trial` or `train`.
        key: Of the record that it runs with.
        hard: What the key is made of.
        soft: What it trains by and no graph knows: the learning rate, the seed. Machines that differ there would each
            train a model of their own, and torch would not say so.
        resume: The name of the checkpoint from which it would go on; empty where it starts over.
    """

    rank: Annotated[int, Meta(ge=0, lt=1 << 32)]
    host: Annotated[str, Meta(max_length=255)]
    nodes: Annotated[int, Meta(ge=0, lt=1 << 32)]
    mode: Literal["trial", "train"]
    key: Annotated[str, Meta(max_length=64)]
    hard: dict[str, Any]
    soft: dict[str, Any] = {}
    resume: Annotated[str, Meta(max_length=255)] = ""

    def __str__(self) -> str:
        return f"node {self.rank} ({self.host})"


def judged(participants: Sequence[Participant]) -> CachekitError | None:
    """Why these machines cannot train together; None where they can. Processors may differ, as torch bears that."""
    first = participants[0]
    for one in participants[1:]:
        if one.nodes != first.nodes:
            return UsageError(
                f"{one} was started for {one.nodes} machines, but {first} for {first.nodes}",
                hint="use the same --nnodes on all machines",
            )
        changes = [each for each in difference(first.hard, one.hard) if not each.name.startswith("target.")]
        if one.mode == first.mode:
            changes += difference(first.soft, one.soft)
        if changes:
            what = "toolchain" if all(each.name.startswith("toolchain.") for each in changes) else "recipe or toolchain"
            said = [f"{_shown(each.name)} is {_shown(each.new)} there and {_shown(each.old)} here" for each in changes]
            return UsageError(
                f"{one} has a different {what} from {first}",
                cause=first_of(said, between="; ").replace(" here", f" on node {first.rank}"),
                hint="use the same recipe, and the same versions, on all machines",
            )
        if one.mode != first.mode:
            cold, warm = (one, first) if one.mode == "trial" else (first, one)
            return UsageError(
                f"{cold} has no record of this key, but {warm} has one",
                cause="a trial run needs all machines of the training, so either all of them make it or none",
                hint=f"`cachekit push` on node {warm.rank} to a remote that all of them read; or --recache on all",
            )
        if one.resume != first.resume:
            said = [
                f"{each} {f'continues from {each.resume}' if each.resume else 'starts over'}" for each in (one, first)
            ]
            return UsageError(
                f"{said[0]}, and {said[1]}",
                cause="only node 0 writes checkpoints, and each machine reads its own --checkpoint-dir",
                hint="--checkpoint-dir in a folder that all machines share; or copy the checkpoint to all of them",
            )
    return None


def _shown(value: object) -> str:
    return "absent" if value is ABSENT else cut(str(value), LONGEST)
