"""Turn what people have into a recipe: example command lines of Transformers, YAMLs of two other trainers.

One module a dialect. Each reads text and fills a `RecipeDraft`; what no field of a recipe stands for is named, with the
reason. Nothing is run: a notebook, a program, or a placeholder in the place of a value is refused.
"""

from cachekit.recipe.convert.detect import convert, convert_command
from cachekit.recipe.convert.draft import RecipeDraft

__all__ = ["RecipeDraft", "convert", "convert_command"]
