"""A shared folder as a tier: EFS, FSx, NFS, or a disk that several processes share."""

from cachekit.remotes.folder.remote import FolderTier

__all__ = ["FolderTier"]
