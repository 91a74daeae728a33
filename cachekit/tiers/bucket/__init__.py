"""A Storage Bucket of the Hugging Face Hub as a tier."""

from cachekit.tiers.bucket.tier import BucketTier

__all__ = ["BucketTier"]
