"""The verbs: one use case a module. What a verb's arguments mean, and what it raises, says its method of `api.Cache`."""
