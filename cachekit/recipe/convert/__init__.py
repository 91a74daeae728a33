"""Turn what people have into a recipe: example command lines of Transformers, YAMLs of two other trainers.

One module a dialect. Each reads text and fills a `Draft`; what no field of a recipe stands for is named, with the
reason.
"""

from cachekit.recipe.convert.detect import convert
from cachekit.recipe.convert.draft import Draft

__all__ = ["Draft", "convert"]
