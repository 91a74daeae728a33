"""What an encoder-decoder writes, greedily, in passes that are all the graph of an evaluation batch.

The usual loop asks for one token at a time, from inputs that grow: each length is a graph of its own. Here each pass is
over the whole target at once, and feeds back what the pass before chose at every place. A token depends on those before
it only, so the n-th pass has the first n tokens right, and once nothing changes the text is the one that the usual loop
writes. That takes as many passes as the longest text has tokens, at the most, and needs no shape, no index and no cache
that evaluation's own forward pass has not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cachekit.training.tasks.port import Batch


@dataclass(frozen=True, slots=True)
class Greedy:
    """See `port.Work.generate`. Tokens after a text's end are `pad`.

    Attributes:
        end: The token that ends a text.
        first: What every text begins with, which is not for the model to choose: `<s>` of BART, a language of mBART.
        labelled: Labels are among the inputs of evaluation's forward pass, and so here; nothing is read from them.
    """

    pad: int
    end: int
    first: int | None = None
    labelled: bool = True

    def __call__(self, model: Any, batch: Batch) -> torch.Tensor:
        """The tokens of each row's text, in the shape of `decoder_input_ids`, less the one that they start with."""
        given = {name: value for name, value in batch.items() if self.labelled or name != "labels"}
        start = batch["decoder_input_ids"][:, :1]
        written = torch.full_like(batch["decoder_input_ids"], self.pad)
        fed = torch.cat([start, written[:, 1:]], dim=1)
        _end_graph(fed)
        for _ in range(fed.shape[1]):
            chosen = model(**{**given, "decoder_input_ids": fed})["logits"].argmax(dim=-1)
            written = self._ended(chosen)
            following = torch.cat([start, written[:, :-1]], dim=1)
            same = (following == fed).all()
            fed = following
            _end_graph(fed)
            if bool(same):
                break
        return written

    def _ended(self, chosen: torch.Tensor) -> torch.Tensor:
        if self.first is not None:
            chosen = torch.cat([torch.full_like(chosen[:, :1], self.first), chosen[:, 1:]], dim=1)
        ends = (chosen == self.end).long()
        return chosen.masked_fill(ends.cumsum(dim=1) - ends > 0, self.pad)


def _end_graph(tensor: torch.Tensor) -> None:
    """Where tensors are lazy, what was asked for so far is one graph; cut here, each pass is the same one."""
    if tensor.device.type == "xla":
        from torch_xla.core import xla_model

        xla_model.mark_step()
