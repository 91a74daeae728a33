"""S3, and what speaks its protocol, as a tier: over `obstore`."""

from cachekit.remotes.s3.tier import S3Tier

__all__ = ["S3Tier"]
