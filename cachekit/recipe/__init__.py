"""Recipes: a YAML file in, checked and frozen values out."""

from cachekit.recipe.load import load, load_text
from cachekit.recipe.schema import Recipe, json_schema

__all__ = ["Recipe", "json_schema", "load", "load_text"]
