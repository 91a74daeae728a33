"""Keys: canonical form and digest of named ingredients; needs no recipe."""
