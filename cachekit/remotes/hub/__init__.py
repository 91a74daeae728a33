"""The Hugging Face Hub: a repo (`HubStorage`) or a Storage Bucket (`BucketStorage`), over one `client.Client`."""

from cachekit.remotes.hub.bucket import BucketStorage
from cachekit.remotes.hub.create import create, look
from cachekit.remotes.hub.repo import HubStorage

__all__ = ["BucketStorage", "HubStorage", "create", "look"]
