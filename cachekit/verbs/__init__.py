"""Use cases, one a module. Each takes its collaborators as arguments; the command line builds them once."""
