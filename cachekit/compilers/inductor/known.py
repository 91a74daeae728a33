"""What is known of Inductor without a machine."""

from __future__ import annotations

from cachekit.compilers.port import Adapter, Compiler, Node


class InductorAdapter(Adapter):
    """PyTorch's own compiler, which every machine with PyTorch has."""

    name = "inductor"
    prefix = "inductor-"

    def here(self, *, compiles: bool) -> bool:  # noqa: ARG002 - the port's
        """Always: `fingerprint` says what is missing."""
        return True

    def open(self, node: Node | None = None) -> Compiler:  # noqa: ARG002 - the port's
        """The compiler on this machine; it has no nodes."""
        from cachekit.compilers.inductor.adapter import Inductor

        return Inductor()


ADAPTERS = {InductorAdapter.name: InductorAdapter()}
