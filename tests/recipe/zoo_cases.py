"""The zoo's own recipes and registry."""

from cachekit.recipe import zoo

RECIPES = zoo.recipes()
REGISTRY = RECIPES["bert"].parents[1] / "registry"
