"""Object stores as remotes, over `obstore`: one adapter, and what each service does differently.

Registered by their schemes in `address`: `s3`, `gs`, `az`. A new service is an `ObjectService` in a module of its own.
"""

from cachekit.remotes.objectstore.remote import ObjectStorage

__all__ = ["ObjectStorage"]
