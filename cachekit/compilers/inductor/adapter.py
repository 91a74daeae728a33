"""What is known of Inductor without a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cachekit.compilers.adapter import Adapter
from cachekit.compilers.port import Compiler, Node

if TYPE_CHECKING:
    from cachekit.health import Check


class InductorAdapter(Adapter):
    """PyTorch's own compiler, which every machine with PyTorch has."""

    name = "inductor"
    prefix = "inductor-"

    def here(self, *, compiles: bool) -> bool:
        """Always: `fingerprint` says what is missing."""
        return True

    def open(self, node: Node | None = None) -> Compiler:
        from cachekit.compilers.inductor.compiler import Inductor

        return Inductor(node)

    def checks(self) -> Sequence[Check]:
        """The C++ compiler."""
        from cachekit.compilers.inductor.compiler import look
        from cachekit.health import Check

        return (Check("c++-compiler", look, chosen=True),)

    def explain_counters(self, counters: Mapping[str, int]) -> Sequence[str]:
        """What Inductor looked for in vain, and what it does not cache."""
        missed = max(counters.get("fxgraph_cache_miss", 0), counters.get("autograd_cache_miss", 0))
        refused = max(counters.get("fxgraph_cache_bypass", 0), counters.get("autograd_cache_bypass", 0))
        said = []
        if missed:
            said.append(f"Inductor looked for {missed} and had none: its shape or code differs from the trial run's")
        if refused:
            said.append(f"Inductor refused to cache {refused}: they compile in every run")
        return said


ADAPTERS = {InductorAdapter.name: InductorAdapter()}
