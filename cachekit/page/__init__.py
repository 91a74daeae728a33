"""The page of `cachekit report`: one HTML file with its style and its drawings inside, and nothing else."""

from cachekit.page.page import page
from cachekit.page.write import Page, write_page

__all__ = ["Page", "page", "write_page"]
