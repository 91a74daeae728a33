"""Data: rows, images and saved data sets of a recipe, as they are read on this machine."""
