"""One run of the worker on Inductor: its variables, and the end of a training that must not compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachekit.compilers.port import Unwatched
from cachekit.errors import MissError


class InductorWatch(Unwatched):
    """See `compilers.port.Watch`. The worker itself counts graphs, and tells of each as its compile begins.

    Args:
        environment: Variables for the worker.
        strict: Stop at the first compile.
    """

    def __init__(self, environment: Mapping[str, str | None], *, strict: bool) -> None:
        super().__init__(environment)
        self._strict = strict

    def event(self, event: Mapping[str, Any]) -> None:
        """See the port.

        Raises:
            MissError: A graph compiles, under `strict`.
        """
        if self._strict and event.get("event") == "graphs" and event.get("compiled"):
            raise MissError(
                "a graph is not warm, although its record was found",
                cause=f"it began to compile in: {event.get('phase') or 'start'}",
                hint="train without --require-warm once, which adds it to the record",
            )
