"""What `cachekit run` does inside of a user's own command: portable keys, and a count of graphs at the end.

PyTorch itself loads this module at the end of `import torch`, as an entry point of `torch.backends`, from a folder that
only such commands have on PYTHONPATH. Nothing of cachekit is imported here: its files are loaded that import nothing
but the standard library. No error here stops a command.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_ADAPTER = Path(__file__).parent.parent


def install() -> None:
    """Called by PyTorch."""
    with suppress(Exception):
        _install()


def _install() -> None:
    facts, portable = _load("facts", _ADAPTER / "facts.py"), _load("portable", _ADAPTER / "portable.py")
    folder = os.environ.get(facts.REPORTS)
    if not folder:
        return
    portable.hide_secrets(_load("redact", _ADAPTER.parent.parent / "redact/__init__.py"))
    portable.after("torch._inductor.config", lambda config: portable.leave_out_of_the_key(config, facts.IGNORED))
    portable.after(
        "torch._inductor.cpp_builder",
        lambda builder: portable.make_kernel_keys_portable(builder, facts.PRECOMPILE_HEADERS_MACRO),
    )
    portable.after("torch._inductor.codecache", portable.name_types_alike)
    portable.share_in(os.environ.get(facts.SHARED, ""), facts.PRECOMPILE_HEADERS_CONFIG)
    restored = int(os.environ.get(facts.RESTORED) or 0)
    process = _Process(Path(folder), portable, restored)
    _tell_trackers(portable, bool(restored))
    portable.time_compiles(process.report)  # so that a process that is killed has reported
    atexit.register(process.report)
    os.register_at_fork(after_in_child=process.begin_again)


def _tell_trackers(portable: Any, restored: bool) -> None:
    """Report the graphs of this process to the trackers of a Trainer, if one is made."""
    trackers = _load("trackers", _ADAPTER.parent.parent / "training" / "trackers.py")

    def figures() -> dict[str, float]:
        found: dict[str, float] = trackers.of_counters(portable.graphs(sys.modules["torch._dynamo.utils"].counters))
        return found if restored else {**found, "saved_seconds": 0.0}

    portable.after("transformers.trainer", lambda trainer: trackers.add(trainer, figures))


def _load(name: str, path: Path) -> Any:
    """A module or a package of this cachekit, under a name that leaves the command's own cachekit, if any, alone."""
    spec = importlib.util.spec_from_file_location(f"_cachekit_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a package's modules look for it
    spec.loader.exec_module(module)
    return module


class _Process:
    """What this process has done since it began; what a fork's parent did before, the parent reports.

    Args:
        folder: Where each process leaves a file.
        portable: The module.
        restored: When the command was given graphs: nanoseconds of the clock.
    """

    def __init__(self, folder: Path, portable: Any, restored: int) -> None:
        self._folder, self._portable, self._began = folder, portable, time.time()
        self._before: dict[str, int] = {}
        self._found = portable.time_found(lambda: sys.modules["torch._dynamo.utils"].counters, restored)

    def report(self) -> None:
        """Leave the counters in a file."""
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return
        with suppress(Exception):
            counted = self._portable.graphs(utils.counters)
            numbers = {name: value - self._before.get(name, 0) for name, value in counted.items()}
            note = self._portable.ungraphed(utils.counters)
            if not any(numbers.values()) and not note:
                return
            lived = (self._began, time.time())
            told = {"lived": lived, "spans": self._portable.compile_spans(utils) or (), "graphs": self._found}
            fresh = self._folder / f"{os.getpid()}.tmp"
            fresh.write_text(json.dumps({**numbers, **told, "note": note}), encoding="utf-8")
            fresh.replace(self._folder / f"{os.getpid()}.json")

    def begin_again(self) -> None:
        """In a fork."""
        with suppress(Exception):
            self._began = time.time()
            self._found.clear()
            utils = sys.modules["torch._dynamo.utils"]
            self._before.update(self._portable.graphs(utils.counters))
            self._portable.compile_spans(utils).clear()
