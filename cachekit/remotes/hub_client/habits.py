"""What `huggingface_hub` asks its Hub beside what it is asked to, and a cache has no use for."""

from __future__ import annotations


def ask_for_no_registry() -> None:
    """Keep the client of this process from asking which agents there are.

    Since 2.x it fetches `/api/agent-harnesses` before the first request of a process whose HF_HOME has no copy of the
    last 24 hours, to name an agent in its user agent (`utils/_detect_agent.py`). On a Hub that is away that waits as
    long as the request itself. An empty registry is what it takes when it got none.
    """
    try:
        from huggingface_hub.utils import _detect_agent as module
    except ImportError:  # before 2.x
        return
    if getattr(module, "_registry", module) is None:
        module._registry = getattr(module, "_EMPTY_REGISTRY", {})  # noqa: SLF001
