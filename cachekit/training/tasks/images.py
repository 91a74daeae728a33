"""Images of one size: decoded from what data sets hold, and prepared by the model's image processor."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from cachekit.errors import DataError, RecipeError

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of a model's channels
ODD = ((37, 91), (91, 37))  # sizes that no processor leaves as they are


def decode(value: Any, where: str, folder: Path) -> Any:
    """An image as PIL's.

    Args:
        value: One already, a file's path or its bytes, or `{"bytes": ..., "path": ...}` as Parquet has it.
        where: The row, for the error about an image that cannot be read (DataError).
        folder: Where relative paths start.
    """
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, Image.Image):
        return value
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            opened = Image.open(io.BytesIO(bytes(value)))
        elif isinstance(value, str) and value:
            opened = Image.open(folder / value)
        else:
            raise DataError(
                f"{where} has no image",
                cause=f"the column holds {type(value).__name__}",
                hint="give an image, its bytes, or the path of a file; check data.image_column",
            )
        opened.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{where}: the image cannot be read", cause=str(error)[:300], hint="check data.image_column, and the file"
        ) from error
    return opened


class Preparer:
    """Images in, `(images, channels, size, size)` out, whatever size they had.

    The size comes from the key's ingredients, not from the processor: that one is loaded with the weights, and decides
    only how an image gets there.

    Args:
        processor: Of the model, or another one; RecipeError where it cannot make such images.
        size: Pixels a side.
        channels: Of the model.
    """

    def __init__(self, processor: Any, size: int, channels: int) -> None:
        self._processor = processor
        self._size = size
        self._mode = MODES.get(channels)
        self._shape = (channels, size, size)
        if self._mode is None:
            raise RecipeError(f"model.config.num_channels is {channels}", cause="expected 1, 3 or 4 of an image")
        made: set[tuple[int, ...]] = set()
        for options in ({}, self._resized()):
            self._options = options
            made = self._probe()
            if made == {self._shape}:
                return
        raise RecipeError(
            f"the image processor does not make images of {size} x {size} pixels and {channels} channels",
            cause=f"it makes {' and '.join(' x '.join(map(str, shape)) for shape in sorted(made)) or 'none'}",
            hint="choose another with model.tokenizer; the size is the model's, or training.image_size",
        )

    def __call__(self, images: Sequence[Any]) -> torch.Tensor:
        """The model's `pixel_values`; None is a blank image."""
        blank = Image.new(self._mode or "", (self._size, self._size))
        ready = [blank if image is None else image.convert(self._mode) for image in images]
        # One by one: a few processors look at the first image for what all are like.
        return torch.cat([self._one(image) for image in ready])

    def _one(self, image: Any) -> torch.Tensor:
        made: torch.Tensor = self._processor([image], return_tensors="pt", **self._options)["pixel_values"]
        return made.float()

    def _probe(self) -> set[tuple[int, ...]]:
        try:
            return {tuple(self._one(Image.new(self._mode or "", size)).shape[1:]) for size in ODD}
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise RecipeError(
                "the image processor cannot prepare images for this model",
                cause=f"{self._shape[0]} channels: {str(error)[:200]}",
                hint="choose another with model.tokenizer, or set model.config.num_channels",
            ) from error

    def _resized(self) -> dict[str, Any]:
        """What the processor is told where it makes another size by itself."""
        square = {"height": self._size, "width": self._size}
        size, crop = _plain(self._processor, "size"), _plain(self._processor, "crop_size")
        options: dict[str, Any] = {"do_resize": True}
        if getattr(self._processor, "do_center_crop", False) and crop:
            # As much is cut away as of the processor's own size.
            shortest = size.get("shortest_edge") or size.get("height") or self._size
            grown = round(self._size * max(1.0, shortest / (crop.get("height") or shortest)))
            inner = {"shortest_edge": grown} if "shortest_edge" in size else {"height": grown, "width": grown}
            return {**options, "size": inner, "crop_size": square}
        return {**options, "size": {"shortest_edge": self._size} if "shortest_edge" in size else square}


def _plain(processor: Any, name: str) -> dict[str, int]:
    """A size of a processor as a mapping: a class of its own in some versions, null in some."""
    value = getattr(processor, name, None)
    if isinstance(value, int):
        return {"height": value, "width": value}
    try:
        return {key: number for key, number in dict(value or {}).items() if number}
    except (TypeError, ValueError):
        return {key: number for key, number in vars(value).items() if number}
