"""cachekit's own figures beside those that a Trainer reports to TensorBoard, Weights & Biases, MLflow or Trackio.

The Trainer has a callback for each tracker, made from `report_to`, and gives all callbacks the same mapping of figures
(`transformers.trainer`, 4.57 to 5.x: `DEFAULT_CALLBACKS` come before those of trackers). One that comes first adds
ours. A user's own command loads this file by its path, where cachekit need not be importable, so that the file imports
nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

# Each tracker by the name that `transformers.TrainingArguments.report_to` has for it, and the packages of which it
# needs one, by their import names (`transformers.integrations.integration_utils`).
PACKAGES = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "trackio": ("trackio",),
}
PREFIX = "cachekit/"

Figures = Callable[[], Mapping[str, float]]


def missing(names: tuple[str, ...]) -> list[str]:
    """The trackers among these whose package is not installed."""
    return [name for name in names if not any(find_spec(package) for package in PACKAGES[name])]


def of_counters(counters: Mapping[str, int]) -> dict[str, float]:
    """A compiler's counters as figures: graphs found and compiled, and seconds that the found ones took to compile.

    Nobody else's compile is waited for, but where `train` says so itself: a command of the user's own begins at once.
    """
    figures: dict[str, float] = {name: counters.get(kind, 0) for name, kind in _COUNTED.items()}
    figures["waited_seconds"] = 0.0
    if "found_ms" in counters:
        figures["saved_seconds"] = counters["found_ms"] / 1000
    return figures


_COUNTED = {"graphs_found": "found", "graphs_compiled": "compiled"}


def add(module: Any, figures: Figures) -> None:
    """Have the Trainers that are made from now on report figures, with each evaluation and at the end of a training.

    Args:
        module: The loaded module of a Trainer: `transformers.trainer`, or optimum-neuron's.
        figures: Asked each time; what it raises is nobody's failure.
    """
    from transformers.trainer_callback import TrainerCallback

    class CacheFigures(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_log(self, args: Any, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
            if logs and args.report_to and any(name.endswith("_runtime") for name in logs):
                with suppress(Exception):
                    logs.update({f"{PREFIX}{name}": value for name, value in figures().items()})

    with suppress(AttributeError):  # a Trainer of another kind, and a run goes on
        kept = [one for one in module.DEFAULT_CALLBACKS if getattr(one, "__name__", "") != CacheFigures.__name__]
        module.DEFAULT_CALLBACKS[:] = [CacheFigures, *kept]


@contextmanager
def one_run(trainer: Any) -> Iterator[None]:
    """Have the trackers of a Trainer end their run as this block ends, and not as the training in it does.

    MLflow and Trackio would begin another run with the first figures of an evaluation after the training.
    """
    from transformers.integrations import get_reporting_integration_callbacks

    kinds = tuple(get_reporting_integration_callbacks(trainer.args.report_to))
    held: list[Callable[[], object]] = []

    def hold(end: Callable[..., object], *args: Any, **beside: Any) -> None:
        held.append(partial(end, *args, **beside))

    for tracker in trainer.callback_handler.callbacks:
        if isinstance(tracker, kinds):
            tracker.on_train_end = partial(hold, tracker.on_train_end)
    yield
    for end in held:
        end()
