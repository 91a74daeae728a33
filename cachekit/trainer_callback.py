"""A callback for people who own their Trainer: `Trainer(..., callbacks=[cachekit.CacheCallback()])`.

The only module of the library that imports transformers; it is loaded when `cachekit.CacheCallback` is asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from cachekit.api import Cache
from cachekit.training import trackers
from cachekit.verbs.run import ATTENDED

if TYPE_CHECKING:
    from cachekit.verbs.attach import Attached, Attachment

_LOG = logging.getLogger("cachekit")
# Of a model's config: what names it, and says who wrote it down.
_NAMES = frozenset({"_name_or_path", "transformers_version", "id2label", "label2id", "architectures", "torch_dtype"})
# Of TrainingArguments: what shapes the graphs.
_SHAPING = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps",
    "gradient_checkpointing", "bf16", "fp16", "optim", "torch_compile_backend", "torch_compile_mode",
)  # fmt: skip


class CacheCallback(TrainerCallback):  # type: ignore[misc]
    """Gives a Trainer what an earlier run of the same script compiled, and keeps what compiles.

    The record is restored when the Trainer is made; what compiles is kept whenever a checkpoint is saved or an
    evaluation ends, when the training ends, and at exit, which has graphs of a later `predict` too. What became of it
    is in `report`, and one line of it goes to the logger `cachekit`. A Trainer that is made after it gives the trackers
    of its `report_to` the graphs found and compiled and the seconds saved and waited, as `cachekit/graphs_found` etc.

    It must be made before anything compiles in this process, and works on what compiles in this process: under
    `cachekit run` it leaves the work to that and only counts. See `cachekit.attach`.

    Args:
        name: The key is made from this name, the model's config and the arguments that shape graphs, instead of the
            script: for notebooks, and for scripts that change all the time.
        ingredients: Something else that shapes the graphs.
        soft_args: Names of arguments that affect no graph.
        require_warm: Raise `MissError` where there is no record, and at the end of a step that compiled.
        recache: Restore nothing, and replace what there was.
        **options: Those of `cachekit.Cache`: `cache="local:rw,hf://team/cache:rw"`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        ingredients: Mapping[str, str] | None = None,
        soft_args: Sequence[str] = (),
        require_warm: bool = False,
        recache: bool = False,
        **options: Any,
    ) -> None:
        self._begin = partial(
            Cache(**options).attach, name, soft_args=soft_args, require_warm=require_warm, recache=recache
        )
        self._named, self._ingredients = bool(name), dict(ingredients or {})
        self._attachment: Attachment | None = None
        self._compiled = 0
        trainer = sys.modules.get("transformers.trainer")  # loaded with the class of the Trainer that is made next
        if trainer and not os.environ.get(ATTENDED):  # else whoever has the cache in hand tells the trackers
            trackers.add(trainer, self._figures)

    @property
    def report(self) -> Attached | None:
        """What became of it so far; None before the Trainer was made."""
        return self._attachment.report if self._attachment else None

    def on_init_end(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002 - the Trainer's
        """Restore what there is."""
        self._attach(args, beside.get("model"))

    def on_train_begin(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002
        """The same for a callback that was added to a Trainer."""
        self._attach(args, beside.get("model"))

    def on_step_end(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002
        """Stop where nothing may compile."""
        if self._attachment is not None:
            self._attachment.check()

    def on_evaluate(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002
        """Keep what compiled since."""
        self._keep()

    def on_save(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002
        """Keep what compiled since: the next moment may be a spot instance's last."""
        self._keep()

    def on_train_end(self, args: Any, state: Any, control: Any, **beside: Any) -> None:  # noqa: ARG002
        """Keep what compiled, and tell."""
        if self._attachment is not None:
            self._attachment.check()
            told = self._attachment.keep(finished=True)
            _LOG.info("%s", told.sentence)

    def close(self) -> Attached | None:
        """Keep what is new and give the environment back, before exit does."""
        return self._attachment.close() if self._attachment else None

    def _attach(self, args: Any, model: Any) -> None:
        if self._attachment is None:
            more = _shaping(args, model) if self._named else {}
            self._attachment = self._begin(ingredients={**more, **self._ingredients})

    def _figures(self) -> dict[str, float]:
        found = self.report
        if found is None:
            return {}
        return {
            "graphs_found": found.found,
            "graphs_compiled": found.compiled,
            "saved_seconds": found.saved_seconds,
            "waited_seconds": 0.0,  # it waits for nobody else's compile
        }

    def _keep(self) -> None:
        if self._attachment is None:
            return
        self._attachment.check()
        if (compiled := self._attachment.report.compiled) > self._compiled:
            self._compiled = compiled
            self._attachment.keep(finished=False)


def _shaping(args: Any, model: Any) -> dict[str, str]:
    """What the Trainer knows that a name does not say."""
    config = getattr(model, "config", None)
    said = config.to_dict() if config is not None and hasattr(config, "to_dict") else {}
    said = {name: value for name, value in said.items() if name not in _NAMES}
    said["num_labels"] = getattr(config, "num_labels", None)
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
    shapes = {name: str(getattr(args, name)) for name in _SHAPING if hasattr(args, name)}
    return {"model": type(model).__name__, "config": digest, **shapes}
