"""What is known of Inductor without a machine."""

from __future__ import annotations

from collections.abc import Sequence
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
        """The compiler on this machine; it has no nodes."""
        from cachekit.compilers.inductor.compiler import Inductor

        return Inductor()

    def checks(self) -> Sequence[Check]:
        """The C++ compiler."""
        from cachekit.compilers.inductor.machine import look
        from cachekit.health import Check

        return (Check("c++-compiler", look, chosen=True),)


ADAPTERS = {InductorAdapter.name: InductorAdapter()}
