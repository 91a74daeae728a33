"""Compile caches that are a folder: each is a declaration, and one adapter serves them all.

`docs/add-a-compiler.md` says how to declare another.
"""
