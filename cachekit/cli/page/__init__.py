"""The page of `cachekit report`: one HTML file with its style and its drawings inside, and nothing else."""

from cachekit.cli.page.page import page

__all__ = ["page"]
