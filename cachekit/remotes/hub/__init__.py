"""A Hugging Face Hub repo as a tier: `HubTier`, over the real client of whatever version is installed (0.35 to 2.x)."""

from cachekit.remotes.hub.create import create, look
from cachekit.remotes.hub.repo import HubTier

__all__ = ["HubTier", "create", "look"]
