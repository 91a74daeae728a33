"""A shared folder as a remote: EFS, FSx, NFS, or a disk that several processes share."""

from cachekit.remotes.folder.remote import FolderStorage

__all__ = ["FolderStorage"]
