"""A Storage Bucket of the Hugging Face Hub as a tier."""

from cachekit.remotes.bucket.tier import BucketTier

__all__ = ["BucketTier"]
